# ruff: noqa: N805 -- TVMScript functions take tensors, not self
"""convert_layout, sink_permutes, cancel_permutes and their arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812

from tests.qdq_models import QdqModel
from tests.relax_in_numpy import run_relax
from tilewright.compiler.frontend import import_to_relax, prepare
from tilewright.compiler.pipeline import graph_passes
from tilewright.passes.cancel_permutes import cancel_permutes
from tilewright.passes.constants import op_name
from tilewright.passes.convert_layout import convert_layout
from tilewright.passes.fold_permute_into_weights import row_order
from tilewright.passes.layouts import (
    inverse_order,
    is_identity,
    join_orders,
    moves_no_element,
    order_without,
)
from tilewright.passes.sink_permutes import sink_permutes

orders = st.integers(1, 5).flatmap(lambda rank: st.permutations(range(rank)))
shapes = st.lists(st.integers(1, 3), min_size=5, max_size=5)


@given(orders, st.randoms(use_true_random=False), shapes)
def test_join_orders_does_both(inner: list[int], random: Any, shape: list[int]) -> None:
    x = np.arange(np.prod(shape[: len(inner)])).reshape(shape[: len(inner)])
    outer = random.sample(range(len(inner)), len(inner))
    twice = x.transpose(inner).transpose(outer)
    np.testing.assert_array_equal(x.transpose(join_orders(inner, outer)), twice)


@given(orders)
def test_inverse_order_undoes(order: list[int]) -> None:
    assert is_identity(join_orders(order, inverse_order(order)))


@given(orders, shapes)
def test_moves_no_element_is_what_memory_says(order: list[int], shape: list[int]) -> None:
    x = np.arange(np.prod(shape[: len(order)])).reshape(shape[: len(order)])
    stays = x.transpose(order).reshape(-1).tolist() == x.reshape(-1).tolist()
    assert moves_no_element(order, x.shape) <= stays
    if all(extent > 1 for extent in x.shape):
        assert moves_no_element(order, x.shape) == stays


@given(orders, st.randoms(use_true_random=False), shapes)
def test_order_without_reduced_axes(order: list[int], random: Any, shape: list[int]) -> None:
    x = np.random.default_rng(0).integers(0, 99, shape[: len(order)])
    dropped = random.sample(range(len(order)), random.randrange(len(order)))
    permuted_axes = tuple(order.index(axis) for axis in dropped)
    expected = x.transpose(order).sum(axis=permuted_axes)
    left = order_without(order, dropped)
    np.testing.assert_array_equal(x.sum(axis=tuple(dropped)).transpose(left), expected)


@given(orders, shapes)
def test_row_order_follows_the_permute(order: list[int], shape: list[int]) -> None:
    x = np.random.default_rng(0).integers(0, 99, shape[: len(order)])
    weight = np.random.default_rng(1).integers(0, 99, x.size)
    permuted = x.transpose(order)
    rows = row_order(permuted.shape, order)
    assert x.reshape(-1) @ weight[rows] == permuted.reshape(-1) @ weight


def test_convolution_is_converted_between_permutes() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")
        ) -> R.Tensor((1, 4, 6, 6), "float32"):
            with R.dataflow():
                y = R.nn.conv2d(x, w)
                R.output(y)
            return y

    @I.ir_module
    class After:
        @R.function
        def main(
            x: R.Tensor((1, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")
        ) -> R.Tensor((1, 4, 6, 6), "float32"):
            with R.dataflow():
                nhwc = R.permute_dims(x, axes=[0, 2, 3, 1])
                hwio = R.permute_dims(w, axes=[2, 3, 1, 0])
                z = R.nn.conv2d(nhwc, hwio, data_layout="NHWC", kernel_layout="HWIO")
                y = R.permute_dims(z, axes=[0, 3, 1, 2])
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(convert_layout(Before), After)
    tvm.ir.assert_structural_equal(convert_layout(After), After)


def test_permute_sinks_below_element_wise_operators() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, 8, 8, 3), "float32"), c: R.Tensor((1, 8, 8, 3), "float32")
        ) -> R.Tensor((1, 3, 8, 8), "float32"):
            with R.dataflow():
                a = R.permute_dims(x, axes=[0, 3, 1, 2])
                b = R.nn.relu(a)
                d = R.permute_dims(c, axes=[0, 3, 1, 2])
                y = R.add(b, d)
                R.output(y)
            return y

    @I.ir_module
    class After:
        @R.function
        def main(
            x: R.Tensor((1, 8, 8, 3), "float32"), c: R.Tensor((1, 8, 8, 3), "float32")
        ) -> R.Tensor((1, 3, 8, 8), "float32"):
            with R.dataflow():
                b = R.nn.relu(x)
                z = R.add(b, c)
                y = R.permute_dims(z, axes=[0, 3, 1, 2])
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(sink_permutes(Before), After)


def test_axes_are_renamed_on_the_way() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 4, 5, 3), "float32")) -> R.Tensor((1, 7), "float32"):
            with R.dataflow():
                a = R.permute_dims(x, axes=[0, 3, 1, 2])
                b = R.nn.pad(a, pad_width=[0, 0, 1, 3, 0, 0, 2, 0])
                c = R.concat((b, b), axis=2)
                d = R.strided_slice(c, axes=[3], begin=[1], end=[5])
                y = R.mean(d, axis=[2, 3])
                R.output(y)
            return y

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((1, 4, 5, 3), "float32")) -> R.Tensor((1, 7), "float32"):
            with R.dataflow():
                b = R.nn.pad(x, pad_width=[0, 0, 0, 0, 2, 0, 1, 3])
                c = R.concat((b, b), axis=1)
                d = R.strided_slice(c, axes=[2], begin=[1], end=[5])
                y = R.mean(d, axis=[1, 2])
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(cancel_permutes(sink_permutes(Before)), After)


def test_permute_stays_where_passing_would_add_another() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, 8, 8, 3), "float32"), c: R.Tensor((1, 3, 8, 8), "float32")
        ) -> R.Tensor((1, 3, 8, 8), "float32"):
            with R.dataflow():
                a = R.permute_dims(x, axes=[0, 3, 1, 2])
                y = R.add(a, c)
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(sink_permutes(Before), Before)


def test_inverse_pair_disappears_and_unit_axes_become_a_reshape() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 8, 8, 3), "int8"), s: R.Tensor((1, 8, 8, 1), "int8")) -> R.Tuple(
            R.Tensor((1, 8, 8, 3), "int8"), R.Tensor((1, 1, 8, 8), "int8")
        ):
            with R.dataflow():
                a = R.permute_dims(x, axes=[0, 3, 1, 2])
                b = R.permute_dims(a, axes=[0, 2, 3, 1])
                c = R.clip(b, 0, 5)
                d = R.permute_dims(s, axes=[0, 3, 1, 2])
                y = (c, d)
                R.output(y)
            return y

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((1, 8, 8, 3), "int8"), s: R.Tensor((1, 8, 8, 1), "int8")) -> R.Tuple(
            R.Tensor((1, 8, 8, 3), "int8"), R.Tensor((1, 1, 8, 8), "int8")
        ):
            with R.dataflow():
                c = R.clip(x, 0, 5)
                d = R.reshape(s, (1, 1, 8, 8))
                y = (c, d)
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(cancel_permutes(Before), After)


def test_flattened_nchw_image_costs_one_permute_at_the_input_only() -> None:
    builder = QdqModel()
    x = builder.input((1, 3, 6, 5), 0.05, 3)
    w = builder.weight((8, 3, 3, 3), 0.01)
    y = builder.quantize(builder.node("Conv", [x, w]), 0.3, 0)
    y = builder.node("Flatten", [builder.dequantize(y, 0.3, 0, "int8")])
    builder.output(builder.node("MatMul", [y, builder.weight((96, 4), 0.02)]), 3, 0)
    module = import_to_relax(prepare(builder.model()))
    plain = module
    for graph_pass in graph_passes():
        module = graph_pass(module)
    found = [op_name(b.value) for block in module["main"].body.blocks for b in block.bindings]
    assert found == [
        "relax.permute_dims",
        "tilewright.conv2d",
        "relax.reshape",
        "tilewright.dense",
    ]
    inputs = builder.random_inputs()
    difference = run_relax(module, inputs)[0].astype(int) - run_relax(plain, inputs)[0]
    assert np.abs(difference).max() <= 1
