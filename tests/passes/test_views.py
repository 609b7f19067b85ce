"""Stride arithmetic against numpy, and where tensors lie in small graphs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from tilewright.passes.constants import op_name
from tilewright.passes.strides import Address, dense, permuted, reshaped, sliced
from tilewright.passes.views import ViewPlan, free_views, plan_views

shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def address_of(view: np.ndarray, whole: np.ndarray) -> Address:
    offset = view.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return Address(offset, view.shape, view.strides, view.itemsize)


def seen_through(address: Address, whole: np.ndarray) -> np.ndarray:
    raw = whole.reshape(-1).view(np.uint8)[address.offset :]
    elements = raw[: len(raw) // whole.itemsize * whole.itemsize].view(whole.dtype)
    return np.lib.stride_tricks.as_strided(elements, address.shape, address.strides)


@given(shapes, st.data())
def test_views_see_what_numpy_sees(shape: list[int], data: st.DataObject) -> None:
    whole = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    order = data.draw(st.permutations(range(len(shape))))
    view, address = whole.transpose(order), permuted(dense(shape, 4), order)
    assert address.is_dense == (view.flags.c_contiguous)
    begins = [data.draw(st.integers(0, extent - 1)) for extent in view.shape]
    steps = [data.draw(st.integers(1, 3)) for _ in view.shape]
    window = view[tuple(slice(b, None, s) for b, s in zip(begins, steps, strict=True))]
    address = sliced(address, begins, window.shape, steps)
    np.testing.assert_array_equal(seen_through(address, whole), window)


@given(shapes, shapes, st.data())
def test_reshape_is_a_view_exactly_when_numpy_makes_one(
    shape: list[int], factors: list[int], data: st.DataObject
) -> None:
    whole = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    order = data.draw(st.permutations(range(len(shape))))
    view = whole.transpose(order)
    target = [*[f for f in factors if view.size % f == 0][:1], -1]
    result = view.reshape(target)
    address = reshaped(permuted(dense(shape, 4), order), result.shape)
    assert (address is not None) == np.shares_memory(result, whole)
    if address is not None:
        np.testing.assert_array_equal(seen_through(address, whole), result)


def quantised_image(call: relax.Expr) -> bool:
    """In these graphs a max pool stands for the NPU, which copies too; the rest for the CPU."""
    return op_name(call) in ("relax.nn.max_pool2d", "relax.concat", "relax.strided_slice")


def pool(x: relax.Expr) -> relax.Expr:
    return relax.op.nn.max_pool2d(x, layout="NHWC")


def planned(
    build: Callable[[relax.BlockBuilder, relax.Var], relax.Expr], shape: tuple[int, ...]
) -> tuple[ViewPlan, dict[str, relax.Var]]:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "int8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(builder, x))
        builder.emit_func_output(result)
    function = builder.get()["main"]
    tvm.relax.analysis.well_formed(builder.get())
    variables = [b.var for block in function.body.blocks for b in block.bindings]
    plan = plan_views(function, quantised_image)
    return plan, {var.name: var for var in [x, *variables]}


def test_slice_read_by_the_npu_is_a_view() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return pool(b.emit(relax.op.strided_slice(x, [2, 3], [1, 4], [5, 8]), "part"))

    plan, named = planned(build, (1, 6, 5, 8))
    place = plan.places[named["part"]]
    assert plan.copies == {}
    assert place.base.same_as(named["x"])
    assert place.address == Address(12, (1, 6, 4, 4), (240, 40, 8, 1), 1)


def test_slice_read_by_the_cpu_is_copied_unless_dense() -> None:
    def channels(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.abs(b.emit(relax.op.strided_slice(x, [3], [4], [8]), "part"))

    plan, named = planned(channels, (1, 6, 5, 8))
    copy = plan.copies[named["part"]]
    assert (copy.bytes, copy.cause) == (120, "gv reads dense memory only")

    def rows(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.abs(b.emit(relax.op.strided_slice(x, [1], [2], [5]), "part"))

    plan, named = planned(rows, (1, 6, 5, 8))
    assert plan.copies == {}
    assert plan.places[named["part"]].address.offset == 80


def test_parts_are_written_into_their_concat() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        first = b.emit(pool(x), "first")
        second = b.emit(pool(first), "second")
        return pool(b.emit(relax.op.concat([first, second], 3), "whole"))

    plan, named = planned(build, (1, 6, 5, 8))
    assert plan.copies == {}
    second = plan.places[named["second"]]
    assert second.base.same_as(named["whole"])
    assert second.address == Address(8, (1, 6, 5, 8), (480, 80, 16, 1), 1)


def test_nested_concats_share_one_buffer() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        parts = [b.emit(pool(x), f"part{i}") for i in range(3)]
        inner = b.emit(relax.op.concat(parts[:2], 3), "inner")
        return pool(b.emit(relax.op.concat([parts[2], inner], 3), "outer"))

    plan, named = planned(build, (1, 2, 2, 4))
    assert plan.copies == {}
    for name, offset in [("part2", 0), ("part0", 4), ("part1", 8)]:
        place = plan.places[named[name]]
        assert place.base.same_as(named["outer"])
        assert place.address.offset == offset
        assert place.address.strides[2] == 12


def test_what_cannot_be_written_into_a_concat_is_copied_with_its_cause() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        own = b.emit(relax.op.abs(x), "own")
        return pool(b.emit(relax.op.concat([x, own], 3), "whole"))

    plan, _ = planned(build, (1, 2, 2, 4))
    causes = {var.name: copy.cause for var, copy in plan.copies.items()}
    assert causes == {
        "x": "an input of the graph cannot be written elsewhere",
        "own": "own writes dense memory only",
    }
    assert all(copy.consumer == "whole" for copy in plan.copies.values())


def test_concat_along_the_outer_axis_needs_no_copy_even_on_the_cpu() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        parts = [b.emit(relax.op.abs(x), "a"), b.emit(relax.op.negative(x), "b")]
        return relax.op.abs(b.emit(relax.op.concat(parts, 1), "whole"))

    plan, named = planned(build, (1, 2, 2, 4))
    assert plan.copies == {}
    assert plan.places[named["b"]].address.offset == 16


def test_cpu_concat_wants_dense_parts() -> None:
    """A concat that is a kernel reads its parts like any other kernel."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 7), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            ends = [(0, 3), (3, 7)]
            parts = [
                builder.emit(relax.op.strided_slice(x, [1], [a], [b]), f"part{a}") for a, b in ends
            ]
            result = builder.emit_output(relax.op.concat(parts[::-1], 1))
        builder.emit_func_output(result)
    function = builder.get()["main"]
    assert free_views(function) == set()
    plan = plan_views(function, lambda _: False)
    assert all(plan.places[part].address.is_dense for part in parts)


