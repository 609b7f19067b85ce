"""QuantizeLinear and DequantizeLinear at the edges of a quantised graph, as ONNX defines them.

quantize    saturate(rint(x / scale) + zero), rounded half to even; not a number becomes the
            smallest value, as onnxruntime has it
dequantize  (q - zero) * scale, the difference exact
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax, te, tirx

from tilewright.compiler.cpu.operands import ELEMENTWISE, Legalize, call_kernel
from tilewright.passes.constants import array_of, dtype_of, shape_of
from tilewright.schedules.cpu.terms import Expr

Element = Callable[[Expr, Expr, Expr], Expr]


def _quantize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    dtype = dtype_of(call)
    limits = np.iinfo(dtype)

    def element(x: Expr, scale: Expr, zero: Expr) -> Expr:
        shift = zero.astype("float32")
        value = tirx.max(x / scale, tirx.const(float(limits.min), "float32") - shift)
        value = tirx.min(value, tirx.const(float(limits.max), "float32") - shift)
        return (tirx.nearbyint(value).astype("int32") + zero.astype("int32")).astype(dtype)

    return _scaled(builder, call, element, "quantize")


def _dequantize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    dtype = dtype_of(call)

    def element(x: Expr, scale: Expr, zero: Expr) -> Expr:
        centred = x.astype("int32") - zero.astype("int32")
        return centred.astype("float32") * scale.astype("float32")

    def converted(x: Expr, scale: Expr, zero: Expr) -> Expr:
        return element(x, scale, zero).astype(dtype)

    return _scaled(builder, call, converted, "dequantize")


SCALING: dict[str, Legalize] = {"relax.quantize": _quantize, "relax.dequantize": _dequantize}


def _scaled(
    builder: relax.BlockBuilder, call: relax.Call, element: Element, name: str
) -> relax.Expr:
    """`element(x, scale, zero)` everywhere; scale and zero are single or lie along an axis."""
    shape = shape_of(call)
    axis = int(call.attrs.axis) % len(shape) if shape else 0
    singles = [_single(operand) for operand in call.args[1:3]]
    tensors = [operand for operand, one in zip(call.args[1:3], singles, strict=True) if one is None]

    def compute(x: te.Tensor, *along: te.Tensor) -> te.Tensor:
        def at(*where: Expr) -> Expr:
            rest = iter(along)
            parameters = [
                _parameter(next(rest), where, axis) if one is None else one for one in singles
            ]
            return element(x[where], *parameters)

        return te.compute(shape, at, name=name)

    return call_kernel(builder, compute, [call.args[0], *tensors], name, ELEMENTWISE)


def _parameter(value: te.Tensor, where: Sequence[Expr], axis: int) -> Expr:
    if len(value.shape) == 0:
        return value()
    return value[where[axis]] if int(value.shape[0]) > 1 else value[0]


def _single(operand: relax.Expr) -> Expr | None:
    """A constant of one element as a number in the code."""
    array = array_of(operand)
    if array is None or array.size != 1:
        return None
    return tirx.const(array.reshape(-1)[0].item(), str(array.dtype))
