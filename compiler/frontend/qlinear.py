"""QLinearConv, QLinearMatMul and QGemm as quantised operators that keep their own arithmetic.

Unlike a convolution between DequantizeLinear and QuantizeLinear, these multiply the accumulator
once, by float32(float32(x scale * w scale) / y scale). They never exist in float, so they are
imported as `tilewright` operators at once (passes/quantized_ops.py, "premultiplied").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from tilewright.passes.constants import array_of, constant, dtype_of, shape_of
from tilewright.passes.names import original_name
from tilewright.passes.quantized_ops import call
from tilewright.targets.errors import ModelError

Inputs = list[relax.Expr | None]
Attributes = dict[str, Any]


def qlinear_conv(inputs: Inputs, attrs: Attributes, _opset: int) -> relax.Expr:
    """QLinearConv(x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias)."""
    node = _Operands(inputs, attrs)
    x, weight = node.tensor(0), node.array(3, "weight")
    if weight.ndim != 4:
        raise ModelError(
            f"{node.name}: QLinearConv of {weight.ndim - 2} dimensions is not supported"
        )
    channels = weight.shape[0]
    multiplier = node.scale(1) * node.scales(4, channels) / node.scale(6)
    strides, dilations, pads = _geometry(attrs, shape_of(x)[2:], weight.shape[2:])
    return call(
        "conv2d",
        [x, constant(weight), constant(node.bias(8, channels)), constant(multiplier)],
        data_layout="NCHW",
        kernel_layout="OIHW",
        strides=strides,
        padding=pads,
        dilation=dilations,
        groups=int(attrs.get("group", 1)),
        input_zero=node.zero(2),
        weight_zero=node.zero(5),
        **node.output(6, 7),
    )


def qlinear_matmul(inputs: Inputs, attrs: Attributes, _opset: int) -> relax.Expr:
    """QLinearMatMul(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero)."""
    node = _Operands(inputs, attrs)
    a, b = node.tensor(0), node.tensor(3)
    weight = array_of(b)
    if weight is not None and weight.ndim == 2 and len(shape_of(a)) >= 2:
        return _dense(node, a, weight, None, (1, 2), (4, 5), (6, 7))
    multiplier = node.scale(1) * node.scale(4) / node.scale(6)
    return call(
        "matmul",
        [a, b],
        a_zero=node.zero(2),
        b_zero=node.zero(5),
        multiplier=float(multiplier),
        **node.output(6, 7),
    )


def qgemm(inputs: Inputs, attrs: Attributes, _opset: int) -> relax.Expr:
    """QGemm(a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero) of com.microsoft."""
    node = _Operands(inputs, attrs)
    if attrs.get("transA", 0) or attrs.get("alpha", 1.0) != 1.0 or len(inputs) < 8:
        raise ModelError(
            f"{node.name}: QGemm with transA, alpha or a float result is not supported"
        )
    weight = node.array(3, "weight")
    weight = weight.T if attrs.get("transB", 0) else weight
    bias = None if inputs[6] is None else node.bias(6, weight.shape[1])
    return _dense(node, node.tensor(0), weight, bias, (1, 2), (4, 5), (7, 8))


def _qlinear_pairwise(operation: str) -> Callable[[Inputs, Attributes, int], relax.Expr]:
    """QLinearAdd and QLinearMul(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero)."""

    def convert(inputs: Inputs, attrs: Attributes, _opset: int) -> relax.Expr:
        node = _Operands(inputs, attrs)
        output = node.output(6, 7)
        del output["requantize"]
        return call(
            operation,
            [node.tensor(0), node.tensor(3)],
            a_scale=float(node.scale(1)),
            a_zero=node.zero(2),
            b_scale=float(node.scale(4)),
            b_zero=node.zero(5),
            **output,
        )

    return convert


def _dense(
    node: _Operands,
    a: relax.Expr,
    weight: NDArray[Any],
    bias: NDArray[np.int32] | None,
    a_at: tuple[int, int],
    b_at: tuple[int, int],
    y_at: tuple[int, int],
) -> relax.Expr:
    columns = weight.shape[1]
    multiplier = node.scale(a_at[0]) * node.scales(b_at[0], columns) / node.scale(y_at[0])
    bias = np.zeros(columns, np.int32) if bias is None else bias
    return call(
        "dense",
        [a, constant(weight), constant(bias), constant(multiplier)],
        input_zero=node.zero(a_at[1]),
        weight_zero=node.zero(b_at[1]),
        **node.output(*y_at),
    )


class _Operands:
    """The inputs of one node by position, refusing what must be constant and is not."""

    def __init__(self, inputs: Inputs, attrs: Attributes) -> None:
        self.name = original_name(attrs["tvm_custom"]["name"])
        self._inputs = inputs

    def tensor(self, position: int) -> relax.Expr:
        return self._inputs[position]

    def array(self, position: int, what: str) -> NDArray[Any]:
        value = array_of(self._inputs[position])
        if value is None:
            raise ModelError(
                f"{self.name}: its {what} is computed at run time; make it a constant of the model"
            )
        return value

    def scale(self, position: int) -> np.float32:
        scale = self.array(position, "scale")
        if scale.size != 1:
            raise ModelError(f"{self.name}: activations quantised per channel are not supported")
        return np.float32(scale.reshape(-1)[0])

    def scales(self, position: int, channels: int) -> NDArray[np.float32]:
        scale = self.array(position, "weight scale").astype(np.float32).reshape(-1)
        return np.repeat(scale, channels) if scale.size == 1 else scale

    def zero(self, position: int) -> int:
        if self._inputs[position] is None:
            return 0
        zeros = np.unique(self.array(position, "zero point"))
        if zeros.size != 1:
            raise ModelError(
                f"{self.name}: zero points that differ between channels are not supported; "
                f"quantise its weights symmetrically"
            )
        return int(zeros[0])

    def bias(self, position: int, channels: int) -> NDArray[np.int32]:
        if position >= len(self._inputs) or self._inputs[position] is None:
            return np.zeros(channels, np.int32)
        return self.array(position, "bias").astype(np.int32).reshape(-1)

    def output(self, scale_at: int, zero_at: int) -> Attributes:
        """The attributes that say what the result is quantised to."""
        zero = self._inputs[zero_at] if zero_at < len(self._inputs) else None
        dtype = "uint8" if zero is None else dtype_of(zero)
        limits = np.iinfo(dtype)
        return {
            "output_scale": float(self.scale(scale_at)),
            "output_zero": 0 if zero is None else self.zero(zero_at),
            "clip_low": int(limits.min),
            "clip_high": int(limits.max),
            "requantize": "premultiplied",
            "out_dtype": dtype,
        }


def _geometry(
    attrs: Attributes, image: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[list[int], list[int], list[int]]:
    """strides, dilations and pads; automatic padding was spelled out in ONNX already."""
    ones = [1] * len(kernel)
    strides = [int(value) for value in attrs.get("strides", ones)]
    dilations = [int(value) for value in attrs.get("dilations", ones)]
    return strides, dilations, [int(value) for value in attrs.get("pads", [0] * 2 * len(image))]


QLINEAR = {
    "QGemm": qgemm,
    "QLinearAdd": _qlinear_pairwise("add"),
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "QLinearMul": _qlinear_pairwise("multiply"),
}
