"""Scales and zero points: of activations from their ranges, of weights from their values.

real = scale * (quantised - zero). Scales are float32 as they stand in the file; activations are
int8 with a zero point, weights int8 symmetric, biases int32 on the scale input times weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.compiler.quantize.ranges import Range

LOWEST, HIGHEST = -128, 127
WEIGHT_LIMIT = 127
BIAS_LIMIT = 2**30  # half of int32: the accumulator adds products to it
SHRINKS = np.linspace(1.0, 0.5, 26)  # clipped weight ranges that are tried

Array = NDArray[Any]


@dataclass(frozen=True)
class Activation:
    """How a tensor of activations is stored."""

    scale: np.float32
    zero: int

    def dequantised(self, values: Array) -> Array:
        """The reals that int8 `values` stand for, as DequantizeLinear computes them."""
        steps = (values.astype(np.int32) - self.zero).astype(np.float32)
        return np.asarray(steps * self.scale, np.float32)

    def quantised(self, values: Array) -> Array:
        """What QuantizeLinear makes of float32 `values`."""
        steps = np.rint(values.astype(np.float32) / self.scale) + np.float32(self.zero)
        return np.asarray(np.clip(steps, LOWEST, HIGHEST), np.int8)


@dataclass(frozen=True)
class Weight:
    """int8 `values` with one scale, or one for each index of `axis`."""

    values: NDArray[np.int8]
    scale: NDArray[np.float32]  # shape () or (channels,)
    axis: int

    @property
    def dequantised(self) -> NDArray[np.float32]:
        return self.values.astype(np.float32) * _along(self.scale, self.axis, self.values.ndim)


def activation_for(kept: Range) -> Activation:
    """The scale and zero point that cover `kept`, zero being one of the 256 values exactly.

    A tensor that is always zero gets the scale 1.
    """
    scale = np.float32(kept.width / (HIGHEST - LOWEST))
    if not scale > 0 or not np.isfinite(scale) or scale < np.finfo(np.float32).tiny:
        return Activation(np.float32(1.0), 0)
    zero = int(np.clip(np.rint(LOWEST - kept.low / float(scale)), LOWEST, HIGHEST))
    return Activation(scale, zero)


def quantise_weight(
    weight: Array,
    axis: int,
    *,
    per_channel: bool,
    input_scale: np.float32,
    bias: Array | None,
    least_error: bool = False,
) -> Weight:
    """int8 weights; `bias` (one value an index of `axis`) bounds the scale from below.

    A channel whose bias would overflow int32 on the scale input times weight gets a wider scale:
    coarser weights, where a saturated bias would be a wrong result. A channel of zeros too.
    With `least_error` a channel's range is clipped where that lowers its squared error.
    """
    values = np.asarray(weight, np.float64)
    if per_channel:
        rows = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    else:
        rows = values.reshape(1, -1)
    scale = np.abs(rows).max(axis=1, initial=0.0) / WEIGHT_LIMIT
    if least_error:
        scale = _least_squares(rows, scale)
    scale = np.maximum(scale, _least_scale(bias, float(input_scale), len(scale)))
    stored = scale.astype(np.float32)
    stored = np.where(stored >= np.finfo(np.float32).tiny, stored, np.float32(1.0))
    steps = np.rint(rows / stored.astype(np.float64)[:, None])
    quantised = np.clip(steps, -WEIGHT_LIMIT, WEIGHT_LIMIT).astype(np.int8)
    if not per_channel:
        return Weight(quantised.reshape(values.shape), stored.reshape(()), axis)
    moved = (values.shape[axis], *(np.delete(values.shape, axis)))
    return Weight(np.moveaxis(quantised.reshape(moved), 0, axis), stored, axis)


def quantise_bias(
    bias: Array, input_scale: np.float32, weight: Weight
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The int32 bias of every output channel, and its scale."""
    scale = np.float32(input_scale) * weight.scale
    steps = np.rint(np.asarray(bias, np.float64) / scale.astype(np.float64))
    return np.clip(steps, -BIAS_LIMIT, BIAS_LIMIT).astype(np.int32), scale


def _least_scale(bias: Array | None, input_scale: float, channels: int) -> NDArray[np.float64]:
    """The smallest weight scale with which the bias fits int32."""
    if bias is None:
        return np.zeros(channels)
    needed = np.abs(np.asarray(bias, np.float64)) / (input_scale * BIAS_LIMIT)
    return needed if channels > 1 or needed.size == 1 else needed.max(keepdims=True)


def _least_squares(rows: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """The scale of each row, of those clipped by SHRINKS, that has the least squared error."""
    best, least = scale.copy(), np.full(len(scale), np.inf)
    for shrink in SHRINKS:
        tried = np.where(scale > 0, scale * shrink, 1.0)[:, None]
        steps = np.clip(np.rint(rows / tried), -WEIGHT_LIMIT, WEIGHT_LIMIT)
        error = ((steps * tried - rows) ** 2).sum(axis=1)
        better = error < least
        best[better] = (scale * shrink)[better]
        least = np.minimum(least, error)
    return best


def _along(values: Array, axis: int, rank: int) -> Array:
    if values.ndim == 0:
        return values
    shape = [1] * rank
    shape[axis] = values.size
    return values.reshape(shape)
