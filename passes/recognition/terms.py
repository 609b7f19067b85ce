"""The words recognisers share: a quantised value, the goal it is brought to, a refusal."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from tilewright.passes.constants import array_of, constant, dtype_of, op_name, shape_of
from tilewright.passes.names import joined_names
from tilewright.passes.rewriter import Rewriter

QUANTIZED_DTYPES = ("int8", "uint8")


class Declined(Exception):  # noqa: N818 -- no error, an answer
    """Why a group of nodes is left in float; the text completes `node: ...`."""


@dataclass(frozen=True)
class Quantized:
    """real = scale * (value - zero), one scale for the whole tensor."""

    value: relax.Expr
    scale: np.float32
    zero: int

    @property
    def dtype(self) -> str:
        return dtype_of(self.value)


@dataclass(frozen=True)
class Goal:
    """What a float value becomes: clipped to `bounds` in float, then quantised.

    `names` are the ONNX nodes that do so: clips and QuantizeLinear.
    """

    scale: np.float32
    zero: int
    dtype: str
    names: tuple[str, ...]
    bounds: tuple[float, float] = (-math.inf, math.inf)

    @property
    def low(self) -> int:
        return quantized_number(self.bounds[0], self.scale, self.zero, self.dtype)

    @property
    def high(self) -> int:
        return quantized_number(self.bounds[1], self.scale, self.zero, self.dtype)

    @property
    def limits(self) -> dict[str, Any]:
        """The attributes every quantised operator shares."""
        return {"clip_low": self.low, "clip_high": self.high}

    @property
    def output(self) -> dict[str, Any]:
        """Attributes of operators that requantise."""
        return {
            "output_scale": float(self.scale),
            "output_zero": self.zero,
            "out_dtype": self.dtype,
            **self.limits,
        }

    def after(self, expr: relax.Expr) -> Goal:
        """The same goal for what `expr` reads, `expr` being done on int8 afterwards."""
        return replace(self, names=joined_names(expr) + self.names)


Recogniser = Callable[[relax.Expr, Goal, Rewriter], relax.Expr]


def quantized_number(value: float, scale: np.float32, zero: int, dtype: str) -> int:
    """QuantizeLinear of one number: float32 division, rounded half to even, saturated."""
    limits = np.iinfo(dtype)
    if math.isinf(value):
        return int(limits.max if value > 0 else limits.min)
    return int(np.clip(np.rint(np.float32(value) / scale) + zero, limits.min, limits.max))


def raw_bytes_in_order(dtype: str) -> NDArray[np.int64]:
    """The value of `dtype` each raw byte 0..255 stands for."""
    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.int64)


def scale_and_zero(call: relax.Call) -> tuple[np.float32, int]:
    """Scale and zero point of a per-tensor (de)quantize call; declines what is not that."""
    scale, zero = array_of(call.args[1]), array_of(call.args[2])
    if scale is None or zero is None:
        raise Declined("scale or zero point is computed at run time")
    if scale.size != 1 or zero.size != 1:
        raise Declined("activations quantised per channel are not supported")
    if scale.dtype != np.float32:
        raise Declined(f"scale is {scale.dtype}, float32 is supported")
    if not scale.reshape(-1)[0] > 0:
        raise Declined("scale is not positive")
    return np.float32(scale.reshape(-1)[0]), int(zero.reshape(-1)[0])


def is_dequantized(expr: relax.Expr, rewriter: Rewriter) -> bool:
    """Whether `expr` is a dequantised tensor, constants included."""
    dequantizes = op_name(rewriter.definition(expr)) == "relax.dequantize"
    return dequantizes or is_constant_weight(expr, rewriter)


def dequantized(expr: relax.Expr, rewriter: Rewriter) -> Quantized:
    """The quantised tensor `expr` is the float form of."""
    call = rewriter.definition(expr)
    if is_constant_weight(expr, rewriter):
        return _constant_operand(constant_weight(expr, rewriter))
    if op_name(call) != "relax.dequantize":
        raise Declined("an input is not quantised (no DequantizeLinear before it)")
    if dtype_of(call.args[0]) not in QUANTIZED_DTYPES:
        raise Declined(f"{dtype_of(call.args[0])} activations are not supported")
    scale, zero = scale_and_zero(call)
    return Quantized(call.args[0], scale, zero)


def _constant_operand(weight: Weight) -> Quantized:
    if weight.scale.size != 1:
        raise Declined("a constant operand quantised per channel is not supported")
    if str(weight.values.dtype) not in QUANTIZED_DTYPES:
        raise Declined(f"a constant operand of type {weight.values.dtype} is not supported")
    return Quantized(constant(weight.values), np.float32(weight.scale.reshape(-1)[0]), weight.zero)


def require_only_reader(expr: relax.Expr, rewriter: Rewriter) -> None:
    """Decline when the float value is wanted elsewhere too: it would be computed twice."""
    if isinstance(expr, relax.Var) and rewriter.reader_count(expr) > 1:
        raise Declined("its float result is also read by another node")


@dataclass(frozen=True)
class Weight:
    """A constant dequantised tensor: real = scale * (values - zero), scale along `axis`.

    `scale` has one element for the whole tensor (axis None) or one for each index of `axis`.
    """

    values: NDArray[Any]
    scale: NDArray[np.float32]
    zero: int
    axis: int | None

    def scales(self, axis: int, count: int) -> NDArray[np.float32]:
        """One scale for each of the `count` output channels, which lie along `axis`."""
        if self.scale.size == 1:
            return np.repeat(self.scale.reshape(1), count)
        if self.axis != axis:
            raise Declined(f"weight scales lie along axis {self.axis}, not the output channels'")
        return self.scale.reshape(-1)


def is_constant_weight(expr: relax.Expr, rewriter: Rewriter) -> bool:
    """Whether `expr` is a dequantised constant, rearranged or not."""
    call = rewriter.definition(expr)
    while op_name(call) in ("relax.permute_dims", "relax.reshape"):
        call = rewriter.definition(call.args[0])
    if op_name(call) != "relax.dequantize":
        return False
    return array_of(rewriter.definition(call.args[0])) is not None


def constant_weight(expr: relax.Expr, rewriter: Rewriter) -> Weight:
    """The integer constant behind `expr`, with permute_dims and reshape done to it."""
    call = rewriter.definition(expr)
    if op_name(call) == "relax.permute_dims":
        inner = constant_weight(call.args[0], rewriter)
        axes = _axes(call)
        axis = None if inner.axis is None else axes.index(inner.axis)
        return replace(inner, values=inner.values.transpose(axes), axis=axis)
    if op_name(call) == "relax.reshape":
        return _reshaped(constant_weight(call.args[0], rewriter), shape_of(call))
    if op_name(call) != "relax.dequantize":
        raise Declined("a weight is not quantised")
    values, scale, zero = (array_of(rewriter.definition(part)) for part in call.args)
    if values is None or scale is None or zero is None:
        raise Declined("a weight, its scale or its zero point is computed at run time")
    if scale.dtype != np.float32:
        raise Declined(f"weight scale is {scale.dtype}, float32 is supported")
    zeros = np.unique(zero)
    if zeros.size != 1:
        raise Declined("weight zero points that differ between channels are not supported")
    axis = None if scale.size == 1 else int(call.attrs.axis) % values.ndim
    return Weight(values, scale, int(zeros[0]), axis)


def _reshaped(weight: Weight, shape: tuple[int, ...]) -> Weight:
    axis = weight.axis
    if axis is not None:
        before = math.prod(weight.values.shape[:axis])
        extent = weight.values.shape[axis]
        places = [
            place
            for place, size in enumerate(shape)
            if size == extent and math.prod(shape[:place]) == before
        ]
        if not places:
            raise Declined("a reshape mixes the channels of a weight quantised per channel")
        axis = places[0]
    return replace(weight, values=weight.values.reshape(shape), axis=axis)


def _axes(call: relax.Call) -> list[int]:
    rank = len(shape_of(call))
    axes = call.attrs.axes
    return [int(a) % rank for a in axes] if axes is not None else list(range(rank))[::-1]
