"""Regions as plain operators: views where they can stand, one copy where they cannot."""

from __future__ import annotations

import tvm
from tvm import relax

from tests.quantised_graphs import add, conv, dequantize, graph, lookup
from tilewright.compiler.npu.region import RegionLowering
from tilewright.passes.fuse_npu_operators import fuse_npu_operators
from tilewright.passes.partition import partition
from tilewright.passes.placement_reasons import PlacementReasons
from tilewright.targets.description import load_target
from tilewright.targets.operators import Conv2d, Copy, Elementwise, Tensor

NPU = load_target("mcu-16").npu


def lowered(module: tvm.IRModule) -> RegionLowering:
    module = fuse_npu_operators(NPU, PlacementReasons())(module)
    module = partition(lambda _: (10**9, 1), 5, PlacementReasons())(module)
    lowering = RegionLowering(module["npu_region_0"], "npu_region_0")
    lowering.region = lowering.lower()
    return lowering


def test_a_chain_runs_from_input_to_output_through_its_own_buffer() -> None:
    def body(emit, x):
        return emit(dequantize(emit(conv(emit(conv(x, 8, "a")), 4, "b")), "end"))

    region = lowered(graph((1, 6, 5, 3), body)).region
    first, second = region.operators
    assert (first.name, second.name) == ("a", "b")
    assert first.input == Tensor("in0", 6, 5, 3, "int8", "in0")
    assert first.output.buffer == second.input.buffer not in (*region.inputs, *region.outputs)
    assert second.output.buffer == "out0"
    assert region.buffer_bytes["out0"] == 6 * 5 * 4


def test_a_lookup_rides_on_its_convolution() -> None:
    def body(emit, x):
        return emit(dequantize(emit(lookup(emit(conv(x, 8, "a")), "act")), "end"))

    (operator,) = lowered(graph((1, 4, 4, 8), body)).region.operators
    assert isinstance(operator, Conv2d)
    assert operator.lookup is not None
    assert list(operator.lookup[:2]) == [255, 254]
    assert operator.onnx_nodes == ("a", "act")


def test_concat_parts_are_written_in_place() -> None:
    def body(emit, x):
        a, b = emit(conv(x, 8, "a")), emit(conv(x, 4, "b"))
        joined = emit(relax.op.concat([a, b], axis=3))
        return emit(dequantize(emit(conv(joined, 8, "c")), "end"))

    lowering = lowered(graph((1, 4, 4, 8), body))
    a, b, c = lowering.region.operators
    assert lowering.copies == []
    assert a.output.buffer == b.output.buffer == c.input.buffer
    assert (a.output.offset, b.output.offset) == (0, 8)
    assert a.output.pixel_pitch == b.output.pixel_pitch == 12


def test_a_concat_of_an_input_copies_it_once_and_says_so() -> None:
    def body(emit, x):
        joined = emit(relax.op.concat([x, emit(conv(x, 4, "a"))], axis=3))
        return emit(dequantize(emit(conv(joined, 8, "c")), "end"))

    lowering = lowered(graph((1, 4, 4, 8), body))
    copies = [op for op in lowering.region.operators if isinstance(op, Copy)]
    assert len(copies) == len(lowering.copies) == 1
    assert lowering.copies[0].bytes == 4 * 4 * 8
    assert lowering.copies[0].cause == "an input of the graph cannot be written elsewhere"


def test_a_slice_is_its_source_with_an_offset() -> None:
    def body(emit, x):
        wide = emit(conv(x, 8, "wide"))
        part = emit(relax.op.strided_slice(wide, [1, 2, 3], [1, 0, 4], [4, 5, 8], [1, 2, 1]))
        return emit(dequantize(emit(conv(part, 8, "c")), "end"))

    wide, c = lowered(graph((1, 6, 5, 3), body)).region.operators
    assert c.input.buffer == wide.output.buffer
    assert (c.input.height, c.input.width, c.input.channels) == (3, 3, 4)
    assert c.input.offset == 1 * 5 * 8 + 4
    assert (c.input.pitch_y, c.input.pitch_x) == (5 * 8, 2 * 8)


