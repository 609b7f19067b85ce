"""Random rearrangements: read through its planned place, each tensor is what it should be.

In a world where every reader wants dense memory, what the plan leaves uncopied must be dense at
its readers, and only slices, permutes and concats are ever copied.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from tests.relax_in_numpy import OPERATORS
from tilewright.passes.constants import RESHAPES, op_name, shape_of
from tilewright.passes.rewriter import variables_in
from tilewright.passes.views import free_views, is_view, plan_views


@st.composite
def functions(draw: st.DrawFn) -> relax.Function:
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=2, max_size=4)))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "int32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            values = [x]
            for _ in range(draw(st.integers(1, 6))):
                source = draw(st.sampled_from(values))
                values.append(builder.emit(draw(steps(source, values))))
            results = draw(st.lists(st.sampled_from(values[1:]), min_size=1, max_size=2))
            result = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(result)
    return builder.get()["main"]


@st.composite
def steps(draw: st.DrawFn, source: relax.Var, values: list[relax.Var]) -> relax.Expr:
    shape = shape_of(source)
    kind = draw(st.sampled_from(["permute", "reshape", "slice", "concat", "kernel"]))
    if kind == "permute":
        return relax.op.permute_dims(source, draw(st.permutations(range(len(shape)))))
    if kind == "reshape":
        return relax.op.reshape(source, draw(st.sampled_from([(-1,), (1, *shape), (*shape, 1)])))
    axis = draw(st.integers(0, len(shape) - 1))
    if kind == "slice":
        begin = draw(st.integers(0, shape[axis] - 1))
        end = draw(st.integers(begin + 1, shape[axis]))
        return relax.op.strided_slice(source, [axis], [begin], [end])
    if kind == "concat":
        alike = [value for value in values if shape_of(value) == shape]
        return relax.op.concat([source, draw(st.sampled_from(alike))], axis)
    return relax.op.negative(source)


@settings(deadline=None, max_examples=150)
@given(functions())
def test_places_hold_what_the_graph_says(function: relax.Function) -> None:
    plan = plan_views(function, lambda _: False)
    values = evaluated(function)
    definitions = {b.var: b.value for block in function.body.blocks for b in block.bindings}
    for var, place in plan.places.items():
        if place.base.same_as(var) or var in plan.copies:
            continue
        address, whole = place.address, np.ascontiguousarray(values[place.base])
        raw = whole.reshape(-1).view(np.uint8)[address.offset :].view(np.int32)
        seen = np.lib.stride_tricks.as_strided(raw, address.shape, address.strides)
        np.testing.assert_array_equal(seen, values[var])
    for value in definitions.values():
        if is_view(value) or op_name(value) in ("", "relax.concat"):
            continue
        assert all(plan.places[read].address.is_dense for read in variables_in(value))
    for var in plan.copies:
        assert op_name(definitions.get(var, var)) not in RESHAPES or any(
            op_name(value) == "relax.concat" and var in variables_in(value)
            for value in definitions.values()
        )


@settings(deadline=None, max_examples=150)
@given(functions())
def test_once_the_rest_are_kernels_free_views_need_no_copy(function: relax.Function) -> None:
    """Lowering makes kernels of all but the free views; the planner of memory cannot copy."""
    free = free_views(function)
    bindings = []
    for block in function.body.blocks:
        for binding in block.bindings:
            value = binding.value
            keeps = binding.var in free or op_name(value) in RESHAPES  # no reshape is a kernel
            if isinstance(value, relax.Call) and not keeps:
                arguments = list(dict.fromkeys(variables_in(value)))
                value = relax.call_dps_packed("kernel", arguments, binding.var.ty)
            bindings.append(relax.VarBinding(binding.var, value))
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], function.body.body)
    lowered = relax.Function(function.params, body, function.ret_ty)
    assert plan_views(lowered, lambda _: False).copies == {}


def evaluated(function: relax.Function) -> dict[relax.Var, np.ndarray]:
    (x,) = function.params
    values = {x: np.arange(np.prod(shape_of(x)), dtype=np.int32).reshape(shape_of(x))}
    for block in function.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if not isinstance(call, relax.Call):
                continue
            arguments = [
                [values[field] for field in argument.fields]
                if isinstance(argument, relax.Tuple) and op_name(call) == "relax.concat"
                else [int(field.value) for field in argument.fields]
                if isinstance(argument, relax.Tuple)
                else [int(extent) for extent in argument.values]
                if isinstance(argument, relax.ShapeExpr)
                else values[argument]
                for argument in call.args
            ]
            values[binding.var] = OPERATORS[op_name(call)](call, arguments)
    return values
