"""Emit what the vector engine and the DMAs do alone: element-wise, look-up, pooling, copy, pad."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from tilewright.schedules.npu.emitter import Emitter, Input, Output, Ring, Tile, float32
from tilewright.schedules.npu.geometry import Covered, split
from tilewright.schedules.npu.layout import View
from tilewright.schedules.npu.region_plan import OperatorPlan
from tilewright.targets import isa
from tilewright.targets.operators import (
    Copy,
    Elementwise,
    Lookup,
    Operator,
    Pad2d,
    Pool2d,
    Tensor,
)

_BINARY: dict[str, type[isa.Add] | type[isa.Subtract] | type[isa.Multiply]] = {
    "add": isa.Add,
    "sub": isa.Subtract,
    "mul": isa.Multiply,
}


def vector_emission(operator: Operator) -> Callable[[Emitter, OperatorPlan], None]:
    """The function that emits `operator`."""
    emissions: dict[type[Operator], Callable[[Emitter, OperatorPlan], None]] = {
        Elementwise: emit_elementwise,
        Lookup: emit_lookup,
        Pool2d: emit_pool,
        Copy: emit_copy,
        Pad2d: emit_pad,
    }
    return emissions[type(operator)]


def emit_elementwise(emitter: Emitter, step: OperatorPlan) -> None:
    """Tiles as runs of pixels; a tile whose rows do not follow each other goes row by row."""
    operator = step.work.operator
    assert isinstance(operator, Elementwise)
    inputs = _inputs(emitter, step)
    output = Output.of(emitter, step)
    for tile in _tiles(step):
        view = output.open(tile)
        a, b = (
            source.tile(*_covered(step, index, tile), tile.channels)
            for index, source in enumerate(inputs)
        )
        broadcasts = step.work.operands[1].broadcasts
        spread = [a, view] if broadcasts else [a, b, view]
        joined = tile.height == 1 or all(v.row_pitch == tile.width * v.pixel_pitch for v in spread)
        rows = [(0, tile.pixels)] if joined else [(y, tile.width) for y in range(tile.height)]
        for y, pixels in rows:
            at_b = b if broadcasts else b.at(y, 0)
            emitter.add(
                _binary(operator, a.at(y, 0), at_b, view.at(y, 0), pixels, tile, broadcasts)
            )
        output.close(tile, view)


def _binary(
    operator: Elementwise,
    a: View,
    b: View,
    output: View,
    pixels: int,
    tile: Tile,
    broadcasts: bool,
) -> isa.Instruction:
    return _BINARY[operator.kind](
        a_address=a.address,
        b_address=b.address,
        output_address=output.address,
        pixels=pixels,
        channels=tile.depth,
        a_pixel_pitch=a.pixel_pitch,
        b_pixel_pitch=0 if broadcasts else b.pixel_pitch,
        output_pixel_pitch=output.pixel_pitch,
        a_scale=float32(operator.a_scale),
        b_scale=float32(operator.b_scale),
        output_scale=float32(operator.output_scale),
        a_zero=operator.a_zero,
        b_zero=operator.b_zero,
        output_zero=operator.output_zero,
        clip_low=operator.clip_low,
        clip_high=operator.clip_high,
        a_unsigned=operator.a.dtype == "uint8",
        b_unsigned=operator.b.dtype == "uint8",
        output_unsigned=operator.output.dtype == "uint8",
    )


def emit_lookup(emitter: Emitter, step: OperatorPlan) -> None:
    """The table is loaded once and serves all tiles."""
    (block,) = step.blocks.tables.values()
    table = emitter.constants(step, Ring.of(step, "tables"), "all", block)
    (source,) = _inputs(emitter, step)
    output = Output.of(emitter, step)
    for tile in _tiles(step):
        view = output.open(tile)
        read = source.tile(*_covered(step, 0, tile), tile.channels)
        emitter.add(
            isa.Lookup(
                input_address=read.address,
                input_row_pitch=read.row_pitch,
                input_pixel_pitch=read.pixel_pitch,
                output_address=view.address,
                output_row_pitch=view.row_pitch,
                output_pixel_pitch=view.pixel_pitch,
                height=tile.height,
                width=tile.width,
                channels=tile.depth,
                table_address=table,
            )
        )
        output.close(tile, view)


def emit_pool(emitter: Emitter, step: OperatorPlan) -> None:
    """Windows over a tile of the input; what it lacks at the image's border is padding."""
    pool = step.work.operator
    assert isinstance(pool, Pool2d)
    (source,) = _inputs(emitter, step)
    output = Output.of(emitter, step)
    kind = isa.MaxPool if pool.kind == "max" else isa.AveragePool
    for tile in _tiles(step):
        view = output.open(tile)
        rows, columns = _covered(step, 0, tile)
        read = source.tile(rows, columns, tile.channels)
        emitter.add(
            kind(
                input_address=read.address,
                input_row_pitch=read.row_pitch,
                input_pixel_pitch=read.pixel_pitch,
                input_height=rows.high - rows.low,
                input_width=columns.high - columns.low,
                channels=tile.depth,
                output_address=view.address,
                output_row_pitch=view.row_pitch,
                output_pixel_pitch=view.pixel_pitch,
                output_height=tile.height,
                output_width=tile.width,
                kernel_h=pool.kernel[0],
                kernel_w=pool.kernel[1],
                stride_h=pool.strides[0],
                stride_w=pool.strides[1],
                pad_top=rows.before,
                pad_left=columns.before,
                pad_bottom=rows.after,
                pad_right=columns.after,
                input_scale=float32(pool.input_scale),
                output_scale=float32(pool.output_scale),
                input_zero=pool.input_zero,
                output_zero=pool.output_zero,
                clip_low=pool.clip_low,
                clip_high=pool.clip_high,
                count_include_pad=pool.count_include_pad,
                input_unsigned=pool.input.dtype == "uint8",
                output_unsigned=pool.output.dtype == "uint8",
            )
        )
        output.close(tile, view)


