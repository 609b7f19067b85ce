"""A second, slow NPU in plain Python: values one pixel at a time, time by letting clocks tick.

It shares the instruction classes and the cost of an instruction that runs alone with the
simulator's Python side, and nothing with its C code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from tilewright.targets import isa
from tilewright.targets.description import Npu
from tilewright.targets.timing import Cost, cost, dram_millibytes_per_cycle


@dataclass
class Running:
    index: int
    start: int
    end: int
    cost: Cost
    banks: set[int]


@dataclass
class Queue:
    waiting: list[int] = field(default_factory=list)
    running: Running | None = None
    completed: int = 0
    free_at: int = 0
    sync_wait: int = 0


class SlowMachine:
    """`run` executes a stream; afterwards arena, spans and cycles hold what happened."""

    def __init__(self, npu: Npu, constants: bytes, arena: bytearray) -> None:
        self.npu = npu
        self.constants = np.frombuffer(constants, np.uint8)
        self.arena = np.frombuffer(arena, np.uint8)
        self.sram = np.full(npu.sram_bytes, 0xA5, np.uint8)
        self.accumulator = np.full(npu.accumulator_bytes // 4, 0xA5A5A5A5, np.uint32).view(np.int32)
        self.spans: dict[int, tuple[int, int]] = {}
        self.issue_times: dict[int, int] = {}
        self.cycles = 0
        self.queues = {engine: Queue() for engine in isa.Engine}
        self.channel_free_at = 0

    def run(self, instructions: list[isa.Instruction]) -> None:
        now = issued_at = issued = 0
        while issued < len(instructions) or any(q.waiting or q.running for q in self._all()):
            for queue in self._all():
                if queue.running and queue.running.end <= now:
                    queue.running, queue.completed = None, queue.completed + 1
            if issued < len(instructions) and now >= issued_at + self.npu.dispatch.issue_cycles:
                engine = instructions[issued].engine
                if engine is None:
                    issued, issued_at = issued + 1, now
                elif self._has_room(self.queues[engine]):
                    self.queues[engine].waiting.append(issued)
                    self.issue_times[issued] = now
                    issued, issued_at = issued + 1, now
            for queue in self._all():
                if queue.waiting and not queue.running:
                    self._start(queue, instructions[queue.waiting[0]], now)
            ends = [q.running.end for q in self._all() if q.running]
            next_issue = issued_at + self.npu.dispatch.issue_cycles
            self.cycles = max([now, *ends])
            now = min([*ends, *([next_issue] if next_issue > now else [])], default=now)

    def _all(self) -> list[Queue]:
        return list(self.queues.values())

    def _has_room(self, queue: Queue) -> bool:
        return len(queue.waiting) + bool(queue.running) < self.npu.dispatch.queue_depth

    def _start(self, queue: Queue, instruction: isa.Instruction, now: int) -> None:
        if any(self.queues[e].completed < count for e, count in instruction.waits.items()):
            return
        index = queue.waiting.pop(0)
        alone = cost(self.npu, instruction)
        banks = self._banks(instruction)
        lost = self._conflicts(queue, alone, banks, now)
        if isinstance(instruction, isa.Load | isa.Store):
            lost += self._take_channel(alone, now)
        queue.running = Running(index, now, now + alone.cycles + lost, alone, banks)
        self.spans[index] = (now, queue.running.end)
        queue.sync_wait += now - max(self.issue_times[index], queue.free_at)
        queue.free_at = queue.running.end
        getattr(self, "_do_" + instruction.opcode.name.lower())(instruction)

    def _take_channel(self, alone: Cost, now: int) -> int:
        wanted = now + self.npu.memory.dma_latency_cycles
        begin = max(wanted, self.channel_free_at)
        rate = dram_millibytes_per_cycle(self.npu)
        self.channel_free_at = begin + -(-alone.dram_burst_bytes * 1000 // rate)
        return begin - wanted

    def _conflicts(self, queue: Queue, alone: Cost, banks: set[int], now: int) -> int:
        lost = 0
        for other in self._all():
            if other is queue or other.running is None:
                continue
            them = other.running
            shared = len(banks & them.banks)
            overlap = min(alone.cycles, them.end - now)
            if not shared or overlap <= 0:
                continue
            theirs = (them.cost.sram_read + them.cost.sram_written) * shared // len(them.banks)
            ours = (alone.sram_read + alone.sram_written) * shared // len(banks)
            traffic = ours * overlap // alone.cycles + theirs * overlap // (them.end - them.start)
            bandwidth = shared * self.npu.memory.bank_bytes_per_cycle
            lost += max(0, traffic - bandwidth * overlap) // bandwidth
        return lost

    def _banks(self, i: Any) -> set[int]:
        size = self.npu.sram_bytes // self.npu.memory.banks
        touched = {b // size for low, high in ranges(i) for b in range(low, high)}
        return touched

    # Memory, byte by byte addressed.

    def _tile(self, address: int, h: int, w: int, row: int, pixel: int, c: int) -> np.ndarray:
        """Indices into SRAM of a tile's elements, [h, w, c]."""
        y, x, channel = np.ogrid[:h, :w, :c]
        return np.asarray(address + y * row + x * pixel + channel)

    def _values(self, index: np.ndarray, unsigned: bool) -> np.ndarray:
        raw = self.sram[index]
        return raw.astype(np.int64) if unsigned else raw.view(np.int8).astype(np.int64)

    def _walk(self, address: int, i: Any, stride_1: int, stride_2: int) -> np.ndarray:
        outer, inner, byte = np.ogrid[: i.count_2, : i.count_1, : i.run_bytes]
        return np.asarray(address + outer * stride_2 + inner * stride_1 + byte)

    def _table(self, address: int, count: int, dtype: type) -> np.ndarray:
        return np.frombuffer(self.sram[address : address + 4 * count].tobytes(), dtype)

    # Instructions.

    def _do_load(self, i: isa.Load) -> None:
        source = self.arena if i.region == isa.DramRegion.ARENA else self.constants
        from_ = self._walk(i.dram_offset, i, i.dram_stride_1, i.dram_stride_2)
        to = self._walk(i.sram_address, i, i.sram_stride_1, i.sram_stride_2)
        for a, b in zip(from_.reshape(-1, i.run_bytes), to.reshape(-1, i.run_bytes), strict=True):
            self.sram[b] = source[a]

    def _do_store(self, i: isa.Store) -> None:
        from_ = self._walk(i.sram_address, i, i.sram_stride_1, i.sram_stride_2)
        to = self._walk(i.dram_offset, i, i.dram_stride_1, i.dram_stride_2)
        for a, b in zip(from_.reshape(-1, i.run_bytes), to.reshape(-1, i.run_bytes), strict=True):
            self.arena[b] = self.sram[a]

    def _do_copy(self, i: isa.Copy) -> None:
        from_ = self._walk(i.source_address, i, i.source_stride_1, i.source_stride_2)
        to = self._walk(i.destination_address, i, i.destination_stride_1, i.destination_stride_2)
        for a, b in zip(from_.reshape(-1, i.run_bytes), to.reshape(-1, i.run_bytes), strict=True):
            self.sram[b] = self.sram[a]

    def _do_fill(self, i: isa.Fill) -> None:
        self.sram[self._walk(i.address, i, i.stride_1, i.stride_2)] = i.value

    def _do_conv(self, i: isa.Conv) -> None:
        rows = i.kernel_h * i.kernel_w * i.input_channels
        index = self._tile(i.weight_address, 1, rows, 0, i.weight_channel_pitch, i.output_channels)
        weights = self._values(index, i.weight_unsigned) - i.weight_zero
        shape = (i.kernel_h, i.kernel_w, i.input_channels, i.output_channels)
        self._multiply(i, lambda ky, kx, pixel: pixel @ weights.reshape(shape)[ky, kx])

    def _do_depthwise(self, i: isa.Depthwise) -> None:
        taps = i.kernel_h * i.kernel_w
        index = self._tile(i.weight_address, 1, taps, 0, i.weight_channel_pitch, i.output_channels)
        weights = self._values(index, i.weight_unsigned) - i.weight_zero
        shape = (i.kernel_h, i.kernel_w, i.output_channels)
        self._multiply(
            i,
            lambda ky, kx, pixel: (
                np.repeat(pixel, i.channel_multiplier) * weights.reshape(shape)[ky, kx]
            ),
        )

    def _multiply(self, i: Any, product: Any) -> None:
        index = self._tile(
            i.input_address, i.input_height, i.input_width, i.input_row_pitch,
            i.input_pixel_pitch, i.input_channels,
        )  # fmt: skip
        tile = self._values(index, i.input_unsigned) - i.input_zero
        for y in range(i.output_height):
            for x in range(i.output_width):
                place = i.accumulator_address + (y * i.output_width + x) * i.accumulator_pitch
                held = self.accumulator[place : place + i.output_channels]
                if i.accumulate:
                    total = held.astype(np.int64)
                elif i.bias_address == isa.NO_BIAS:
                    total = np.zeros(i.output_channels, np.int64)
                else:
                    table = self._table(i.bias_address, i.output_channels, np.int32)
                    total = table.astype(np.int64)
                for ky in range(i.kernel_h):
                    for kx in range(i.kernel_w):
                        iy = y * i.stride_h - i.pad_top + ky * i.dilation_h
                        ix = x * i.stride_w - i.pad_left + kx * i.dilation_w
                        if 0 <= iy < i.input_height and 0 <= ix < i.input_width:
                            total = total + product(ky, kx, tile[iy, ix])
                held[:] = total.astype(np.int32)  # wraps as int32 does

    def _do_requantize(self, i: isa.Requantize) -> None:
        multipliers = self._table(i.table_address, i.channels, np.float32)
        output = self._tile(
            i.output_address, i.height, i.width, i.output_row_pitch, i.output_pixel_pitch,
            i.channels,
        )  # fmt: skip
        for pixel, index in enumerate(output.reshape(-1, i.channels)):
            place = i.accumulator_address + pixel * i.accumulator_pitch
            held = self.accumulator[place : place + i.channels].astype(np.float32)
            with np.errstate(over="ignore"):
                value = held * multipliers
                if not i.premultiplied:
                    value = value / np.float32(i.output_scale)
            self._write(index, np.rint(value), i)

    def _write(self, index: np.ndarray, rounded: np.ndarray, i: Any) -> None:
        limited = np.clip(rounded.astype(np.float64) + i.output_zero, i.clip_low, i.clip_high)
        self.sram[index] = limited.astype(np.int64).astype(np.uint8)

    def _binary(self, i: Any, operate: Any) -> None:
        with np.errstate(over="ignore"):
            for p in range(i.pixels):
                channels = np.arange(i.channels)
                a = self._values(i.a_address + p * i.a_pixel_pitch + channels, i.a_unsigned)
                b = self._values(i.b_address + p * i.b_pixel_pitch + channels, i.b_unsigned)
                left = (a - i.a_zero).astype(np.float32) * np.float32(i.a_scale)
                right = (b - i.b_zero).astype(np.float32) * np.float32(i.b_scale)
                value = operate(left, right) / np.float32(i.output_scale)
                index = i.output_address + p * i.output_pixel_pitch + channels
                self._write(index, np.rint(value), i)

    def _do_add(self, i: isa.Add) -> None:
        self._binary(i, np.add)

    def _do_subtract(self, i: isa.Subtract) -> None:
        self._binary(i, np.subtract)

    def _do_multiply(self, i: isa.Multiply) -> None:
        self._binary(i, np.multiply)

    def _do_lookup(self, i: isa.Lookup) -> None:
        size = (i.height, i.width)
        source = self._tile(
            i.input_address, *size, i.input_row_pitch, i.input_pixel_pitch, i.channels
        )
        to = self._tile(
            i.output_address, *size, i.output_row_pitch, i.output_pixel_pitch, i.channels
        )
        for y in range(i.height):
            for x in range(i.width):
                self.sram[to[y, x]] = self.sram[
                    i.table_address + self.sram[source[y, x]].astype(int)
                ]

    def _do_max_pool(self, i: isa.MaxPool) -> None:
        self._pool(i, lambda taps, _padded: max(taps))

    def _do_average_pool(self, i: isa.AveragePool) -> None:
        def average(taps: list[int], padded: int) -> int:
            total = sum(taps) - len(taps) * i.input_zero
            count = padded if i.count_include_pad else len(taps)
            exact = Fraction(total) * Fraction(i.input_scale) / (count * Fraction(i.output_scale))
            return round(exact) + i.output_zero

        self._pool(i, average)

    def _pool(self, i: Any, reduce: Any) -> None:
        source = self._tile(
            i.input_address, i.input_height, i.input_width, i.input_row_pitch,
            i.input_pixel_pitch, i.channels,
        )  # fmt: skip
        to = self._tile(
            i.output_address, i.output_height, i.output_width, i.output_row_pitch,
            i.output_pixel_pitch, i.channels,
        )  # fmt: skip
        tile = self._values(source, i.input_unsigned)
        for y in range(i.output_height):
            for x in range(i.output_width):
                rows = range(y * i.stride_h - i.pad_top, y * i.stride_h - i.pad_top + i.kernel_h)
                columns = range(
                    x * i.stride_w - i.pad_left, x * i.stride_w - i.pad_left + i.kernel_w
                )
                padded = sum(
                    row < i.input_height + i.pad_bottom and column < i.input_width + i.pad_right
                    for row in rows
                    for column in columns
                )
                inside = [
                    tile[row, column]
                    for row in rows
                    for column in columns
                    if 0 <= row < i.input_height and 0 <= column < i.input_width
                ]
                for c in range(i.channels):
                    value = reduce([int(pixel[c]) for pixel in inside], padded)
                    limited = min(max(value, i.clip_low), i.clip_high)
                    self.sram[to[y, x, c]] = limited & 0xFF


