"""Quantised operators as Relax operators: one call carries one operator and its arithmetic.

A QDQ graph spells a quantised convolution as dequantize, dequantize, conv2d, add, relu, quantize.
`recognise_quantized` gathers those into one `tilewright.conv2d` before any layout changes, so
that later passes see a single node. Attributes (DictAttrs) and arithmetic:

tilewright.conv2d(x, weight, bias, multiplier)
    data_layout NCHW or NHWC, kernel_layout OIHW or HWIO (I is channels / groups), strides,
    padding (top, left, bottom, right), dilation, groups, input_zero, weight_zero, output_scale,
    output_zero, clip_low, clip_high (quantised), requantize two_step or premultiplied, out_dtype
tilewright.dense(x, weight, bias, multiplier)
    x is [..., K], weight [K, N]; attributes of conv2d without the geometry
tilewright.matmul(a, b)
    batched, both at run time; a_zero, b_zero, multiplier, output_scale, output_zero, clip_*,
    requantize, out_dtype
tilewright.add | subtract | multiply(a, b)
    numpy broadcasting; a_scale, a_zero, b_scale, b_zero, output_scale, output_zero, clip_*,
    out_dtype
tilewright.lookup(x, table)
    table holds 256 values of the output's dtype, indexed by x's raw byte; kind says what it is
tilewright.max_pool2d(x) | tilewright.avg_pool2d(x)
    data_layout, kernel, strides, padding; the average also count_include_pad, input_scale,
    input_zero, output_scale, output_zero; clip_*
tilewright.softmax(x)
    axis, input_scale, output_scale, output_zero, clip_*, out_dtype

bias is int32, multiplier float32, one each an output channel. multiplier is
float32(input_scale * weight_scale[c]) for two_step. `tilewright.targets.operators` states the
formulas. int8 tensors also pass through Relax's own reshape, permute_dims, strided_slice, split,
concat and pad, which change no value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax
from tvm.ir import _ffi_api as _ir_ffi

InferType = Callable[[relax.Call, relax.BlockBuilder], relax.Type]


def call(op: str, arguments: list[relax.Expr], **attributes: Any) -> relax.Call:
    """A call of the quantised operator `tilewright.<op>`."""
    attrs = tvm.ir.make_node("ir.DictAttrs", **attributes)
    return relax.Call(tvm.ir.Op.get(f"tilewright.{op}"), arguments, attrs=attrs)


def _shape(expr: relax.Expr) -> list[int]:
    return [int(extent) for extent in expr.ty.shape.values]


def window_output(extent: int, kernel: int, stride: int, dilation: int, pads: int) -> int:
    """Positions of a window of `kernel` taps over `extent` elements plus `pads`, floor mode."""
    return (extent + pads - dilation * (kernel - 1) - 1) // stride + 1


def _image_type(
    expr: relax.Call, kernel: list[int], dilation: list[int], channels: int | None, dtype: str
) -> relax.Type:
    attrs = expr.attrs
    shape = _shape(expr.args[0])
    spatial = (2, 3) if attrs["data_layout"] == "NCHW" else (1, 2)
    top, left, bottom, right = (int(pad) for pad in attrs["padding"])
    for position, axis in enumerate(spatial):
        shape[axis] = window_output(
            shape[axis],
            kernel[position],
            int(attrs["strides"][position]),
            dilation[position],
            (top + bottom, left + right)[position],
        )
    if channels is not None:
        shape[1 if attrs["data_layout"] == "NCHW" else 3] = channels
    return relax.TensorType(shape, dtype)


def _conv2d_type(expr: relax.Call, _builder: relax.BlockBuilder) -> relax.Type:
    weight = _shape(expr.args[1])
    hwio = expr.attrs["kernel_layout"] == "HWIO"
    kernel, channels = (weight[:2], weight[3]) if hwio else (weight[2:], weight[0])
    dilation = [int(value) for value in expr.attrs["dilation"]]
    return _image_type(expr, kernel, dilation, channels, expr.attrs["out_dtype"])


def _pool_type(expr: relax.Call, _builder: relax.BlockBuilder) -> relax.Type:
    kernel = [int(value) for value in expr.attrs["kernel"]]
    return _image_type(expr, kernel, [1, 1], None, expr.args[0].ty.dtype.dtype)


def _dense_type(expr: relax.Call, _builder: relax.BlockBuilder) -> relax.Type:
    shape = [*_shape(expr.args[0])[:-1], _shape(expr.args[1])[-1]]
    return relax.TensorType(shape, expr.attrs["out_dtype"])


def _broadcast(a: list[int], b: list[int]) -> list[int]:
    rank = max(len(a), len(b))
    a, b = [1] * (rank - len(a)) + a, [1] * (rank - len(b)) + b
    return [y if x == 1 else x for x, y in zip(a, b, strict=True)]


def _matmul_type(expr: relax.Call, _builder: relax.BlockBuilder) -> relax.Type:
    a, b = _shape(expr.args[0]), _shape(expr.args[1])
    shape = [*_broadcast(a[:-2], b[:-2]), a[-2], b[-1]]
    return relax.TensorType(shape, expr.attrs["out_dtype"])


def _binary_type(expr: relax.Call, _builder: relax.BlockBuilder) -> relax.Type:
    shape = _broadcast(_shape(expr.args[0]), _shape(expr.args[1]))
    return relax.TensorType(shape, expr.attrs["out_dtype"])


def _lookup_type(expr: relax.Call, _builder: relax.BlockBuilder) -> relax.Type:
    return relax.TensorType(_shape(expr.args[0]), expr.args[1].ty.dtype.dtype)


def _softmax_type(expr: relax.Call, _builder: relax.BlockBuilder) -> relax.Type:
    return relax.TensorType(_shape(expr.args[0]), expr.attrs["out_dtype"])


QUANTIZED_OPS: dict[str, InferType] = {
    "conv2d": _conv2d_type,
    "dense": _dense_type,
    "matmul": _matmul_type,
    "add": _binary_type,
    "subtract": _binary_type,
    "multiply": _binary_type,
    "lookup": _lookup_type,
    "max_pool2d": _pool_type,
    "avg_pool2d": _pool_type,
    "softmax": _softmax_type,
}


def _register() -> None:
    for op, infer_type in QUANTIZED_OPS.items():
        name = f"tilewright.{op}"
        _ir_ffi.RegisterOp(name, f"quantised {op}")
        tvm.ir.register_op_attr(name, "FInferType", infer_type)
        tvm.ir.register_op_attr(name, "FPurity", True)


_register()
