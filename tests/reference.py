"""The int8 arithmetic of every operator, in numpy, and a QDQ model run by it.

This file states what NPU, CPU kernels and every board must compute to the bit. It knows nothing
of the compiler. real = scale * (quantised - zero); scales are the model's float32; rounding is
half to even; images are NCHW, weights OIHW.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from numpy.typing import NDArray

Array = NDArray[Any]
UNBOUNDED = (-math.inf, math.inf)


@dataclass(frozen=True)
class Quantization:
    """Scale (float32, a number or one a channel), zero point and numpy dtype."""

    scale: Array
    zero: int
    dtype: str

    def saturated(self, steps: Array) -> Array:
        limits = np.iinfo(self.dtype)
        return np.clip(steps, limits.min, limits.max).astype(self.dtype)


# --- Arithmetic --------------------------------------------------------------------------------


def quantize(real: Array, to: Quantization) -> Array:
    """QuantizeLinear: divided in float32, rounded, shifted, saturated."""
    return to.saturated(np.rint(np.float32(real) / np.float32(to.scale)) + to.zero)


def dequantize(values: Array, of: Quantization) -> Array:
    """DequantizeLinear: an exact difference times a float32."""
    return (values.astype(np.int64) - of.zero).astype(np.float32) * np.float32(of.scale)


def requantize(
    accumulator: Array, multiplier: Array, to: Quantization, bounds: tuple[float, float]
) -> Array:
    """int32 to real by one float32 multiplication, clipped in float32, then QuantizeLinear."""
    assert np.abs(accumulator).max(initial=0) < 2**31
    real = accumulator.astype(np.int32).astype(np.float32) * multiplier.astype(np.float32)
    return quantize(np.clip(real, np.float32(bounds[0]), np.float32(bounds[1])), to)


def requantize_once(accumulator: Array, multiplier: Array, to: Quantization) -> Array:
    """QLinear*: one float32 factor, float32(float32(x scale * w scale) / y scale)."""
    steps = accumulator.astype(np.int32).astype(np.float32) * multiplier.astype(np.float32)
    return to.saturated(np.rint(steps) + to.zero)


def windows(x: Array, kernel: tuple[int, int], strides: Any, dilations: Any) -> Array:
    """Every window of an already padded NCHW image: [N, C, rows, columns, kh, kw]."""
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(2, 3))
    return view[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]


def padded(x: Array, pads: Any, value: float) -> Array:
    """The image with `pads` top, left, bottom, right of `value`."""
    top, left, bottom, right = pads
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def convolution_sum(
    x: Array,
    x_zero: int,
    w: Array,
    w_zero: int,
    *,
    strides: Any = (1, 1),
    pads: Any = (0, 0, 0, 0),
    dilations: Any = (1, 1),
    groups: int = 1,
) -> Array:
    """sum (x - x_zero) * (w - w_zero), padding worth x_zero; exact, since float64 holds 2**53."""
    image = padded(x.astype(np.float64) - x_zero, pads, 0)
    taps = windows(image, w.shape[2:], strides, dilations)
    weight = w.astype(np.float64) - w_zero
    inputs, outputs = w.shape[1], w.shape[0] // groups
    sums = [
        np.einsum(
            "nchwij,ocij->nohw",
            taps[:, group * inputs : (group + 1) * inputs],
            weight[group * outputs : (group + 1) * outputs],
            optimize=True,
        )
        for group in range(groups)
    ]
    return np.concatenate(sums, axis=1).astype(np.int64)


def conv2d(
    x: Array,
    x_q: Quantization,
    w: Array,
    w_q: Quantization,
    bias: Array,
    to: Quantization,
    bounds: tuple[float, float] = UNBOUNDED,
    **geometry: Any,
) -> Array:
    """Convolution of any kind; multiplier[c] = float32(x scale * weight scale[c])."""
    sums = convolution_sum(x, x_q.zero, w, w_q.zero, **geometry)
    multiplier = np.float32(x_q.scale) * np.float32(w_q.scale).reshape(-1, 1, 1)
    return requantize(sums + bias.astype(np.int64).reshape(-1, 1, 1), multiplier, to, bounds)


def dense(
    x: Array,
    x_q: Quantization,
    w: Array,
    w_q: Quantization,
    bias: Array,
    to: Quantization,
    bounds: tuple[float, float] = UNBOUNDED,
) -> Array:
    """x [..., K] times w [K, N]; also a product of two activations, without bias."""
    sums = (x.astype(np.float64) - x_q.zero) @ (w.astype(np.float64) - w_q.zero)
    multiplier = np.float32(x_q.scale) * np.float32(w_q.scale)
    return requantize(sums.astype(np.int64) + bias.astype(np.int64), multiplier, to, bounds)


def binary(
    operation: Callable[[Array, Array], Array],
    a: Array,
    a_q: Quantization,
    b: Array,
    b_q: Quantization,
    to: Quantization,
    bounds: tuple[float, float] = UNBOUNDED,
) -> Array:
    """Add, subtract, multiply: dequantise both, operate, quantise, all in float32."""
    real = operation(dequantize(a, a_q), dequantize(b, b_q))
    return quantize(np.clip(real, np.float32(bounds[0]), np.float32(bounds[1])), to)


def average_pool(
    x: Array,
    x_q: Quantization,
    to: Quantization,
    kernel: tuple[int, int],
    strides: Any = (1, 1),
    pads: Any = (0, 0, 0, 0),
    count_include_pad: bool = False,
) -> Array:
    """y = rint(sum(x - x_zero) * x_scale / (count * y_scale)) + y_zero, an exact rational."""
    sums = windows(padded(x.astype(np.int64) - x_q.zero, pads, 0), kernel, strides, (1, 1))
    inside = windows(
        padded(np.ones_like(x, np.int64), pads, int(count_include_pad)), kernel, strides, (1, 1)
    )
    pairs = np.stack([sums.sum(axis=(4, 5)), inside.sum(axis=(4, 5))])
    distinct, place = np.unique(pairs.reshape(2, -1), axis=1, return_inverse=True)
    ratio = Fraction(float(x_q.scale)) / Fraction(float(to.scale))
    # Python rounds a Fraction half to even.
    steps = np.array([round(Fraction(int(s), int(n)) * ratio) for s, n in distinct.T])
    return to.saturated(steps[place.reshape(-1)].reshape(pairs.shape[1:]) + to.zero)


def max_pool(
    x: Array, kernel: tuple[int, int], strides: Any = (1, 1), pads: Any = (0,) * 4
) -> Array:
    """Padding never wins."""
    lowest = np.iinfo(x.dtype).min
    return np.asarray(windows(padded(x, pads, lowest), kernel, strides, (1, 1)).max(axis=(4, 5)))


def softmax(x: Array, x_q: Quantization, to: Quantization, axis: int = -1) -> Array:
    """Float64: exp of the distance below the largest, summed in index order."""
    x = np.moveaxis(x, axis, -1)
    below = x.max(axis=-1, keepdims=True).astype(np.int64) - x
    powers = np.exp(-np.float64(np.float32(x_q.scale)) * below)
    total = np.cumsum(powers, axis=-1)[..., -1:]
    steps = np.rint((powers / total) / np.float64(np.float32(to.scale))) + to.zero
    return np.moveaxis(to.saturated(steps), -1, axis)


def activation_table(
    function: Callable[[Array], Array], x_q: Quantization, to: Quantization
) -> Array:
    """The function at every raw byte, in float64, of the float32 number it stands for."""
    values = np.arange(256, dtype=np.uint8).view(x_q.dtype).astype(np.int64)
    numbers = (values - x_q.zero).astype(np.float32) * np.float32(x_q.scale)
    real = function(numbers.astype(np.float64))
    return to.saturated(np.rint(real / np.float64(np.float32(to.scale))) + to.zero)


def lookup(x: Array, table: Array) -> Array:
    """table[raw byte of x]."""
    return table[x.view(np.uint8)]


def rescale(
    x: Array, x_q: Quantization, to: Quantization, bounds: tuple[float, float] = UNBOUNDED
) -> Array:
    """Dequantise, clip and quantise, in float32."""
    real = dequantize(x, x_q)
    return quantize(np.clip(real, np.float32(bounds[0]), np.float32(bounds[1])), to)


# --- A QDQ model, group by group ------------------------------------------------------------------


@dataclass(frozen=True)
class Dequantized:
    """A float value known by its quantised form."""

    values: Array
    quantization: Quantization
    axis: int = 0


@dataclass(frozen=True)
class Pending:
    """A float operator not yet quantised."""

    node: onnx.NodeProto
    inputs: list[Any]


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def run_reference(
    model: onnx.ModelProto, inputs: Mapping[str, Array], every_value: bool = False
) -> dict[str, Array]:
    """The outputs of a QDQ model, or with `every_value` every quantised value by name too."""
    known: dict[str, Any] = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer
    }
    known |= dict(inputs)
    quantised = {}
    for node in model.graph.node:
        result = _run_node(node, [known[name] if name else None for name in node.input])
        known[node.output[0]] = result
        if node.op_type == "QuantizeLinear":
            quantised[node.output[0]] = result
    outputs = {output.name: _real(known[output.name]) for output in model.graph.output}
    return {**quantised, **outputs} if every_value else outputs


def _run_node(node: onnx.NodeProto, inputs: list[Any]) -> Any:
    if node.op_type == "DequantizeLinear":
        scale, zero = inputs[1], 0 if len(inputs) < 3 else inputs[2]
        assert np.unique(zero).size == 1
        quantization = Quantization(scale, int(np.ravel(zero)[0]), str(inputs[0].dtype))
        return Dequantized(inputs[0], quantization, attributes_of(node).get("axis", 1))
    if node.op_type == "QuantizeLinear":
        to = Quantization(inputs[1], int(inputs[2]), str(inputs[2].dtype))
        return _quantised(inputs[0], to, UNBOUNDED)
    if node.op_type == "Identity":
        return inputs[0]
    if node.op_type in MOVES and isinstance(inputs[0], np.ndarray):
        return MOVES[node.op_type](node, inputs)
    return Pending(node, inputs)


MOVES: dict[str, Callable[[onnx.NodeProto, list[Any]], Array]] = {
    "Transpose": lambda node, inputs: inputs[0].transpose(attributes_of(node)["perm"]),
    "Reshape": lambda node, inputs: inputs[0].reshape([int(extent) for extent in inputs[1]]),
}


def _real(value: Any) -> Array:
    if isinstance(value, Dequantized):
        return dequantize(value.values, value.quantization)
    assert isinstance(value, np.ndarray), "a float operator without QuantizeLinear after it"
    return value


def _quantised(value: Any, to: Quantization, bounds: tuple[float, float]) -> Array:
    if isinstance(value, np.ndarray):
        return quantize(np.clip(value, *bounds), to)
    if isinstance(value, Dequantized):
        return rescale(value.values, value.quantization, to, bounds)
    node, inputs = value.node, value.inputs
    if node.op_type == "Relu":
        return _quantised(inputs[0], to, (max(bounds[0], 0.0), bounds[1]))
    if node.op_type == "Clip":
        low, high = float(inputs[1]), float(inputs[2])
        return _quantised(inputs[0], to, (max(bounds[0], low), min(bounds[1], high)))
    return OPERATORS[node.op_type](node, inputs, to, bounds)


def _conv(node: onnx.NodeProto, inputs: list[Any], to: Quantization, bounds: Any) -> Array:
    x, w = inputs[:2]
    given = attributes_of(node)
    bias = inputs[2].values if len(inputs) > 2 else np.zeros(w.values.shape[0], np.int32)
    return conv2d(
        x.values,
        x.quantization,
        w.values,
        w.quantization,
        bias,
        to,
        bounds,
        strides=given.get("strides", (1, 1)),
        pads=given.get("pads", (0, 0, 0, 0)),
        dilations=given.get("dilations", (1, 1)),
        groups=given.get("group", 1),
    )


def _gemm(node: onnx.NodeProto, inputs: list[Any], to: Quantization, bounds: Any) -> Array:
    x, w = inputs[:2]
    weight = w.values.T if attributes_of(node).get("transB") else w.values
    bias = inputs[2].values if len(inputs) > 2 else np.zeros(weight.shape[1], np.int32)
    return dense(x.values, x.quantization, weight, w.quantization, bias, to, bounds)


def _binary_node(operation: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def run(node: onnx.NodeProto, inputs: list[Any], to: Quantization, bounds: Any) -> Array:
        a, b = inputs
        return binary(operation, a.values, a.quantization, b.values, b.quantization, to, bounds)

    return run


def _average(node: onnx.NodeProto, inputs: list[Any], to: Quantization, bounds: Any) -> Array:
    assert bounds == UNBOUNDED
    given, x = attributes_of(node), inputs[0]
    if node.op_type == "ReduceMean":
        assert list(given["axes"]) == [2, 3]
        pooled = average_pool(x.values, x.quantization, to, x.values.shape[2:])
        return pooled if given.get("keepdims", 1) else pooled.reshape(pooled.shape[:2])
    return average_pool(
        x.values,
        x.quantization,
        to,
        given["kernel_shape"],
        given.get("strides", (1, 1)),
        given.get("pads", (0, 0, 0, 0)),
        bool(given.get("count_include_pad", 0)),
    )


def _maximum(node: onnx.NodeProto, inputs: list[Any], to: Quantization, bounds: Any) -> Array:
    given, x = attributes_of(node), inputs[0]
    pooled = max_pool(
        x.values, given["kernel_shape"], given.get("strides", (1, 1)), given.get("pads", (0,) * 4)
    )
    return rescale(pooled, x.quantization, to, bounds)


def _softmax_node(node: onnx.NodeProto, inputs: list[Any], to: Quantization, bounds: Any) -> Array:
    assert bounds == UNBOUNDED
    x = inputs[0]
    return softmax(x.values, x.quantization, to, attributes_of(node).get("axis", -1))


def _pad(node: onnx.NodeProto, inputs: list[Any], to: Quantization, bounds: Any) -> Array:
    x, widths = inputs[0], np.asarray(inputs[1]).reshape(2, -1).T
    value = 0.0 if len(inputs) < 3 else float(inputs[2])
    filler = quantize(np.float32(value), x.quantization)
    moved = np.pad(x.values, widths, constant_values=filler)
    return rescale(moved, x.quantization, to, bounds)


OPERATORS: dict[str, Callable[..., Array]] = {
    "Add": _binary_node(np.add),
    "AveragePool": _average,
    "Conv": _conv,
    "Gemm": _gemm,
    "MaxPool": _maximum,
    "Mul": _binary_node(np.multiply),
    "Pad": _pad,
    "ReduceMean": _average,
    "Softmax": _softmax_node,
    "Sub": _binary_node(np.subtract),
}
