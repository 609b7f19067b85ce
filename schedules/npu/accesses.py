"""Which memory an instruction reads and writes: what every ordering decision rests on.

An access is a hull: the range from the first to one past the last byte (int32 element in the
accumulators) that a strided walk touches. Hulls may claim a conflict where the walks interleave
without touching, never the reverse.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from tilewright.targets import isa


class Space(IntEnum):
    SRAM = 0
    ACCUMULATOR = 1
    ARENA = 2


class Access(NamedTuple):
    """`low` up to but without `high`."""

    space: Space
    low: int
    high: int
    writes: bool


def accesses(instruction: isa.Instruction, channel_alignment: int) -> list[Access]:
    """All accesses of `instruction`; constants, which nothing writes, are left out.

    Activations are written in whole groups of `channel_alignment` channels.
    """
    return _ACCESSES[instruction.opcode](instruction, channel_alignment)


def _end(_: isa.End, __: int) -> list[Access]:
    return []


def _transfer(move: isa.Load | isa.Store, _: int) -> list[Access]:
    loads = isinstance(move, isa.Load)
    steps_1, steps_2 = move.count_1 - 1, move.count_2 - 1
    found = [
        _strided(
            Space.SRAM,
            move.sram_address,
            move.run_bytes,
            (steps_1 * move.sram_stride_1, steps_2 * move.sram_stride_2),
            loads,
        )
    ]
    if move.region == isa.DramRegion.ARENA:
        reach = (steps_1 * move.dram_stride_1, steps_2 * move.dram_stride_2)
        found.append(_strided(Space.ARENA, move.dram_offset, move.run_bytes, reach, not loads))
    return found


def _strided(space: Space, address: int, run: int, reach: tuple[int, int], writes: bool) -> Access:
    low = address + sum(min(distance, 0) for distance in reach)
    high = address + sum(max(distance, 0) for distance in reach) + run
    return Access(space, low, high, writes)


def _tile(
    address: int, height: int, width: int, row: int, pixel: int, channels: int, writes: bool
) -> Access:
    last = address + (height - 1) * row + (width - 1) * pixel
    return Access(Space.SRAM, address, last + channels, writes)


def _multiply(conv: isa.Conv | isa.Depthwise, _: int) -> list[Access]:
    rows = conv.kernel_h * conv.kernel_w
    if isinstance(conv, isa.Conv):
        rows *= conv.input_channels
    weights = (rows - 1) * conv.weight_channel_pitch + conv.output_channels
    pixels = conv.output_height * conv.output_width
    start = conv.accumulator_address
    end = start + (pixels - 1) * conv.accumulator_pitch + conv.output_channels
    found = [
        _tile(
            conv.input_address,
            conv.input_height,
            conv.input_width,
            conv.input_row_pitch,
            conv.input_pixel_pitch,
            conv.input_channels,
            False,
        ),
        Access(Space.SRAM, conv.weight_address, conv.weight_address + weights, False),
        Access(Space.ACCUMULATOR, start, end, True),
    ]
    if conv.accumulate:
        found.append(Access(Space.ACCUMULATOR, start, end, False))
    elif conv.bias_address != isa.NO_BIAS:
        bias = conv.bias_address
        found.append(Access(Space.SRAM, bias, bias + 4 * conv.output_channels, False))
    return found


def _requantize(step: isa.Requantize, alignment: int) -> list[Access]:
    pixels = step.height * step.width
    start = step.accumulator_address
    end = start + (pixels - 1) * step.accumulator_pitch + step.channels
    return [
        Access(Space.ACCUMULATOR, start, end, False),
        Access(Space.SRAM, step.table_address, step.table_address + 4 * step.table_channels, False),
        _tile(
            step.output_address,
            step.height,
            step.width,
            step.output_row_pitch,
            step.output_pixel_pitch,
            _whole_groups(step.channels, alignment),
            True,
        ),
    ]


def _binary(step: isa.Add | isa.Subtract | isa.Multiply, alignment: int) -> list[Access]:
    def run(address: int, pitch: int, channels: int, writes: bool) -> Access:
        return _tile(address, 1, step.pixels, 0, pitch, channels, writes)

    return [
        run(step.a_address, step.a_pixel_pitch, step.channels, False),
        run(step.b_address, step.b_pixel_pitch, step.channels, False),
        run(
            step.output_address,
            step.output_pixel_pitch,
            _whole_groups(step.channels, alignment),
            True,
        ),
    ]


def _lookup(step: isa.Lookup, alignment: int) -> list[Access]:
    size = (step.height, step.width)
    channels = _whole_groups(step.channels, alignment)
    return [
        _tile(
            step.input_address,
            *size,
            step.input_row_pitch,
            step.input_pixel_pitch,
            step.channels,
            False,
        ),
        Access(Space.SRAM, step.table_address, step.table_address + 256, False),
        _tile(
            step.output_address,
            *size,
            step.output_row_pitch,
            step.output_pixel_pitch,
            channels,
            True,
        ),
    ]


def _pool(step: isa.MaxPool | isa.AveragePool, alignment: int) -> list[Access]:
    return [
        _tile(
            step.input_address,
            step.input_height,
            step.input_width,
            step.input_row_pitch,
            step.input_pixel_pitch,
            step.channels,
            False,
        ),
        _tile(
            step.output_address,
            step.output_height,
            step.output_width,
            step.output_row_pitch,
            step.output_pixel_pitch,
            _whole_groups(step.channels, alignment),
            True,
        ),
    ]


def _copy(step: isa.Copy, _: int) -> list[Access]:
    counts = (step.count_1 - 1, step.count_2 - 1)
    source = (counts[0] * step.source_stride_1, counts[1] * step.source_stride_2)
    destination = (counts[0] * step.destination_stride_1, counts[1] * step.destination_stride_2)
    return [
        _strided(Space.SRAM, step.source_address, step.run_bytes, source, False),
        _strided(Space.SRAM, step.destination_address, step.run_bytes, destination, True),
    ]


def _fill(step: isa.Fill, _: int) -> list[Access]:
    reach = ((step.count_1 - 1) * step.stride_1, (step.count_2 - 1) * step.stride_2)
    return [_strided(Space.SRAM, step.address, step.run_bytes, reach, True)]


def _whole_groups(channels: int, alignment: int) -> int:
    return -(-channels // alignment) * alignment


# Each function takes the class its opcode stands for, which no type can say.
_ACCESSES: dict[isa.Opcode, Callable[..., list[Access]]] = {
    isa.Opcode.END: _end,
    isa.Opcode.LOAD: _transfer,
    isa.Opcode.STORE: _transfer,
    isa.Opcode.CONV: _multiply,
    isa.Opcode.DEPTHWISE: _multiply,
    isa.Opcode.REQUANTIZE: _requantize,
    isa.Opcode.ADD: _binary,
    isa.Opcode.SUBTRACT: _binary,
    isa.Opcode.MULTIPLY: _binary,
    isa.Opcode.LOOKUP: _lookup,
    isa.Opcode.MAX_POOL: _pool,
    isa.Opcode.AVERAGE_POOL: _pool,
    isa.Opcode.COPY: _copy,
    isa.Opcode.FILL: _fill,
}
