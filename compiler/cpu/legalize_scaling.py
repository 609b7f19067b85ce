"""QuantizeLinear and DequantizeLinear at the edges of a quantised graph, as ONNX defines them.

quantize    saturate(rint(x / scale) + zero), rounded half to even; not a number becomes the
            smallest value, as onnxruntime has it
dequantize  (q - zero) * scale, the difference exact
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tilewright.compiler.cpu.operands import ELEMENTWISE, Legalize, call_kernel
from tilewright.passes.constants import array_of, constant, dtype_of, shape_of
from tilewright.schedules.cpu.terms import Expr


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


def _scaled(builder: relax.BlockBuilder, call: relax.Call, element: Any, name: str) -> relax.Expr:
    """`element(x, scale, zero)` everywhere; scale and zero are single or lie along an axis."""
    shape = shape_of(call)
    axis = int(call.attrs.axis) % len(shape) if shape else 0

    def parameter(value: te.Tensor, at: Sequence[Expr]) -> Expr:
        if len(value.shape) == 0:
            return value()
        return value[at[axis]] if int(value.shape[0]) > 1 else value[0]

    def compute(x: te.Tensor, scale: te.Tensor, zero: te.Tensor) -> te.Tensor:
        return te.compute(
            shape,
            lambda *at: element(x[at], parameter(scale, at), parameter(zero, at)),
            name=name,
        )

    operands = [call.args[0], *(_as_vector(operand) for operand in call.args[1:3])]
    return call_kernel(builder, compute, operands, name, ELEMENTWISE)


def _as_vector(operand: relax.Expr) -> relax.Expr:
    array = array_of(operand)
    return constant(array.reshape(-1)) if array is not None else operand