def test_one_copy_serves_several_views() -> None:
    """Copying the permute once costs 24 bytes; its three flattened readers would cost 72."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        turned = b.emit(relax.op.permute_dims(x, [1, 0]), "turned")
        flats = [b.emit(relax.op.reshape(turned, shape)) for shape in [(24,), (3, 8), (2, 12)]]
        return relax.Tuple([b.emit(relax.op.abs(flat)) for flat in flats])

    plan, _ = planned(build, (4, 6))
    assert {var.name: copy.bytes for var, copy in plan.copies.items()} == {"turned": 24}


def test_what_a_reshape_cannot_see_through_is_copied_before_it() -> None:
    """A copied permute is a kernel of its own; a copied reshape would be none."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        turned = b.emit(relax.op.permute_dims(x, [1, 0]), "turned")
        return b.emit(relax.op.reshape(turned, (24,)), "flat")

    plan, named = planned(build, (4, 6))
    assert list(plan.copies) == [named["turned"]]
    copy = plan.copies[named["turned"]]
    assert copy.cause == "flat joins axes that do not follow each other in memory"
    assert plan.places[named["flat"]].base.same_as(named["turned"])


def test_the_smaller_of_two_places_is_copied() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        half = b.emit(relax.op.strided_slice(x, [3], [0], [4]), "half")
        return relax.op.abs(b.emit(relax.op.strided_slice(half, [1], [1], [3]), "part"))

    plan, _ = planned(build, (1, 6, 5, 8))
    assert {var.name: copy.bytes for var, copy in plan.copies.items()} == {"part": 40}


def test_a_kernel_that_copies_reads_dense_memory_like_any_other() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        turned = b.emit(relax.op.permute_dims(x, [1, 0]), "turned")
        return relax.op.abs(b.emit(relax.op.permute_dims(turned, [0, 1]), "same"))

    plan, _ = planned(build, (4, 6))
    assert {var.name: copy.cause for var, copy in plan.copies.items()} == {
        "turned": "gv reads dense memory only"
    }


def test_reshaped_result_is_dense_because_its_source_is_copied() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        turned = b.emit(relax.op.permute_dims(x, [0, 3, 1, 2]), "turned")
        return relax.op.reshape(turned, (2, 4, 5))

    plan, _ = planned(build, (2, 1, 5, 4))
    assert {var.name: copy.cause for var, copy in plan.copies.items()} == {
        "turned": "results are dense"
    }
    assert all(plan.places[var].address.is_dense for var in plan.places)


def test_dense_part_of_a_strided_view_is_free_with_it() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        turned = b.emit(relax.op.permute_dims(x, [1, 0]), "turned")
        return relax.op.abs(b.emit(relax.op.strided_slice(turned, [1], [2], [3]), "row"))

    plan, named = planned(build, (4, 6))
    assert plan.copies == {}
    assert plan.places[named["row"]].address == Address(12, (6, 1), (1, 6), 1)


def test_result_that_is_a_strided_view_is_copied() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.permute_dims(x, [1, 0])

    plan, _ = planned(build, (4, 6))
    assert [copy.cause for copy in plan.copies.values()] == ["results are dense"]
