"""What each tiling costs, by formula: the busiest engine plus what cannot overlap.

Work that cannot hide: the first loads, the last requantisation and the last store. Where only one
tile of accumulators fits the buffer, multiplying and requantising take turns. The other engines'
work counts for a part, since a neighbouring operator may want them at the same time.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.npu import cost
from tilewright.schedules.npu.cost import Number, ceil_div
from tilewright.schedules.npu.grid import (
    Counts,
    Grid,
    Numbers,
    Residency,
    Slots,
    aligned,
    covered_extent,
    input_tile_channels,
)
from tilewright.schedules.npu.work import Operand, Work
from tilewright.targets.description import Npu
from tilewright.targets.operators import Conv2d, Pad2d, Pool2d, Tensor

Floats = NDArray[np.float64]
_SHARED = 0.25  # of the work that hides within the operator
_LARGEST_WORD = 65535  # extents and pitches are 16-bit words


def price(
    work: Work, npu: Npu, residency: Residency, grid: Grid, counts: Counts, slots: Slots
) -> Floats:
    """Estimated cycles of every candidate, infinite where the hardware cannot run it."""
    multiplying, vector = compute_cycles(work, npu, grid, counts)
    moved, first, last = _move_cycles(work, npu, residency, grid, counts, slots)
    steps = counts.pixels * counts.channels
    issue = npu.dispatch.issue_cycles * steps * (counts.reduction + 3)
    overlaps = grid_accumulators(work, grid) * 2 * 4 <= npu.accumulator_bytes
    computing = np.where(overlaps, np.maximum(multiplying, vector), multiplying + vector)
    tail = vector / steps if work.multiply else 0.0
    busiest = np.maximum(np.maximum(computing, moved), issue)
    others = multiplying + vector + moved - busiest
    cycles = busiest + first + last + tail + _SHARED * np.maximum(others, 0)
    return np.where(_is_legal(work, npu, grid), cycles, np.inf)


def grid_accumulators(work: Work, grid: Grid) -> Numbers:
    """int32 elements one tile takes."""
    if work.multiply is None:
        return np.zeros_like(grid.rows)
    return grid.rows * grid.columns * grid.channels


def compute_cycles(work: Work, npu: Npu, grid: Grid, counts: Counts) -> tuple[Number, Number]:
    """Cycles of the MAC engine and of the vector engine over all tiles, edges included."""
    output, multiply = work.output, work.multiply
    depth = multiply.reduction if multiply else 1
    multiplying: Number = 0
    vector: Number = 0
    for row, column, channel in product(
        _extents(output.height, grid.rows),
        _extents(output.width, grid.columns),
        _extents(output.channels, grid.channels),
    ):
        tiles = row[1] * column[1] * channel[1]
        pixels, channels = row[0] * column[0], channel[0]
        vector = vector + tiles * _vector_tile(work, npu, pixels, channels)
        if multiply is None:
            continue
        if multiply.depthwise:
            cycles = cost.depthwise_cycles(npu, pixels, multiply.taps, channels)
            multiplying = multiplying + tiles * cycles
        elif multiply.bundle:
            pieces = ceil_div(channels, multiply.bundle)
            one = cost.conv_cycles(npu, pixels, multiply.taps, depth, multiply.bundle)
            multiplying = multiplying + tiles * pieces * one
        else:
            for inner, passes in _extents(depth, grid.reduction):
                cycles = cost.conv_cycles(npu, pixels, multiply.taps, inner, channels)
                multiplying = multiplying + tiles * passes * cycles
    return multiplying, vector


def _extents(extent: int, size: Numbers) -> list[tuple[Numbers, Numbers]]:
    """(size, count) of the whole tiles and of the shorter last one."""
    rest = extent % size
    return [(size, extent // size), (np.maximum(rest, 1), (rest > 0).astype(np.int64))]


def _vector_tile(work: Work, npu: Npu, pixels: Number, channels: Number) -> Number:
    operator = work.operator
    elements = pixels * channels
    if isinstance(operator, Pool2d):
        return cost.vector_cycles(npu, elements * operator.kernel[0] * operator.kernel[1])
    cycles = cost.vector_cycles(npu, elements)
    fused_table = isinstance(operator, Conv2d) and operator.lookup is not None
    return cycles * 2 if fused_table or isinstance(operator, Pad2d) else cycles


def _move_cycles(
    work: Work, npu: Npu, residency: Residency, grid: Grid, counts: Counts, slots: Slots
) -> tuple[Number, Number, Number]:
    """DMA cycles of the whole operator, of what must load first, and of the last store."""
    total: Number = 0.0
    if residency.load_cycles:  # the rows that each row of tiles needs come as one transfer
        parts = ceil_div(work.output.height, grid.rows) - 1
        total = residency.load_cycles + parts * npu.memory.dma_latency_cycles
    first: Number = 0.0
    for operand, resident in zip(work.operands, residency.inputs, strict=False):
        if resident:
            continue
        one = input_transfer_cycles(work, operand, grid, npu)
        loads = np.ones_like(grid.rows) if operand.broadcasts else counts.input_loads
        total, first = total + loads * one, first + one
    if work.multiply is not None and not (work.streamed_weights and residency.inputs[1]):
        one = cost.transfer_cycles(npu, 1, slots.weights)
        full = slots.weights * counts.weight_blocks
        whole = work.output.channels / (grid.channels * counts.channels)
        total = total + counts.weight_loads * np.where(full > 0, one * whole, 0)
        first = first + one / 2  # most often loaded under the operator before
    last: Number = 0.0
    if residency.stored:
        last = output_transfer_cycles(work, grid, npu)
        total = total + last * counts.pixels * counts.channels
    return total, first, last


def input_transfer_cycles(work: Work, operand: Operand, grid: Grid, npu: Npu) -> Number:
    """Loading one input tile of average extent."""
    tensor = operand.tensor
    if operand.broadcasts:
        return cost.transfer_cycles(npu, 1, grid.channels)
    rows = covered_extent(operand.rows, grid.rows)
    columns = covered_extent(operand.columns, grid.columns)
    channels = np.minimum(input_tile_channels(work, grid, npu), tensor.channels)
    if work.multiply is not None and not work.multiply.is_channelwise:
        channels = np.minimum(grid.reduction, tensor.channels)
    return _tile_transfer(tensor, rows, columns, channels, npu)


def output_transfer_cycles(work: Work, grid: Grid, npu: Npu) -> Number:
    """Storing one output tile."""
    return _tile_transfer(work.output, grid.rows, grid.columns, grid.channels, npu)


def _tile_transfer(
    tensor: Tensor, rows: Number, columns: Number, channels: Number, npu: Npu
) -> Number:
    """One DMA of a tile: runs that touch in DRAM are one."""
    joined = channels == tensor.pitch_x
    full = joined & (columns * tensor.pitch_x == tensor.pitch_y)
    runs = np.where(full, 1, np.where(joined, rows, rows * columns))
    length = channels * np.where(full, rows * columns, np.where(joined, columns, 1))
    return cost.transfer_cycles(npu, runs, length)


def _is_legal(work: Work, npu: Npu, grid: Grid) -> NDArray[np.bool_]:
    legal = grid_accumulators(work, grid) * 4 <= npu.accumulator_bytes
    alignment = npu.channel_alignment
    legal &= aligned(grid.channels, alignment) <= _LARGEST_WORD
    for operand in work.operands:
        if operand.broadcasts:
            continue
        channels = aligned(input_tile_channels(work, grid, npu), alignment)
        legal &= channels <= _LARGEST_WORD
    return legal
