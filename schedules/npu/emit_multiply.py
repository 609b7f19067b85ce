"""Emit convolutions, depthwise convolutions and matmuls: multiply, requantise, look up, store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from tilewright.schedules.npu.constants import Range, Tables
from tilewright.schedules.npu.emitter import Emitter, Input, Output, Ring, Tile, float32
from tilewright.schedules.npu.geometry import Covered, split
from tilewright.schedules.npu.layout import View
from tilewright.schedules.npu.region_plan import OperatorPlan
from tilewright.schedules.npu.work import Piece
from tilewright.targets import isa
from tilewright.targets.operators import Conv2d, MatMul


def emit_multiply(emitter: Emitter, step: OperatorPlan) -> None:
    """All tiles of a Conv2d or MatMul, in the tiling's loop order."""
    work, tiling = step.work, step.tiling
    assert work.multiply is not None
    source = Input.of(emitter, step, work.operands[0].tensor, "input0")
    weights = _weights(emitter, step)
    output = Output.of(emitter, step)
    for tile in _tiles(step):
        view = output.open(tile)
        accumulator = emitter.accumulators(tile.pixels * tile.depth)
        tables, base = None, 0
        for inner in split(work.multiply.reduction, tiling.reduction):
            part = weights.find(tile.channels, inner)
            tables, base = part.tables, part.tables_address
            for index, piece in enumerate(part.pieces):
                at = accumulator + piece.low - tile.channels[0]
                first = inner[0] == 0
                bias = base + tables.biases[index] if tables.biases and first else isa.NO_BIAS
                emitter.add(_convolve(step, tile, source, piece, part, index, at, bias, first))
        assert tables is not None
        _requantize(emitter, step, tile, accumulator, view, tables, base)
        output.close(tile, view)


def _tiles(step: OperatorPlan) -> Iterator[Tile]:
    output, tiling = step.work.output, step.tiling
    channels = list(split(output.channels, tiling.channels))
    pixels = list(product(split(output.height, tiling.rows), split(output.width, tiling.columns)))
    if tiling.channels_first:
        for depth, (rows, columns) in product(channels, pixels):
            yield Tile(rows, columns, depth)
    else:
        for (rows, columns), depth in product(pixels, channels):
            yield Tile(rows, columns, depth)


@dataclass(frozen=True)
class _Part:
    """Weights in the SRAM for one tile of channels and reduction, and its tables."""

    pieces: tuple[Piece, ...]
    addresses: tuple[int, ...]
    pitches: tuple[int, ...]
    tables: Tables
    tables_address: int


@dataclass
class _PackedWeights:
    """Constant weights: blocks through a ring, tables with them or through one of their own."""

    emitter: Emitter
    step: OperatorPlan
    ring: Ring
    table_ring: Ring

    def find(self, channels: Range, inner: Range) -> _Part:
        blocks = self.step.blocks
        block = blocks.weights[channels, inner]
        load = self.emitter.constants
        table_block, table_address = block, 0
        if block.tables is None:
            table_block = blocks.tables[channels]
            table_address = load(self.step, self.table_ring, channels, table_block)
        address = load(self.step, self.ring, (channels, inner), block)
        if block.tables is not None:
            table_address = address
        assert table_block.tables is not None
        aligned = self.emitter.plan.npu.aligned_channels
        return _Part(
            block.pieces,
            tuple(address + offset for offset in block.weights),
            tuple(aligned(piece.high - piece.low) for piece in block.pieces),
            table_block.tables,
            table_address,
        )


@dataclass
class _StreamedWeights:
    """The second factor of a matmul, an activation whose rows are the reduction."""

    emitter: Emitter
    step: OperatorPlan
    source: Input
    table_ring: Ring

    def find(self, channels: Range, inner: Range) -> _Part:
        block = self.step.blocks.tables[channels]
        address = self.emitter.constants(self.step, self.table_ring, "all", block)
        view = self.source.tile(Covered(0, 1, 0, 0), Covered(*inner, 0, 0), channels)
        assert block.tables is not None
        piece = Piece(*channels, *inner)
        return _Part((piece,), (view.address,), (view.pixel_pitch,), block.tables, address)


def _weights(emitter: Emitter, step: OperatorPlan) -> _PackedWeights | _StreamedWeights:
    table_ring = Ring.of(step, "tables")
    factor = step.work.streamed_weights
    if factor is None:
        return _PackedWeights(emitter, step, Ring.of(step, "weights"), table_ring)
    return _StreamedWeights(emitter, step, Input.of(emitter, step, factor, "weights"), table_ring)


