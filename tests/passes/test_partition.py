"""NPU operators become composites, composites become regions, all in as few as can be."""

from __future__ import annotations

import tvm
from tvm import relax

from tests.quantised_graphs import add, conv, dequantize, graph, lookup
from tilewright.passes.constants import op_name
from tilewright.passes.fuse_npu_operators import fuse_npu_operators
from tilewright.passes.partition import bindings_of, composite_nodes, partition
from tilewright.passes.placement_reasons import PlacementReasons
from tilewright.targets.description import load_target

NPU = load_target("mcu-16").npu


def fused(module: tvm.IRModule, reasons: PlacementReasons | None = None) -> tvm.IRModule:
    return fuse_npu_operators(NPU, reasons or PlacementReasons())(module)


def composites(module: tvm.IRModule) -> dict[str, tuple[str, ...]]:
    return {
        function.attrs["Composite"]: composite_nodes(function)
        for function in module.functions.values()
        if isinstance(function, relax.Function) and "Composite" in (function.attrs or {})
    }


def region_nodes(module: tvm.IRModule) -> list[list[str]]:
    """The ONNX nodes of each region in the order main calls them."""
    found = []
    for binding in bindings_of(module["main"]):
        op = getattr(binding.value, "op", None)
        if isinstance(op, tvm.ir.GlobalVar):
            inner = bindings_of(module[op])
            functions = [b.value for b in inner if isinstance(b.value, relax.Function)]
            found.append([node for f in functions for node in composite_nodes(f)])
    return found


def test_lookup_joins_the_convolution_it_follows() -> None:
    module = graph((1, 4, 4, 8), lambda emit, x: emit(lookup(emit(conv(x, 8, "c")), "act")))
    assert composites(fused(module)) == {"npu.conv2d_lookup": ("c", "act")}


def test_lookup_stays_apart_when_the_convolution_is_read_elsewhere() -> None:
    def body(emit, x):
        c = emit(conv(x, 8, "c"))
        return emit(add(c, emit(lookup(c, "act")), "sum"))

    assert composites(fused(graph((1, 4, 4, 8), body))) == {
        "npu.conv2d": ("c",),
        "npu.lookup": ("act",),
        "npu.add": ("sum",),
    }


def test_what_the_npu_refuses_stays_behind_with_its_reason() -> None:
    reasons = PlacementReasons()
    module = graph((1, 64, 64, 8), lambda emit, x: emit(conv(x, 8, "far", strides=[9, 9])))
    assert composites(fused(module, reasons)) == {}
    reason = reasons.of(["far"])
    assert reason is not None
    assert "stride 9x9" in reason.text


def test_real_numbers_stay_behind_with_their_reason() -> None:
    reasons = PlacementReasons()
    module = graph((1, 4, 4, 8), lambda emit, x: emit(dequantize(x, "dq")))
    fused(module, reasons)
    reason = reasons.of(["dq"])
    assert reason is not None
    assert reason.code == "dtype"


def test_placed_on_the_cpu_by_hand() -> None:
    reasons = PlacementReasons(demands={"c": "cpu"})
    module = graph((1, 4, 4, 8), lambda emit, x: emit(conv(x, 8, "c")))
    assert composites(fused(module, reasons)) == {}
    reason = reasons.of(["c"])
    assert reason is not None
    assert reason.text == "placed on the CPU by hand"


def two_branches(emit, x):
    """Two convolutions with a CPU step between them in the given order only."""
    first = emit(conv(x, 8, "first"))
    real = emit(dequantize(x, "real"))
    second = emit(conv(first, 8, "second"))
    return [second, real]


def test_regions_are_merged_across_an_independent_cpu_operator() -> None:
    module = fused(graph((1, 4, 4, 8), two_branches))
    done = partition(lambda _: (1000, 10), 5, PlacementReasons())(module)
    assert region_nodes(done) == [["first", "second"]]
    assert relax.analysis.well_formed(done) is not False


def test_region_gives_all_that_is_read_outside() -> None:
    def body(emit, x):
        first = emit(conv(x, 8, "first"))
        second = emit(conv(first, 8, "second"))
        return [second, emit(dequantize(first, "real"))]

    module = fused(graph((1, 4, 4, 8), body))
    done = partition(lambda _: (1000, 10), 5, PlacementReasons())(module)
    region = done["npu_region_0"]
    assert [int(e) for e in region.ret_ty.fields[0].shape.values] == [1, 4, 4, 8]
    assert len(region.ret_ty.fields) == 2


def test_a_region_slower_than_the_cpu_goes_back_with_both_times() -> None:
    reasons = PlacementReasons()
    module = fused(
        graph((1, 4, 4, 8), lambda emit, x: emit(dequantize(emit(conv(x, 8, "c")), "d")))
    )
    done = partition(lambda _: (1000, 900), 500, reasons)(module)
    assert region_nodes(done) == []
    calls = [name for binding in bindings_of(done["main"]) if (name := op_name(binding.value))]
    assert calls == ["tilewright.conv2d", "relax.dequantize"]
    reason = reasons.of(["c"])
    assert reason is not None
    assert reason.code == "slower-on-npu"
    assert "1.0 us there, 1.4 us on the NPU" in reason.text
