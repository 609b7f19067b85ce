"""The meaning of every NPU operator in numpy, bit for bit: what streams are judged by."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tilewright.targets.operators import (
    Conv2d,
    Copy,
    Elementwise,
    Lookup,
    MatMul,
    Operator,
    Pad2d,
    Pool2d,
    Region,
    Tensor,
)

Buffers = dict[str, NDArray[np.uint8]]
Array = NDArray[Any]


def evaluate(region: Region, buffers: Buffers) -> None:
    """Run every operator on `buffers` (raw bytes by name), in place."""
    for operator in region.operators:
        view(operator.output, buffers)[...] = compute(operator, buffers)


def view(tensor: Tensor, buffers: Buffers) -> Array:
    """The tensor's elements as a writable [height, width, channels] view of its buffer."""
    raw = buffers[tensor.buffer]
    shape = (tensor.height, tensor.width, tensor.channels)
    last = (tensor.height - 1) * tensor.pitch_y + (tensor.width - 1) * tensor.pitch_x
    assert tensor.offset + last + tensor.channels <= raw.size, f"{tensor.name} leaves its buffer"
    strides = (tensor.pitch_y, tensor.pitch_x, 1)
    return as_strided(raw[tensor.offset :].view(tensor.dtype), shape, strides)


def compute(operator: Operator, buffers: Buffers) -> Array:
    match operator:
        case Conv2d():
            return _conv(operator, view(operator.input, buffers))
        case MatMul():
            return _matmul(operator, view(operator.a, buffers)[0], view(operator.b, buffers)[0])
        case Elementwise():
            return _elementwise(operator, view(operator.a, buffers), view(operator.b, buffers))
        case Lookup():
            raw = view(operator.input, buffers).copy().view(np.uint8)
            return operator.table[raw].view(operator.output.dtype)
        case Pool2d():
            return _pool(operator, view(operator.input, buffers))
        case Copy():
            return view(operator.input, buffers).copy()
        case Pad2d():
            x = view(operator.input, buffers)
            top, left, bottom, right = operator.pads
            pads = ((top, bottom), (left, right), operator.channel_pads)
            return np.pad(x, pads, constant_values=operator.value)
    raise TypeError(type(operator).__name__)


def _quantise(real: Array, operator: Any) -> Array:
    """float32 in units of the output's step, rounded half to even, offset and limited."""
    steps = np.rint(real).astype(np.float64) + operator.output_zero
    limits = np.iinfo(operator.output.dtype)
    low, high = max(operator.clip_low, limits.min), min(operator.clip_high, limits.max)
    return np.clip(steps, low, high).astype(operator.output.dtype)


def _conv(conv: Conv2d, x: Array) -> Array:
    top, left, bottom, right = conv.pads
    shifted = x.astype(np.int64) - conv.input_zero
    padded = np.pad(shifted, ((top, bottom), (left, right), (0, 0)))
    weight = conv.weight.astype(np.int64) - conv.weight_zero
    kh, kw, inner, channels = weight.shape
    out = conv.output
    accumulator = np.zeros((out.height, out.width, channels), np.int64) + conv.bias
    outer = channels // conv.groups
    for dy in range(kh):
        for dx in range(kw):
            y, x0 = dy * conv.dilations[0], dx * conv.dilations[1]
            taken = padded[y :: conv.strides[0], x0 :: conv.strides[1]]
            taken = taken[: out.height, : out.width]
            for group in range(conv.groups):
                part = taken[:, :, group * inner : (group + 1) * inner]
                own = slice(group * outer, (group + 1) * outer)
                accumulator[:, :, own] += part @ weight[dy, dx, :, own]
    scaled = accumulator.astype(np.int32).astype(np.float32) * conv.multiplier
    if conv.requantize == "two_step":
        scaled = scaled / np.float32(conv.output_scale)
    result = _quantise(scaled, conv)
    if conv.lookup is not None:
        return conv.lookup[result.view(np.uint8)].view(out.dtype)
    return result


def _matmul(matmul: MatMul, a: Array, b: Array) -> Array:
    accumulator = (a.astype(np.int64) - matmul.a_zero) @ (b.astype(np.int64) - matmul.b_zero)
    scaled = accumulator.astype(np.int32).astype(np.float32) * np.float32(matmul.multiplier)
    return _quantise(scaled / np.float32(matmul.output_scale), matmul)[None]


def _elementwise(operator: Elementwise, a: Array, b: Array) -> Array:
    real_a = (a.astype(np.int32) - operator.a_zero).astype(np.float32) * np.float32(
        operator.a_scale
    )
    real_b = (b.astype(np.int32) - operator.b_zero).astype(np.float32) * np.float32(
        operator.b_scale
    )
    operate = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[operator.kind]
    return _quantise(operate(real_a, real_b) / np.float32(operator.output_scale), operator)


def _pool(pool: Pool2d, x: Array) -> Array:
    top, left, bottom, right = pool.pads
    height, width, channels = x.shape
    result = np.zeros((pool.output.height, pool.output.width, channels), np.int64)
    for oy in range(pool.output.height):
        for ox in range(pool.output.width):
            y, x0 = oy * pool.strides[0] - top, ox * pool.strides[1] - left
            y1, x1 = y + pool.kernel[0], x0 + pool.kernel[1]
            window = x[max(y, 0) : min(y1, height), max(x0, 0) : min(x1, width)]
            window = window.reshape(-1, channels).astype(np.int64)
            count = window.shape[0]
            if pool.count_include_pad:
                count = (min(y1, height + bottom) - y) * (min(x1, width + right) - x0)
            if pool.kind == "max":
                result[oy, ox] = window.max(axis=0)
            else:
                result[oy, ox] = _average(pool, window - pool.input_zero, count)
    low, high = np.iinfo(pool.output.dtype).min, np.iinfo(pool.output.dtype).max
    limited = np.clip(result, max(low, pool.clip_low), min(high, pool.clip_high))
    return limited.astype(pool.output.dtype)


def _average(pool: Pool2d, window: Array, count: int) -> list[int]:
    ratio = Fraction(float(np.float32(pool.input_scale))) / (
        count * Fraction(float(np.float32(pool.output_scale)))
    )
    return [round(int(total) * ratio) + pool.output_zero for total in window.sum(axis=0)]