def emit_copy(emitter: Emitter, step: OperatorPlan) -> None:
    """As few moves as the ends allow: a DMA on the side that is in DRAM, else SRAM to SRAM."""
    copy = step.work.operator
    assert isinstance(copy, Copy)
    output = Output.of(emitter, step)
    stays = copy.input.buffer in emitter.plan.residents
    source = Input(emitter, copy.input, None) if stays else None
    for tile in _tiles(step):
        if source is not None and output.ring is not None:
            output.close(tile, source.tile(*_covered(step, 0, tile), tile.channels))
            continue
        view = output.open(tile)
        _bring(emitter, step, source, tile, view)
        output.close(tile, view)


def emit_pad(emitter: Emitter, step: OperatorPlan) -> None:
    """Fill tiles that touch the border, then bring the part of the input that lies in each."""
    pad = step.work.operator
    assert isinstance(pad, Pad2d)
    output = Output.of(emitter, step)
    stays = pad.input.buffer in emitter.plan.residents
    source = Input(emitter, pad.input, None) if stays else None
    top, left = pad.pads[0], pad.pads[1]
    for tile in _tiles(step):
        view = output.open(tile)
        rows = _inside(tile.rows, top, pad.input.height)
        columns = _inside(tile.columns, left, pad.input.width)
        pixels = (rows[1] - rows[0]) * (columns[1] - columns[0])
        if pixels < tile.pixels or any(pad.channel_pads):
            emitter.add(_fill(view, tile, pad.value & 0xFF))
        if pixels:
            corner = (rows[0] + top - tile.rows[0], columns[0] + left - tile.columns[0])
            part = Tile(rows, columns, (0, pad.input.channels))
            inner = view.at(*corner, pad.channel_pads[0])
            _bring(emitter, step, source, part, inner)
        output.close(tile, view)


def _inside(outputs: tuple[int, int], before: int, extent: int) -> tuple[int, int]:
    """The input elements among padded positions; an empty range where there are none."""
    low = min(max(outputs[0] - before, 0), extent)
    return low, min(max(outputs[1] - before, low), extent)


def _fill(view: View, tile: Tile, value: int) -> isa.Instruction:
    return isa.Fill(
        address=view.address,
        run_bytes=tile.depth,
        count_1=tile.width,
        count_2=tile.height,
        stride_1=view.pixel_pitch,
        stride_2=view.row_pitch,
        value=value,
    )


def _bring(
    emitter: Emitter,
    step: OperatorPlan,
    source: Input | None,
    part: Tile,
    view: View,
) -> None:
    """`part` of the input to `view`: from where it stays, or straight from the DRAM."""
    tensor: Tensor = step.work.operands[0].tensor
    if source is None:
        emitter.move(isa.Load, tensor, part.rows, part.columns, part.channels, view)
        return
    rows, columns = Covered(*part.rows, 0, 0), Covered(*part.columns, 0, 0)
    read = source.tile(rows, columns, part.channels)
    emitter.add(
        isa.Copy(
            source_address=read.address,
            destination_address=view.address,
            run_bytes=part.depth,
            count_1=part.width,
            count_2=part.height,
            source_stride_1=read.pixel_pitch,
            source_stride_2=read.row_pitch,
            destination_stride_1=view.pixel_pitch,
            destination_stride_2=view.row_pitch,
        )
    )


def _inputs(emitter: Emitter, step: OperatorPlan) -> list[Input]:
    return [
        Input.of(emitter, step, operand.tensor, f"input{index}")
        for index, operand in enumerate(step.work.operands)
    ]


def _covered(step: OperatorPlan, operand: int, tile: Tile) -> tuple[Covered, Covered]:
    found = step.work.operands[operand]
    if found.broadcasts:
        return Covered(0, 1, 0, 0), Covered(0, 1, 0, 0)
    return found.rows.covered(*tile.rows), found.columns.covered(*tile.columns)


def _tiles(step: OperatorPlan) -> Iterator[Tile]:
    output, tiling = step.work.output, step.tiling
    ranges = product(
        split(output.height, tiling.rows),
        split(output.width, tiling.columns),
        split(output.channels, tiling.channels),
    )
    for rows, columns, channels in ranges:
        yield Tile(rows, columns, channels)