def test_a_reshape_of_a_slice_needs_one_copy() -> None:
    def body(emit, x):
        wide = emit(conv(x, 8, "wide"))
        part = emit(relax.op.strided_slice(wide, [3], [4], [8]))
        flat = emit(relax.op.reshape(part, (1, 1, 1, 64)))
        return emit(dequantize(emit(lookup(flat, "act")), "end"))

    lowering = lowered(graph((1, 4, 4, 3), body))
    _, copy, table = lowering.region.operators
    assert isinstance(copy, Copy)
    assert table.input == Tensor(copy.output.name, 1, 1, 64, "int8", copy.output.buffer)
    assert lowering.copies[0].bytes == 64


def test_addition_broadcasts_one_pixel_from_either_side() -> None:
    def body(emit, x):
        pixel = emit(relax.op.strided_slice(x, [1, 2], [0, 0], [1, 1]))
        return emit(dequantize(emit(add(pixel, emit(conv(x, 3, "a")), "sum")), "end"))

    *_, total = lowered(graph((1, 4, 4, 3), body)).region.operators
    assert isinstance(total, Elementwise)
    assert (total.a.height, total.b.height) == (4, 1)
    assert (total.a_scale, total.b_scale) == (0.25, 0.5)


def test_two_outputs_of_which_one_is_read_inside() -> None:
    def body(emit, x):
        first = emit(conv(x, 8, "first"))
        second = emit(conv(first, 8, "second"))
        return [emit(dequantize(first, "d1")), emit(dequantize(second, "d2"))]

    first, second = lowered(graph((1, 4, 4, 8), body)).region.operators
    assert (first.output.buffer, second.output.buffer) == ("out0", "out1")
    assert second.input.buffer == "out0"


def test_a_batch_is_one_operator_an_image() -> None:
    def body(emit, x):
        return emit(dequantize(emit(conv(x, 8, "a")), "end"))

    one, two = lowered(graph((2, 4, 4, 3), body)).region.operators
    assert (one.name, two.name) == ("a[0]", "a[1]")
    assert (two.input.offset, two.output.offset) == (4 * 4 * 3, 4 * 4 * 8)


def test_a_reshaped_result_is_computed_in_the_output() -> None:
    def body(emit, x):
        flat = emit(relax.op.reshape(emit(conv(x, 8, "a")), (1, 128)))
        return emit(dequantize(flat, "end"))

    lowering = lowered(graph((1, 4, 4, 3), body))
    assert [operator.output.buffer for operator in lowering.region.operators] == ["out0"]
    assert lowering.copies == []


def test_a_window_that_never_moves_has_stride_one() -> None:
    def body(emit, x):
        return emit(dequantize(emit(conv(x, 8, "a", strides=[9, 9])), "end"))

    (operator,) = lowered(graph((1, 4, 4, 3), body)).region.operators
    assert operator.strides == (1, 1)


def test_a_result_that_is_part_of_another_is_handed_over_by_one_copy() -> None:
    def body(emit, x):
        whole = emit(conv(x, 8, "a"))
        rows = emit(relax.op.strided_slice(whole, [1], [1], [3]))
        return [emit(lookup(rows, "t")), rows]

    lowering = RegionLowering(regional(graph((1, 4, 4, 3), body)), "npu_region_0")
    region = lowering.lower()
    copies = [operator for operator in region.operators if isinstance(operator, Copy)]
    assert [copy.output.buffer for copy in copies] == ["out1"]
    assert [copy.bytes for copy in lowering.copies] == [2 * 4 * 8]


def regional(module: tvm.IRModule) -> relax.Function:
    """The one region of a module that runs on the NPU as a whole."""
    module = fuse_npu_operators(NPU, PlacementReasons())(module)
    return partition(lambda _: (10**9, 1), 5, PlacementReasons())(module)["npu_region_0"]