def ranges(i: Any) -> list[tuple[int, int]]:
    """Hulls of what an instruction touches in SRAM, first byte and one past the last."""

    def tile(address: int, h: int, w: int, row: int, pixel: int, c: int) -> tuple[int, int]:
        return address, address + (h - 1) * row + (w - 1) * pixel + c

    def walk(address: int, stride_1: int, stride_2: int) -> tuple[int, int]:
        reach = (i.count_1 - 1) * stride_1 + (i.count_2 - 1) * stride_2
        return address, address + reach + i.run_bytes

    match i:
        case isa.Load() | isa.Store():
            return [walk(i.sram_address, i.sram_stride_1, i.sram_stride_2)]
        case isa.Copy():
            return [
                walk(i.source_address, i.source_stride_1, i.source_stride_2),
                walk(i.destination_address, i.destination_stride_1, i.destination_stride_2),
            ]
        case isa.Fill():
            return [walk(i.address, i.stride_1, i.stride_2)]
        case isa.Conv() | isa.Depthwise():
            rows = i.kernel_h * i.kernel_w
            rows *= i.input_channels if isinstance(i, isa.Conv) else 1
            found = [
                tile(
                    i.input_address, i.input_height, i.input_width, i.input_row_pitch,
                    i.input_pixel_pitch, i.input_channels,
                ),
                tile(
                    i.weight_address, 1, rows, 0, i.weight_channel_pitch, i.output_channels
                ),
            ]  # fmt: skip
            if i.bias_address != isa.NO_BIAS and not i.accumulate:
                found.append((i.bias_address, i.bias_address + 4 * i.output_channels))
            return found
        case isa.Requantize():
            return [
                (i.table_address, i.table_address + 4 * i.channels),
                tile(
                    i.output_address, i.height, i.width, i.output_row_pitch,
                    i.output_pixel_pitch, i.channels,
                ),
            ]  # fmt: skip
        case isa.Add() | isa.Subtract() | isa.Multiply():
            return [
                tile(i.a_address, 1, i.pixels, 0, i.a_pixel_pitch, i.channels),
                tile(i.b_address, 1, i.pixels, 0, i.b_pixel_pitch, i.channels),
                tile(i.output_address, 1, i.pixels, 0, i.output_pixel_pitch, i.channels),
            ]
        case isa.Lookup():
            return [
                tile(
                    i.input_address, i.height, i.width, i.input_row_pitch, i.input_pixel_pitch,
                    i.channels,
                ),
                tile(
                    i.output_address, i.height, i.width, i.output_row_pitch,
                    i.output_pixel_pitch, i.channels,
                ),
                (i.table_address, i.table_address + 256),
            ]  # fmt: skip
        case isa.MaxPool() | isa.AveragePool():
            return [
                tile(
                    i.input_address, i.input_height, i.input_width, i.input_row_pitch,
                    i.input_pixel_pitch, i.channels,
                ),
                tile(
                    i.output_address, i.output_height, i.output_width, i.output_row_pitch,
                    i.output_pixel_pitch, i.channels,
                ),
            ]  # fmt: skip
    return []
