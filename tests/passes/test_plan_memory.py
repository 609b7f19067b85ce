"""Every tensor has its place in the arena, and no two that are alive together overlap."""

from __future__ import annotations

from tvm import relax

from tests.quantised_graphs import conv, graph
from tilewright.passes.plan_memory import Footprint, plan_memory


def offsets(module) -> list[list[int]]:
    return [[int(o) for o in row] for row in module["main"].attrs["arena_offsets"]]


def test_a_chain_needs_its_two_largest_neighbours() -> None:
    def body(emit, x):  # 64, 128, 64, 64 bytes
        wide = emit(conv(x, 8, "wide"))
        return emit(conv(emit(conv(wide, 4, "narrow")), 4, "last"))

    done = plan_memory({}, 16)(graph((1, 4, 4, 4), body))
    assert int(done["main"].attrs["arena_bytes"]) == 64 + 128
    assert int(done["main"].attrs["arena_bound_bytes"]) == 64 + 128


def test_a_reshape_is_another_name_for_its_source() -> None:
    def body(emit, x):
        flat = emit(relax.op.reshape(emit(conv(x, 8, "c")), (1, 128)))
        return emit(relax.op.reshape(flat, (4, 32)))

    rows = offsets(plan_memory({}, 16)(graph((1, 4, 4, 8), body)))
    assert rows[1] == rows[2] == rows[3]
    assert rows[0] != rows[1]


def test_outputs_outlive_everything_after_them() -> None:
    def body(emit, x):
        first = emit(conv(x, 8, "first"))
        second = emit(conv(x, 8, "second"))
        return [first, emit(conv(second, 8, "third"))]

    done = plan_memory({}, 16)(graph((1, 4, 4, 8), body))
    first, second, third = (row[0] for row in offsets(done)[1:4])
    assert len({first, second, third}) == 3


def test_a_region_frees_its_inputs_operator_by_operator() -> None:
    """Three operators: the input dies at the first, so that the output may take its place."""
    module = graph((1, 4, 4, 8), lambda emit, x: emit(conv(x, 8, "c")))
    builder = relax.BlockBuilder()
    region = builder.add_func(module["main"].with_attr("Codegen", "tilewright_npu"), "npu_region_0")
    x = relax.Var("x", relax.TensorType((1, 4, 4, 8), "int8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.Call(region, [x]))
        builder.emit_func_output(y)
    caller = builder.get()
    late = Footprint(3, (0,), (2,), (("spill", 128, 0, 1),))
    done = plan_memory({"npu_region_0": late}, 16)(caller)
    assert int(done["main"].attrs["arena_bytes"]) == 2 * 128
    assert int(done["main"].attrs["region_offsets"]["npu_region_0"]["spill"]) in (0, 128)
    early = Footprint(3, (2,), (0,), (("spill", 128, 0, 1),))
    done = plan_memory({"npu_region_0": early}, 16)(caller)
    assert int(done["main"].attrs["arena_bytes"]) == 3 * 128
