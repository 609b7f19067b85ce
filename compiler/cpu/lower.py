"""From Relax operators to calls of CPU kernels, each with one outermost parallel loop.

    conv = nn.conv2d(x, w); sum = add(conv, b); y = nn.relu(sum)
    ->  y = call_tir(fused_conv2d_add_relu, (x, packed w, b))

Every operator left in `main` becomes TE, TVM fuses element-wise operators into their producers,
and the templates of schedules/cpu turn each group into kernels. A group that needs large
intermediates becomes several calls, so that the memory planner sees them. Calls of NPU regions
and views (reshape and the like) stay as they are.

Names: each call's span carries the ONNX nodes of everything it computes, the most telling first
(passes/names.py). A kernel that only prepares an operand is named `<node>/widened` or the like.
"""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from tilewright.compiler.cpu.hidden_calls import hide_calls, restore_calls
from tilewright.compiler.cpu.kernel_library import KernelLibrary
from tilewright.compiler.cpu.legalize_extremes import extreme_legalizations
from tilewright.compiler.cpu.legalize_float import float_legalizations
from tilewright.compiler.cpu.legalize_pooling import POOLING
from tilewright.compiler.cpu.legalize_quantized import quantized_legalizations
from tilewright.compiler.cpu.legalize_scaling import SCALING
from tilewright.compiler.cpu.machine import common_facts
from tilewright.compiler.cpu.operands import Legalize, stock
from tilewright.passes.constants import RESHAPES
from tilewright.passes.names import joined_names, onnx_nodes_of, with_names
from tilewright.passes.rewriter import Rewriter
from tilewright.schedules.cpu.facts import Cpu, CpuFacts
from tilewright.targets.errors import ModelError

KEPT = (*RESHAPES, "relax.call_tir", "relax.call_dps_packed", "relax.shape_of")


def lower_to_kernels(module: tvm.IRModule, cpu: Cpu) -> tvm.IRModule:
    """`main` with nothing but kernel calls, region calls and views; see the top of this file.

    Raises ModelError for an operator that no kernel can be made of.
    """
    facts = common_facts(cpu)
    regions = {
        variable.name_hint: function
        for variable, function in module.functions.items()
        if isinstance(function, relax.Function) and variable.name_hint != "main"
    }
    alone = tvm.IRModule(
        {name: one for name, one in module.functions.items() if isinstance(one, tirx.PrimFunc)},
        attrs=module.attrs,
    )
    alone["main"], hidden = hide_calls(module["main"])
    fused = _fuse(_legalize(alone, facts))
    names = _group_names(fused)
    kernels = _schedule(relax.transform.FuseTIR()(fused), names, facts)
    return restore_calls(kernels, regions, hidden)


def operator_name(call: relax.Call) -> str:
    return str(getattr(call.op, "name", ""))


def _legalize(module: tvm.IRModule, cpu: CpuFacts) -> tvm.IRModule:
    """Every operator of `main` but views as a call of a PrimFunc made by TE, names kept."""
    own = {
        **quantized_legalizations(cpu),
        **float_legalizations(cpu),
        **extreme_legalizations(),
        **POOLING,
        **SCALING,
    }
    used = sorted(
        {
            operator_name(binding.value)
            for block in module["main"].body.blocks
            for binding in block.bindings
            if isinstance(binding.value, relax.Call)
        }
        - set(KEPT)
        - {""}
    )
    legalizations = {name: _named(own.get(name) or stock(name)) for name in used}
    return relax.transform.LegalizeOps(legalizations, skip_ops=list(RESHAPES))(module)


def _named(legalize: Legalize) -> Legalize:
    def apply(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        result = legalize(builder, call)
        if isinstance(result, relax.Call) and result.same_as(call):
            raise ModelError(
                f"{' '.join(onnx_nodes_of(call)) or call.op.name}: no kernel for this form of "
                f"{call.op.name}; rewrite the model"
            )
        return result if onnx_nodes_of(result) else with_names(result, onnx_nodes_of(call))

    return apply


def _fuse(module: tvm.IRModule) -> tvm.IRModule:
    return tvm.ir.transform.Sequential(
        [relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps()]
    )(module)


def _group_names(module: tvm.IRModule) -> dict[str, tuple[str, ...]]:
    """The ONNX nodes in each fused function, its anchor's first."""
    return {
        variable.name_hint: joined_names(
            *(binding.value for block in function.body.blocks for binding in block.bindings)
        )
        for variable, function in module.functions.items()
        if isinstance(function, relax.Function) and variable.name_hint != "main"
    }


def _schedule(
    module: tvm.IRModule, names: dict[str, tuple[str, ...]], cpu: CpuFacts
) -> tvm.IRModule:
    """Each call of a fused PrimFunc as calls of its kernels; equal kernels are one function."""
    functions = {
        variable.name_hint: function
        for variable, function in module.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }
    library = KernelLibrary(functions, cpu)
    rewriter = Rewriter(module["main"])

    def rewrite(value: relax.Expr) -> relax.Expr | None:
        if isinstance(value, relax.TupleGetItem):
            tuple_value = rewriter.definition(value.tuple_value)
            fields = tuple_value.fields if isinstance(tuple_value, relax.Tuple) else None
            return fields[value.index] if fields else None
        if operator_name(value) != "relax.call_tir":
            return None
        name = value.args[0].name_hint
        nodes = onnx_nodes_of(value) or names.get(name, ())
        return _calls(library, name, value, nodes, rewriter)

    main = rewriter.run(rewrite)
    updated = tvm.IRModule(library.module().functions, attrs=module.attrs)
    updated["main"] = main
    return updated


def _calls(
    library: KernelLibrary,
    group: str,
    call: relax.Call,
    nodes: tuple[str, ...],
    rewriter: Rewriter,
) -> relax.Expr:
    """The calls that stand for one call of a fused PrimFunc; the last is left to be bound."""
    function, kernels = library.kernels_of(group)
    values = dict(zip(function.params, call.args[1].fields, strict=False))
    for kernel in kernels:
        types = [_tensor_type(buffer) for buffer in kernel.outputs]
        arguments = [values[buffer] for buffer in kernel.inputs]
        made = with_names(relax.call_tir(library.add(group, kernel), arguments, types), nodes)
        if kernel is kernels[-1] and len(types) == 1 and not _is_tuple(call):
            return made
        result = rewriter.emit(made, nodes)
        for index, buffer in enumerate(kernel.outputs):
            values[buffer] = result if len(types) == 1 else relax.TupleGetItem(result, index)
    outputs = [values[buffer] for buffer in function.params[len(call.args[1].fields) :]]
    return relax.Tuple(outputs) if _is_tuple(call) else outputs[0]


def _is_tuple(call: relax.Call) -> bool:
    return isinstance(call.ty, relax.TupleType)


def _tensor_type(buffer: tirx.Var) -> relax.TensorType:
    return relax.TensorType([int(extent) for extent in buffer.shape], str(buffer.dtype))
