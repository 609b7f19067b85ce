"""A convolution as a packed product: its image with a border, its weights in panels.

Float and int8 differ in what the image holds (int8 is widened to int16, its zero point taken
off), not in how it is walked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax, te, tirx

from tilewright.compiler.cpu.operands import (
    INJECTIVE,
    Array,
    auxiliary,
    call_kernel,
    pack,
)
from tilewright.passes.constants import array_of, shape_of
from tilewright.schedules.cpu.computations import (
    Window,
    convolution,
    pad_image,
    run_convolution,
)
from tilewright.schedules.cpu.facts import CpuFacts
from tilewright.schedules.cpu.terms import Expr
from tilewright.schedules.cpu.tile import ProductShape


@dataclass(frozen=True)
class Operand:
    """What a convolution multiplies: its dtype, and how the image's values become it."""

    dtype: str
    sums: str
    image: Callable[[Expr], Expr] = lambda value: value
    changes_values: bool = False


@dataclass(frozen=True)
class PackedConvolution:
    """`image` and `packed` are operands of the kernel that calls `accumulate`."""

    image: relax.Expr
    packed: relax.Expr
    accumulate: Callable[[te.Tensor, te.Tensor], te.Tensor]


def pack_convolution(
    builder: relax.BlockBuilder,
    call: relax.Call,
    operands: tuple[relax.Expr, relax.Expr],
    window: Window,
    groups: int,
    operand: Operand,
    cpu: CpuFacts,
) -> PackedConvolution:
    """`operands` are the NHWC image and the HWIO weight of `call`."""
    x, weight = operands
    batch, height, width, channels = shape_of(x)
    size = window.output(height, width)
    as_run = groups == 1 and window.dilations[1] == 1 and array_of(weight) is not None
    depth = channels // groups
    columns = shape_of(weight)[-1] // groups
    row_bytes = window.strides[1] * channels * np.dtype(operand.dtype).itemsize
    shape = replace(_product_shape(window, (batch, *size), depth, columns), row_bytes=row_bytes)

    def prepare(values: Array) -> Array:
        return values.reshape(values.shape[0], -1, values.shape[-1]) if as_run else values

    wants_pairs = operand.dtype == "int16" and (as_run or depth % 2 == 0)
    packed, packing = pack(weight, shape, groups, cpu, prepare, wants_pairs)
    run = window.kernel[1] * depth
    if packing.pairs:
        run += run % 2
    bordered = _with_room_for_runs(window, width, size[1], math.ceil(run / depth))
    pads = bordered.pads if as_run else window.pads
    if any(pads) or operand.changes_values:
        x = _bordered(builder, call, x, pads, operand)

    def accumulate(image: te.Tensor, w: te.Tensor) -> te.Tensor:
        if as_run:
            return run_convolution(image, w, window, run, size, packing, operand.sums)
        return convolution(image, w, window, packing, operand.sums)

    return PackedConvolution(x, packed, accumulate)


def _product_shape(
    window: Window, output: tuple[int, int, int], depth: int, columns: int
) -> ProductShape:
    """The convolution as a product: a line of the output is a band, unless all follow evenly."""
    batch, height, width = output
    steps = math.prod(window.kernel) * depth
    if math.prod(window.kernel) == 1 and window.strides == (1, 1) and not any(window.pads):
        return ProductShape(columns, steps, batch * height * width)
    return ProductShape(columns, steps, width, batch * height)


def _with_room_for_runs(window: Window, width: int, columns: int, taps: int) -> Window:
    """The window with as much border on the right as the last run of `taps` pixels reads."""
    top, left, bottom, right = window.pads
    reach = (columns - 1) * window.strides[1] + taps
    return replace(window, pads=(top, left, bottom, max(right, reach - width - left)))


def _bordered(
    builder: relax.BlockBuilder,
    call: relax.Call,
    x: relax.Expr,
    pads: tuple[int, int, int, int],
    operand: Operand,
) -> relax.Expr:
    def compute(image: te.Tensor) -> te.Tensor:
        return pad_image(image, pads, operand.image, tirx.const(0, operand.dtype))

    what = "widened" if operand.changes_values else "padded"
    return auxiliary(builder, call_kernel(builder, compute, [x], what, INJECTIVE), call, what)