def _convolve(
    step: OperatorPlan,
    tile: Tile,
    source: Input,
    piece: Piece,
    part: _Part,
    index: int,
    accumulator: int,
    bias: int,
    starts: bool,
) -> isa.Instruction:
    """One piece of a tile into the accumulators at `accumulator`."""
    operand, multiply = step.work.operands[0], step.work.multiply
    assert multiply is not None
    rows, columns = operand.rows.covered(*tile.rows), operand.columns.covered(*tile.columns)
    if multiply.bundle:  # one load serves all pieces: start at the first channel of the tile
        window = (part.pieces[0].first, part.pieces[-1].last)
    else:
        window = (piece.first, piece.last)
    view = source.tile(rows, columns, window).at(0, 0, piece.first - window[0])
    fields: dict[str, Any] = {
        "input_address": view.address,
        "input_row_pitch": view.row_pitch,
        "input_pixel_pitch": view.pixel_pitch,
        "input_height": rows.high - rows.low,
        "input_width": columns.high - columns.low,
        "input_channels": piece.last - piece.first,
        "weight_address": part.addresses[index],
        "weight_channel_pitch": part.pitches[index],
        "accumulator_address": accumulator,
        "accumulator_pitch": tile.depth,
        "output_height": tile.height,
        "output_width": tile.width,
        "output_channels": piece.high - piece.low,
        "kernel_h": operand.rows.kernel,
        "kernel_w": operand.columns.kernel,
        "stride_h": operand.rows.stride,
        "stride_w": operand.columns.stride,
        "dilation_h": operand.rows.dilation,
        "dilation_w": operand.columns.dilation,
        "pad_top": rows.before,
        "pad_left": columns.before,
        "bias_address": bias if starts else isa.NO_BIAS,
        "accumulate": not starts,
        "input_unsigned": operand.tensor.dtype == "uint8",
        **_zeros(step),
    }
    if multiply.depthwise:
        return isa.Depthwise(channel_multiplier=multiply.multiplier, **fields)
    return isa.Conv(**fields)


def _zeros(step: OperatorPlan) -> dict[str, int | bool]:
    """Zero points of both factors and whether weights are unsigned."""
    match step.work.operator:
        case Conv2d() as conv:
            return {
                "input_zero": conv.input_zero,
                "weight_zero": conv.weight_zero,
                "weight_unsigned": conv.weight.dtype.name == "uint8",
            }
        case MatMul() as matmul:
            return {
                "input_zero": matmul.a_zero,
                "weight_zero": matmul.b_zero,
                "weight_unsigned": matmul.b.dtype == "uint8",
            }
    raise TypeError(type(step.work.operator).__name__)


def _requantize(
    emitter: Emitter,
    step: OperatorPlan,
    tile: Tile,
    accumulator: int,
    view: View,
    tables: Tables,
    base: int,
) -> None:
    """Accumulators to the output tile, then through the fused table where there is one."""
    operator = step.work.operator
    assert isinstance(operator, Conv2d | MatMul)
    premultiplied = isinstance(operator, Conv2d) and operator.requantize == "premultiplied"
    emitter.add(
        isa.Requantize(
            accumulator_address=accumulator,
            accumulator_pitch=tile.depth,
            height=tile.height,
            width=tile.width,
            channels=tile.depth,
            output_address=view.address,
            output_row_pitch=view.row_pitch,
            output_pixel_pitch=view.pixel_pitch,
            table_address=base + tables.multipliers,
            table_channels=emitter.plan.npu.table_channels(tile.depth),
            output_scale=float32(operator.output_scale),
            output_zero=operator.output_zero,
            clip_low=operator.clip_low,
            clip_high=operator.clip_high,
            premultiplied=premultiplied,
            output_unsigned=operator.output.dtype == "uint8",
        )
    )
    if isinstance(operator, Conv2d) and operator.lookup is not None:
        emitter.add(
            isa.Lookup(
                input_address=view.address,
                input_row_pitch=view.row_pitch,
                input_pixel_pitch=view.pixel_pitch,
                output_address=view.address,
                output_row_pitch=view.row_pitch,
                output_pixel_pitch=view.pixel_pitch,
                height=tile.height,
                width=tile.width,
                channels=tile.depth,
                table_address=base + tables.lookup,
            )
        )
