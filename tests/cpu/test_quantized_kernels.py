"""Every quantised CPU operator against the numpy statement of its arithmetic, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import reference
from tests.cpu.run_kernels import run_graph
from tests.reference import Quantization
from tilewright.passes.constants import constant
from tilewright.passes.quantized_ops import call
from tilewright.targets.errors import ModelError

Array = NDArray[Any]
DTYPES = ("int8", "uint8")
CHANNELS = (1, 3, 17, 130)


def values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def activations(dtype: str, scale: float = 0.05, zero: int | None = None) -> Quantization:
    chosen = zero if zero is not None else {"int8": -7, "uint8": 117}[dtype]
    return Quantization(np.float32(scale), chosen, dtype)


def limits(dtype: str) -> dict[str, int]:
    info = np.iinfo(dtype)
    return {"clip_low": int(info.min), "clip_high": int(info.max)}


def nchw(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def nhwc(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def convolution_case(
    x: Array,
    w: Array,
    x_q: Quantization,
    w_q: Quantization,
    to: Quantization,
    cuts: tuple[float, ...] = (),
    **geometry: Any,
) -> tuple[Array, Array]:
    """(ours, reference's) for NHWC x and HWIO w."""
    outputs = w.shape[3]
    bias = np.random.default_rng(5).integers(-4000, 4000, outputs).astype(np.int32)
    multiplier = (np.float32(x_q.scale) * np.float32(w_q.scale) * np.ones(outputs)).astype(
        np.float32
    )
    attributes = {
        "data_layout": "NHWC",
        "kernel_layout": "HWIO",
        "strides": list(geometry.get("strides", (1, 1))),
        "padding": list(geometry.get("pads", (0, 0, 0, 0))),
        "dilation": list(geometry.get("dilations", (1, 1))),
        "groups": geometry.get("groups", 1),
        "input_zero": x_q.zero,
        "weight_zero": w_q.zero,
        "output_scale": float(to.scale),
        "output_zero": to.zero,
        "requantize": "two_step",
        "out_dtype": to.dtype,
        **limits(to.dtype),
    }

    def build(_builder: Any, x: Any) -> Any:
        operands = [x, constant(w), constant(bias), constant(multiplier)]
        return call("conv2d", operands, **attributes)

    ours = run_graph(build, [x], cuts)
    expected = reference.conv2d(nchw(x), x_q, w.transpose(3, 2, 0, 1), w_q, bias, to, **geometry)
    return ours, nhwc(expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", CHANNELS)
def test_convolution(dtype: str, channels: int) -> None:
    x = values((1, 9, 7, channels), dtype)
    w = values((3, 3, channels, channels + 2), "int8", 1)
    w_q = Quantization(np.linspace(0.001, 0.01, channels + 2).astype(np.float32), 0, "int8")
    to = activations(dtype, 0.9 * channels**0.5, 3)
    ours, expected = convolution_case(x, w, activations(dtype), w_q, to, pads=(1, 1, 1, 1))
    np.testing.assert_array_equal(ours, expected)
    assert len(np.unique(ours)) > 8


@pytest.mark.parametrize(
    "geometry",
    [
        {"strides": (2, 2), "pads": (0, 1, 1, 0)},
        {"dilations": (2, 1), "pads": (2, 1, 2, 1)},
        {"groups": 3},
        {"strides": (1, 3), "groups": 3, "pads": (3, 0, 0, 2)},
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_convolution_geometry(geometry: dict[str, Any], dtype: str) -> None:
    x = values((2, 8, 11, 9), dtype)
    inputs = 9 // geometry.get("groups", 1)
    w = values((3, 2, inputs, 6), "uint8", 1)
    w_q = Quantization(np.float32(0.004), 131, "uint8")
    ours, expected = convolution_case(
        x, w, activations(dtype), w_q, activations(dtype, 1.7), **geometry
    )
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("cuts", [(), (0.5,), (0.1, 0.13, 0.9)])
@pytest.mark.parametrize("channels", CHANNELS)
def test_depthwise_in_any_split_of_tasks(channels: int, cuts: tuple[float, ...]) -> None:
    channels = max(channels, 2)
    x = values((1, 7, 9, channels), "int8")
    w = values((3, 3, 1, channels), "int8", 1)
    w_q = Quantization(np.float32(0.01), 0, "int8")
    ours, expected = convolution_case(
        x, w, activations("int8"), w_q, activations("int8", 0.4), cuts,
        groups=channels, pads=(1, 1, 1, 1), strides=(2, 1),
    )  # fmt: skip
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows,inner,columns", [(1, 1, 1), (1, 640, 128), (5, 17, 3), (7, 130, 37)])
def test_dense(dtype: str, rows: int, inner: int, columns: int) -> None:
    x, w = values((rows, inner), dtype), values((inner, columns), "int8", 1)
    x_q, w_q = activations(dtype), Quantization(np.float32(0.01), 0, "int8")
    to = activations(dtype, 0.7 * inner**0.5)
    bias = np.arange(columns, dtype=np.int32) * 100
    multiplier = np.full(columns, np.float32(x_q.scale) * np.float32(w_q.scale), np.float32)
    attributes = {
        "input_zero": x_q.zero, "weight_zero": 0, "output_scale": float(to.scale),
        "output_zero": to.zero, "requantize": "two_step", "out_dtype": dtype, **limits(dtype),
    }  # fmt: skip

    def build(_builder: Any, x: Any) -> Any:
        return call("dense", [x, constant(w), constant(bias), constant(multiplier)], **attributes)

    ours = run_graph(build, [x], (0.4,))
    np.testing.assert_array_equal(ours, reference.dense(x, x_q, w, w_q, bias, to))


@pytest.mark.parametrize("dtype", DTYPES)
def test_product_of_activations(dtype: str) -> None:
    a, b = values((2, 3, 5, 19), dtype), values((3, 19, 21), dtype, 1)
    a_q, b_q, to = activations(dtype), activations(dtype, 0.02, 5), activations(dtype, 0.5)
    multiplier = float(np.float32(a_q.scale) * np.float32(b_q.scale))
    attributes = {
        "a_zero": a_q.zero, "b_zero": b_q.zero, "multiplier": multiplier,
        "output_scale": float(to.scale), "output_zero": to.zero, "requantize": "two_step",
        "out_dtype": dtype, **limits(dtype),
    }  # fmt: skip
    ours = run_graph(lambda _builder, a, b: call("matmul", [a, b], **attributes), [a, b])
    expected = reference.dense(a, a_q, b, b_q, np.zeros(21, np.int32), to)
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("kind", ["add", "subtract", "multiply"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("b_shape", [(1, 16, 16, 37), (1, 1, 1, 37), (37,), (1,)])
def test_binary(kind: str, dtype: str, b_shape: tuple[int, ...]) -> None:
    a, b = values((1, 16, 16, 37), dtype), values(b_shape, dtype, 1)
    a_q, b_q = activations(dtype, 0.0317), activations(dtype, 0.0789, 11)
    to = activations(dtype, 0.0713, -1 if dtype == "int8" else 9)
    attributes = {
        "a_scale": float(a_q.scale), "a_zero": a_q.zero, "b_scale": float(b_q.scale),
        "b_zero": b_q.zero, "output_scale": float(to.scale), "output_zero": to.zero,
        "out_dtype": dtype, **limits(dtype),
    }  # fmt: skip
    ours = run_graph(lambda _builder, a, b: call(kind, [a, b], **attributes), [a, b])
    operation = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}[kind]
    np.testing.assert_array_equal(ours, reference.binary(operation, a, a_q, b, b_q, to))


def test_weights_computed_at_run_time_are_refused() -> None:
    attributes = {
        "input_zero": 0, "weight_zero": 0, "output_scale": 1.0, "output_zero": 0,
        "requantize": "two_step", "out_dtype": "int8", **limits("int8"),
    }  # fmt: skip
    rest = [constant(np.zeros(4, np.int32)), constant(np.ones(4, np.float32))]
    with pytest.raises(ModelError, match=r"its int8 weights are computed at run time"):
        run_graph(
            lambda _builder, x, w: call("dense", [x, w, *rest], **attributes),
            [values((2, 3), "int8"), values((3, 4), "int8")],
        )


def test_sum_of_products_is_not_contracted() -> None:
    """All 65,536 pairs, with scales where a fused multiply-add would round otherwise."""
    a, b = (
        np.ascontiguousarray(side, dtype=np.uint8).reshape(256, 256)
        for side in np.meshgrid(np.arange(256), np.arange(256))
    )
    a_q, b_q = activations("uint8", 0.1, 0), activations("uint8", 0.3, 1)
    to = activations("uint8", 0.4, 0)
    attributes = {
        "a_scale": float(a_q.scale), "a_zero": 0, "b_scale": float(b_q.scale), "b_zero": 1,
        "output_scale": float(to.scale), "output_zero": 0, "out_dtype": "uint8",
        **limits("uint8"),
    }  # fmt: skip
    ours = run_graph(lambda _builder, a, b: call("add", [a, b], **attributes), [a, b])
    expected = reference.binary(np.add, a, a_q, b, b_q, to)
    one = a.astype(np.float32) * a_q.scale
    fused = np.float32(one.astype(np.float64) + (b.astype(np.float64) - 1) * np.float64(b_q.scale))
    assert np.any(fused != one + (b.astype(np.float32) - 1) * b_q.scale), "the case tells nothing"
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lookup(dtype: str) -> None:
    x, table = values((3, 5, 41), dtype), values((256,), dtype, 2)
    ours = run_graph(lambda _builder, x: call("lookup", [x, constant(table)], kind="sigmoid"), [x])
    np.testing.assert_array_equal(ours, reference.lookup(x, table))


POOLS = [
    ((2, 2), (2, 2), (0, 0, 0, 0)),
    ((3, 3), (1, 2), (1, 1, 1, 1)),
    ((7, 5), (1, 1), (0, 0, 0, 0)),
    ((3, 2), (2, 1), (2, 0, 1, 1)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel,strides,pads", POOLS)
def test_max_pool(dtype: str, kernel: Any, strides: Any, pads: Any) -> None:
    x = values((2, 7, 5, 19), dtype)
    attributes = {
        "data_layout": "NHWC", "kernel": list(kernel), "strides": list(strides),
        "padding": list(pads), **limits(dtype),
    }  # fmt: skip
    ours = run_graph(lambda _builder, x: call("max_pool2d", [x], **attributes), [x])
    expected = reference.max_pool(nchw(x), kernel, strides, pads)
    np.testing.assert_array_equal(ours, nhwc(expected))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("output_scale", [0.05, 0.0123])
@pytest.mark.parametrize("kernel,strides,pads", POOLS)
def test_average_pool(
    dtype: str, include: bool, output_scale: float, kernel: Any, strides: Any, pads: Any
) -> None:
    x = values((1, 7, 5, 19), dtype)
    x_q, to = activations(dtype), activations(dtype, output_scale, 4)
    attributes = {
        "data_layout": "NHWC", "kernel": list(kernel), "strides": list(strides),
        "padding": list(pads), "count_include_pad": include,
        "input_scale": float(x_q.scale), "input_zero": x_q.zero,
        "output_scale": float(to.scale), "output_zero": to.zero, **limits(dtype),
    }  # fmt: skip
    ours = run_graph(lambda _builder, x: call("avg_pool2d", [x], **attributes), [x])
    expected = reference.average_pool(nchw(x), x_q, to, kernel, strides, pads, include)
    np.testing.assert_array_equal(ours, nhwc(expected))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("classes", [2, 10, 333])
def test_softmax(dtype: str, axis: int, classes: int) -> None:
    shape = (3, classes) if axis == -1 else (3, classes, 5)
    x = values(shape, dtype)
    x_q, to = activations(dtype, 0.11), Quantization(np.float32(1 / 256), -128, "int8")
    attributes = {
        "axis": axis, "input_scale": float(x_q.scale), "output_scale": float(to.scale),
        "output_zero": to.zero, "out_dtype": "int8", **limits("int8"),
    }  # fmt: skip
    ours = run_graph(lambda _builder, x: call("softmax", [x], **attributes), [x], (0.5,))
    np.testing.assert_array_equal(ours, reference.softmax(x, x_q, to, axis))
