"""Many tilings at once, as arrays: what each needs in SRAM, and how often it loads what.

These formulas are shared by the search, which prices every candidate, and by the plan, which
lays out the slots of the one chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.npu.cost import Number, ceil_div
from tilewright.schedules.npu.geometry import Window
from tilewright.schedules.npu.work import Operand, Work
from tilewright.targets.description import Npu
from tilewright.targets.operators import Copy, Pad2d

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Residency:
    """What of an operator lies in the SRAM as a whole, and what else it moves.

    `stored`: the output must (also) reach the DRAM. `load_cycles`: of resident inputs that this
    operator is the first to need.
    """

    inputs: tuple[bool, ...]
    output: bool
    stored: bool
    load_cycles: float = 0.0


@dataclass(frozen=True)
class Grid:
    """One candidate an entry.

    `channels_first`: output channels are the outer loop, so that their weights load once; else
    pixels are, so that inputs do. `weights_stay`: a slot for every block of weights.
    """

    rows: Numbers
    columns: Numbers
    channels: Numbers
    reduction: Numbers
    channels_first: NDArray[np.bool_]
    weights_stay: NDArray[np.bool_]


@dataclass(frozen=True)
class Counts:
    """Tiles along each loop, and how often each kind of slot is filled."""

    pixels: Numbers
    channels: Numbers
    reduction: Numbers
    input_tiles: Numbers
    input_loads: Numbers
    weight_blocks: Numbers
    weight_loads: Numbers


@dataclass(frozen=True)
class Slots:
    """Bytes of one slot and how many there are."""

    inputs: tuple[Numbers, ...]
    input_slots: Numbers
    weights: Numbers  # with the tables of its output channels where the reduction is not split
    weight_slots: Numbers
    tables: Numbers
    table_slots: Numbers
    output: Numbers
    output_slots: Numbers

    @property
    def total(self) -> Numbers:
        total: Numbers = self.weights * self.weight_slots + self.tables * self.table_slots
        total = total + self.output * self.output_slots
        for slot in self.inputs:
            total = total + slot * self.input_slots
        return total


def count(work: Work, grid: Grid) -> Counts:
    """How often the loops of each candidate run, and load."""
    output, multiply = work.output, work.multiply
    pixels = ceil_div(output.height, grid.rows) * ceil_div(output.width, grid.columns)
    channels = ceil_div(output.channels, grid.channels)
    ones = np.ones_like(channels)
    if multiply is None:
        tiles = pixels * channels
        return Counts(pixels, channels, ones, tiles, tiles, ones, ones)
    if multiply.is_channelwise:
        tiles, blocks = pixels * channels, channels
        weights = np.where(grid.weights_stay | grid.channels_first, blocks, tiles)
        return Counts(pixels, channels, ones, tiles, tiles, blocks, weights)
    reduction = ceil_div(multiply.reduction, grid.reduction)
    blocks, tiles, all_steps = channels * reduction, pixels * reduction, pixels * channels
    reused = np.where(grid.channels_first, tiles <= 2, (reduction == 1) | (tiles <= 2))
    inputs = np.where(reused, tiles, all_steps * reduction)
    kept = grid.weights_stay | (blocks <= 2) | (grid.channels_first & (reduction == 1))
    weights = np.where(kept, blocks, all_steps * reduction)
    return Counts(pixels, channels, reduction, tiles, inputs, blocks, weights)


def find_slots(work: Work, grid: Grid, counts: Counts, residency: Residency, npu: Npu) -> Slots:
    """The slots every candidate needs; 0 bytes where it needs none."""
    none = np.zeros_like(grid.rows)
    moves = isinstance(work.operator, Copy | Pad2d)
    inputs = tuple(
        none if resident or moves else input_tile_bytes(work, operand, grid, npu)
        for operand, resident in zip(work.operands, residency.inputs, strict=False)
    )
    in_place = isinstance(work.operator, Copy) and residency.inputs[0]
    output = grid.rows * grid.columns * aligned(grid.channels, npu.channel_alignment)
    if residency.output or in_place:
        output = none
    tables = table_bytes(work, grid.channels, npu)
    weights, table_slots = none, np.ones_like(none)
    if work.streamed_weights is not None:
        if not residency.inputs[1]:
            weights = grid.reduction * aligned(grid.channels, npu.channel_alignment)
    elif work.multiply is not None:
        weights = weight_bytes(work, grid.channels, grid.reduction, npu)
        whole = counts.reduction == 1
        weights = weights + np.where(whole, tables, 0)
        tables = np.where(whole, 0, tables)
        table_slots = np.where(grid.weights_stay, counts.channels, np.minimum(2, counts.channels))
    blocks = np.where(grid.weights_stay, counts.weight_blocks, np.minimum(2, counts.weight_blocks))
    return Slots(
        inputs,
        np.minimum(2, counts.input_tiles),
        weights,
        blocks,
        tables,
        table_slots,
        output,
        np.minimum(2, counts.pixels * counts.channels),
    )


def input_tile_bytes(work: Work, operand: Operand, grid: Grid, npu: Npu) -> Number:
    """The input that one tile of the output reads, all pixels of it."""
    if operand.broadcasts:
        rows, columns = np.ones_like(grid.rows), np.ones_like(grid.rows)
    else:
        rows = covered_extent(operand.rows, grid.rows)
        columns = covered_extent(operand.columns, grid.columns)
    channels = input_tile_channels(work, grid, npu)
    return rows * columns * aligned(channels, npu.channel_alignment)


def input_tile_channels(work: Work, grid: Grid, npu: Npu) -> Number:
    """Input channels that a tile of output channels (and of the reduction) reads."""
    multiply = work.multiply
    if multiply is None:
        return grid.channels
    if multiply.depthwise:
        return ceil_div(grid.channels, multiply.multiplier)
    if multiply.bundle:
        own = ceil_div(grid.channels, multiply.bundle) * multiply.channels_per_bundle
        return np.minimum(own + npu.channel_alignment - 1, work.operands[0].tensor.channels)
    return grid.reduction


def covered_extent(window: Window, outputs: Number) -> Number:
    """Elements that the largest tile of `outputs` needs, without padding."""
    return np.minimum(window.needed(outputs), window.extent)


def weight_bytes(work: Work, channels: Number, reduction: Number, npu: Npu) -> Number:
    """Packed constant weights of one tile: [taps][reduction][channels, aligned] a piece.

    Rounded so that a table can follow.
    """
    multiply = work.multiply
    assert multiply is not None
    if multiply.bundle:
        bundles = ceil_div(channels, multiply.bundle)
        one = multiply.taps * multiply.reduction * npu.aligned_channels(multiply.bundle)
        return aligned(bundles * one, npu.tables.alignment)
    packed = multiply.taps * reduction * aligned(channels, npu.channel_alignment)
    return aligned(packed, npu.tables.alignment)


def bias_bytes(work: Work, channels: Number, npu: Npu) -> Number:
    """Biases of one tile: a table of its own for every piece."""
    bundle = work.multiply.bundle if work.multiply else 0
    if not bundle:
        return one_table_bytes(channels, npu)
    return ceil_div(channels, bundle) * one_table_bytes(bundle, npu)


def table_bytes(work: Work, channels: Number, npu: Npu) -> Number:
    """Biases, multipliers and the look-up table of one tile of output channels."""
    lookup = aligned(work.table_bytes, npu.tables.alignment)
    if work.multiply is None:
        return np.full_like(channels, lookup)
    bias = 0 if work.streamed_weights is not None else bias_bytes(work, channels, npu)
    return bias + one_table_bytes(channels, npu) + lookup


def one_table_bytes(channels: Number, npu: Npu) -> Number:
    """A table of four bytes a channel, rounded as the description says."""
    return aligned(4 * aligned(channels, npu.tables.channels_multiple), npu.tables.alignment)


def aligned(value: Number, multiple: int) -> Number:
    return ceil_div(value, multiple) * multiple
