"""Pools of quantised images: windows, whole images, and means over height and width.

    quantize(avg_pool2d(dequantize(x)))   ->  tilewright.avg_pool2d(x)
    quantize(mean(dequantize(x), H, W))   ->  tilewright.avg_pool2d(x), reshaped without keepdims
    max_pool2d(dequantize(x))             ->  dequantize(tilewright.max_pool2d(x))

The maximum of a monotone image is the image of the maximum, so a max pool needs no quantisation
after it; an average rounds, so it does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from tilewright.passes.constants import dtype_of, op_name, shape_of
from tilewright.passes.layouts import SPATIAL_AXES
from tilewright.passes.names import joined_names, with_names
from tilewright.passes.quantized_ops import call
from tilewright.passes.recognition.terms import (
    Declined,
    Goal,
    dequantized,
    require_only_reader,
)
from tilewright.passes.rewriter import Rewriter


def recognise_average(expr: relax.Expr, goal: Goal, rewriter: Rewriter) -> relax.Expr:
    core = rewriter.definition(expr)
    require_only_reader(expr, rewriter)
    source = dequantized(core.args[0], rewriter)
    is_mean = op_name(core) == "relax.mean"
    window = _whole_image(core) if is_mean else _window(core)
    pooled: relax.Expr = call(
        "avg_pool2d",
        [source.value],
        input_scale=float(source.scale),
        input_zero=source.zero,
        output_scale=float(goal.scale),
        output_zero=goal.zero,
        **window,
        **goal.limits,
    )
    if source.dtype != goal.dtype:
        raise Declined("an average pool that changes between int8 and uint8 is not supported")
    names = joined_names(core) + goal.names
    if is_mean and not core.attrs.keepdims:
        pooled = relax.op.reshape(with_names(pooled, names), shape_of(core))
    return with_names(pooled, names)


def max_pool(core: relax.Call, source: relax.Expr) -> relax.Expr:
    """The int8 max pool of `source` that the float max pool or image maximum `core` stands for."""
    whole = op_name(core) == "relax.max"
    window = _whole_image(core) if whole else _window(core)
    window.pop("count_include_pad")
    limits = np.iinfo(dtype_of(source))
    pooled: relax.Expr = call(
        "max_pool2d", [source], clip_low=int(limits.min), clip_high=int(limits.max), **window
    )
    if whole and not core.attrs.keepdims:
        pooled = relax.op.reshape(with_names(pooled, joined_names(core)), shape_of(core))
    return with_names(pooled, joined_names(core))


def _whole_image(core: relax.Call) -> dict[str, Any]:
    """The window that covers the image a mean or maximum over height and width reduces."""
    shape = shape_of(core.args[0])
    axes = tuple(sorted(int(axis) % len(shape) for axis in core.attrs.axis or ()))
    for layout, spatial in SPATIAL_AXES.items():
        if len(shape) == 4 and axes == spatial:
            height, width = (shape[axis] for axis in spatial)
            return {
                "data_layout": layout,
                "kernel": [height, width],
                "strides": [1, 1],
                "padding": [0, 0, 0, 0],
                "count_include_pad": False,
            }
    raise Declined(f"a reduction over axes {list(axes)} is not one over height and width")


def _window(core: relax.Call) -> dict[str, Any]:
    attrs = core.attrs
    if attrs.layout != "NCHW" or any(int(value) != 1 for value in attrs.dilation):
        raise Declined("a pool with dilation is not supported")
    kernel = [int(value) for value in attrs.pool_size]
    strides = [int(value) for value in attrs.strides]
    padding = [int(value) for value in attrs.padding]
    extra = ceil_mode_padding(
        shape_of(core.args[0])[2:], shape_of(core)[2:], kernel, strides, padding
    )
    if any(extra) and attrs.count_include_pad and op_name(core) != "relax.nn.max_pool2d":
        raise Declined("an average pool that counts padding in ceil mode is not supported")
    padding[2] += extra[0]
    padding[3] += extra[1]
    return {
        "data_layout": "NCHW",
        "kernel": kernel,
        "strides": strides,
        "padding": padding,
        "count_include_pad": bool(attrs.count_include_pad),
    }


def ceil_mode_padding(
    extents: tuple[int, ...],
    outputs: tuple[int, ...],
    kernel: list[int],
    strides: list[int],
    padding: list[int],
) -> tuple[int, int]:
    """Padding to add at bottom and right so that floor mode gives `outputs` positions too."""
    needed = []
    for axis in range(2):
        reach = (outputs[axis] - 1) * strides[axis] + kernel[axis]
        needed.append(max(0, reach - extents[axis] - padding[axis] - padding[axis + 2]))
    return needed[0], needed[1]
