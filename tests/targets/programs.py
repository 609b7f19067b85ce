"""Random NPUs and random programs that such an NPU accepts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.targets import isa, load_target
from tilewright.targets.description import Npu
from tilewright.targets.groups import DepthwiseMapping, round_up
from tilewright.targets.isa import CommandStream, Engine, encode

SRAM_KIB = 8
ACCUMULATORS = 1024
PLAY_BYTES = 4096  # of the arena, where random transfers go
ARENA_BYTES = PLAY_BYTES + ACCUMULATORS + SRAM_KIB * 1024
CONSTANTS_BYTES = 4096


def small_npu(rng: np.random.Generator) -> Npu:
    """An NPU with little memory, so that random accesses meet, and few bytes a cycle."""
    npu = load_target("mcu-16").npu
    assert npu is not None

    def pick(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    mode = pick("diagonal", "vector", "unit")
    return replace(
        npu,
        array=replace(
            npu.array,
            rows=pick(4, 8, 16),
            columns=pick(4, 16),
            reduction=pick("flattened", "channels"),
            subarrays=pick(1, 2, 4),
            weight_double_buffer=pick(True, False),
            weight_rows_per_cycle=pick(1, 3),
        ),
        depthwise=DepthwiseMapping(mode=mode, macs_per_cycle=7 if mode == "unit" else 0),
        vector=replace(npu.vector, lanes=pick(4, 16), startup_cycles=pick(0, 5)),
        memory=replace(
            npu.memory,
            sram_kib=SRAM_KIB,
            banks=pick(1, 4),
            bank_bytes_per_cycle=pick(1, 4, 16),
            accumulator_kib=ACCUMULATORS * 4 // 1024,
            dma_latency_cycles=pick(0, 20),
            dram_gb_per_s=pick(0.5, 1.6, 7.0),
        ),
        dispatch=replace(npu.dispatch, queue_depth=pick(1, 2, 8), issue_cycles=pick(1, 9)),
        layout=replace(npu.layout, channel_alignment=pick(1, 4)),
        tables=replace(npu.tables, alignment=pick(4, 16), channels_multiple=pick(1, 8)),
    )


def random_memory(rng: np.random.Generator, size: int) -> bytearray:
    return bytearray(rng.integers(0, 256, size, dtype=np.uint8).tobytes())


def make_stream(npu: Npu, instructions: list[isa.Instruction], **sizes: int) -> bytes:
    """The binary stream of `instructions` and END, sized for the whole of a small NPU."""
    values = {
        "sram_bytes": npu.sram_bytes,
        "accumulator_bytes": npu.accumulator_bytes,
        "constants_bytes": CONSTANTS_BYTES,
        "arena_bytes": ARENA_BYTES,
    } | sizes
    return encode(CommandStream([*instructions, isa.End()], **values, target_digest=npu.digest[:8]))


class ProgramMaker:
    """Draws instructions that pass every check of the NPU it was made for."""

    def __init__(self, npu: Npu, rng: np.random.Generator) -> None:
        self.npu, self.rng = npu, rng
        self.outputs_above = True
        self.counts = dict.fromkeys(Engine, 0)

    def program(self, length: int) -> list[isa.Instruction]:
        """The SRAM filled in part, instructions at random, and all that came of it stored."""
        first = [self.transfer(isa.Load, sram_address=0) for _ in range(2)]
        rest = [self.instruction() for _ in range(length)]
        program = [self._with_waits(instruction) for instruction in [*first, *rest]]
        return program + [self._after_all(instruction) for instruction in self._dump()]

    def _dump(self) -> list[isa.Instruction]:
        """The SRAM, then every accumulator through a table of multipliers, into the arena."""
        channels, pixels = 64, ACCUMULATORS // 64
        whole = {"count_1": 1, "count_2": 1, "dram_stride_1": 0, "dram_stride_2": 0}
        whole |= {"sram_stride_1": 0, "sram_stride_2": 0}
        sram = isa.Store(
            region=1, dram_offset=PLAY_BYTES, sram_address=0, run_bytes=self.npu.sram_bytes, **whole
        )
        table = isa.Load(region=0, dram_offset=0, sram_address=0, run_bytes=4 * channels, **whole)
        view = isa.Requantize(
            accumulator_address=0, accumulator_pitch=channels, height=1, width=pixels,
            channels=channels, output_address=1024, output_row_pitch=0,
            output_pixel_pitch=channels, table_address=0, table_channels=channels,
            output_scale=1.0, output_zero=0, clip_low=-128, clip_high=127, premultiplied=True,
        )  # fmt: skip
        offset = PLAY_BYTES + self.npu.sram_bytes
        view_store = isa.Store(
            region=1, dram_offset=offset, sram_address=1024, run_bytes=ACCUMULATORS, **whole
        )
        return [sram, table, view, view_store]

    def instruction(self) -> isa.Instruction:
        makers = [
            lambda: self.transfer(isa.Load),
            lambda: self.transfer(isa.Store),
            lambda: self.multiply(isa.Conv),
            lambda: self.multiply(isa.Conv),
            lambda: self.multiply(isa.Depthwise),
            self.requantize,
            lambda: self.binary(isa.Add),
            lambda: self.binary(isa.Subtract),
            lambda: self.binary(isa.Multiply),
            self.lookup,
            lambda: self.pool(isa.MaxPool),
            lambda: self.pool(isa.AveragePool),
            self.copy,
            self.fill,
        ]
        self.outputs_above = self._flag()
        return makers[self._below(len(makers))]()

    def _with_waits(self, instruction: isa.Instruction) -> isa.Instruction:
        waits = {
            engine: count - self._below(min(count, 3))
            for engine, count in self.counts.items()
            if count and self._below(3) == 0
        }
        return self._counted(replace(instruction, waits=waits))

    def _after_all(self, instruction: isa.Instruction) -> isa.Instruction:
        waits = {engine: count for engine, count in self.counts.items() if count}
        return self._counted(replace(instruction, waits=waits))

    def _counted(self, instruction: isa.Instruction) -> isa.Instruction:
        assert instruction.engine is not None
        self.counts[instruction.engine] += 1
        return instruction

    def _below(self, end: int) -> int:
        return int(self.rng.integers(end))

    def _between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def _flag(self) -> bool:
        return bool(self._below(2))

    def _scale(self) -> float:
        return float(np.float32(2.0 ** self._between(-9, 1) * self.rng.uniform(0.5, 1)))

    def _place(self, size: int, alignment: int, room: int | None = None) -> int:
        room = self.npu.sram_bytes if room is None else room
        return self._below((room - size) // alignment + 1) * alignment

    def _apart(self, size: int, alignment: int, *, output: bool) -> int:
        """Outputs in one half of the SRAM and what is read in the other, so that none overlap."""
        half = self.npu.sram_bytes // 2
        return self._place(size, alignment, half) + half * (output == self.outputs_above)

    def _tile(self, name: str, height: int, width: int, channels: int) -> dict[str, int]:
        group = self.npu.channel_alignment
        pixel = round_up(channels, group) + group * self._below(2)
        row = width * pixel + group * self._below(3)
        size = (height - 1) * row + (width - 1) * pixel + round_up(channels, group)
        return {
            f"{name}_address": self._apart(size, group, output=name == "output"),
            f"{name}_row_pitch": row,
            f"{name}_pixel_pitch": pixel,
        }

    def _output(self, unsigned: bool) -> dict[str, int]:
        low, high = (0, 255) if unsigned else (-128, 127)
        clip_low = self._between(low, high)
        return {
            "output_zero": self._between(low, high),
            "clip_low": low if self._flag() else clip_low,
            "clip_high": high if self._flag() else self._between(clip_low, high),
        }

    def _zero(self, unsigned: bool) -> int:
        return self._between(0, 255) if unsigned else self._between(-128, 127)

    def _table(self, size: int) -> int:
        return self._place(size, self.npu.tables.alignment)

    def transfer(self, kind: type[Any], **fixed: int) -> isa.Instruction:
        run, count_1, count_2 = self._between(1, 200), self._between(1, 4), self._between(1, 3)
        backwards = self._below(4) == 0
        stride_1 = run if self._flag() else run + self._below(30)
        stride_2 = stride_1 * count_1 + self._below(20)
        sram_1, sram_2 = run + self._below(9), (run + 9) * count_1 + self._below(9)
        dram_reach = (count_1 - 1) * stride_1 + (count_2 - 1) * stride_2 + run
        sram_reach = (count_1 - 1) * sram_1 + (count_2 - 1) * sram_2 + run
        if dram_reach > PLAY_BYTES or sram_reach > self.npu.sram_bytes:
            return self.transfer(kind, **fixed)
        offset = self._place(dram_reach, 1, PLAY_BYTES)
        values: dict[str, int] = {
            "region": 1 if kind is isa.Store else self._below(2),
            "dram_offset": offset + (dram_reach - run if backwards else 0),
            "sram_address": self._place(sram_reach, 1),
            "run_bytes": run,
            "count_1": count_1,
            "count_2": count_2,
            "dram_stride_1": -stride_1 if backwards else stride_1,
            "dram_stride_2": -stride_2 if backwards else stride_2,
            "sram_stride_1": sram_1,
            "sram_stride_2": sram_2,
        }
        made = kind(**(values | fixed))
        assert isinstance(made, isa.Instruction)
        return made

    def multiply(self, kind: type[Any]) -> isa.Instruction:
        inputs = self._between(1, 9)
        extra: dict[str, int] = {}
        outputs = self._between(1, 20)
        if kind is isa.Depthwise:
            extra = {"channel_multiplier": self._between(1, 3)}
            outputs = inputs * extra["channel_multiplier"]
        height, width = self._between(1, 5), self._between(1, 11)
        kernel_h, kernel_w = self._between(1, 4), self._between(1, 4)
        rows = kernel_h * kernel_w * (inputs if kind is isa.Conv else 1)
        pitch, held = outputs + self._below(5), outputs + self._below(4)
        output_height, output_width = self._between(1, 4), self._between(1, 10)
        reach = (output_height * output_width - 1) * held + outputs
        if reach > ACCUMULATORS or (rows - 1) * pitch + outputs > self.npu.sram_bytes:
            return self.multiply(kind)
        input_unsigned, weight_unsigned = self._flag(), self._flag()
        bias = self._table(4 * self.npu.table_channels(outputs)) if self._flag() else isa.NO_BIAS
        made = kind(
            **self._tile("input", height, width, inputs),
            input_height=height, input_width=width, input_channels=inputs,
            weight_address=self._place((rows - 1) * pitch + outputs, 1),
            weight_channel_pitch=pitch,
            accumulator_address=self._place(reach, 1, ACCUMULATORS), accumulator_pitch=held,
            output_height=output_height, output_width=output_width, output_channels=outputs,
            kernel_h=kernel_h, kernel_w=kernel_w,
            stride_h=self._between(1, 3), stride_w=self._between(1, 3),
            dilation_h=self._between(1, 3), dilation_w=self._between(1, 3),
            pad_top=self._below(4), pad_left=self._below(4),
            input_zero=self._zero(input_unsigned), weight_zero=self._zero(weight_unsigned),
            bias_address=bias, accumulate=self._below(4) == 0,
            input_unsigned=input_unsigned, weight_unsigned=weight_unsigned, **extra,
        )  # fmt: skip
        assert isinstance(made, isa.Instruction)
        return made

    def requantize(self) -> isa.Instruction:
        height, width, channels = self._between(1, 4), self._between(1, 6), self._between(1, 20)
        table, unsigned = self.npu.table_channels(channels), self._flag()
        held = channels + self._below(3)
        reach = (height * width - 1) * held + channels
        return isa.Requantize(
            accumulator_address=self._place(reach, 1, ACCUMULATORS), accumulator_pitch=held,
            height=height, width=width, channels=channels,
            **self._tile("output", height, width, channels),
            table_address=self._table(4 * table), table_channels=table,
            output_scale=self._scale(), **self._output(unsigned),
            premultiplied=self._flag(), output_unsigned=unsigned,
        )  # fmt: skip

    def binary(self, kind: type[Any]) -> isa.Instruction:
        pixels, channels = self._between(1, 30), self._between(1, 20)
        group = self.npu.channel_alignment
        flags = {f"{name}_unsigned": self._flag() for name in ("a", "b", "output")}
        values: dict[str, Any] = {}
        for name in ("a", "b", "output"):
            pitch = round_up(channels, group) + group * self._below(2)
            if name == "b" and self._flag():
                pitch = 0
            size = (pixels - 1) * pitch + round_up(channels, group)
            values |= {
                f"{name}_address": self._apart(size, group, output=name == "output"),
                f"{name}_pixel_pitch": pitch,
                f"{name}_scale": self._scale(),
            }
        made = kind(
            **values, pixels=pixels, channels=channels,
            a_zero=self._zero(flags["a_unsigned"]), b_zero=self._zero(flags["b_unsigned"]),
            **self._output(flags["output_unsigned"]), **flags,
        )  # fmt: skip
        assert isinstance(made, isa.Instruction)
        return made

    def lookup(self) -> isa.Instruction:
        size = self._between(1, 4), self._between(1, 6), self._between(1, 20)
        table = self._apart(256, self.npu.tables.alignment, output=False)
        return isa.Lookup(
            **self._tile("input", *size), **self._tile("output", *size),
            height=size[0], width=size[1], channels=size[2], table_address=table,
        )  # fmt: skip

    def pool(self, kind: type[Any]) -> isa.Instruction:
        height, width, channels = self._between(1, 6), self._between(1, 6), self._between(1, 20)
        kernel_h, kernel_w = self._between(1, 4), self._between(1, 4)
        stride_h, stride_w = self._between(1, 3), self._between(1, 3)
        top, left = self._below(kernel_h), self._below(kernel_w)
        output_height = self._between(1, (height + top - 1) // stride_h + 1)
        output_width = self._between(1, (width + left - 1) // stride_w + 1)
        unsigned = self._flag()
        output_unsigned = unsigned if kind is isa.MaxPool else self._flag()
        made = kind(
            **self._tile("input", height, width, channels),
            **self._tile("output", output_height, output_width, channels),
            input_height=height, input_width=width, channels=channels,
            output_height=output_height, output_width=output_width,
            kernel_h=kernel_h, kernel_w=kernel_w, stride_h=stride_h, stride_w=stride_w,
            pad_top=top, pad_left=left, pad_bottom=self._below(4), pad_right=self._below(4),
            input_scale=self._scale(), output_scale=self._scale(),
            input_zero=self._zero(unsigned), **self._output(output_unsigned),
            count_include_pad=self._flag(), input_unsigned=unsigned,
            output_unsigned=output_unsigned,
        )  # fmt: skip
        assert isinstance(made, isa.Instruction)
        return made

    def copy(self) -> isa.Instruction:
        run, count_1, count_2 = self._between(1, 60), self._between(1, 4), self._between(1, 4)
        strides = [self._below(100) for _ in range(4)]
        source = (count_1 - 1) * strides[0] + (count_2 - 1) * strides[1] + run
        destination = (count_1 - 1) * strides[2] + (count_2 - 1) * strides[3] + run
        return isa.Copy(
            source_address=self._place(source, 1), destination_address=self._place(destination, 1),
            run_bytes=run, count_1=count_1, count_2=count_2,
            source_stride_1=strides[0], source_stride_2=strides[1],
            destination_stride_1=strides[2], destination_stride_2=strides[3],
        )  # fmt: skip

    def fill(self) -> isa.Instruction:
        run, count_1, count_2 = self._between(1, 60), self._between(1, 4), self._between(1, 4)
        stride_1, stride_2 = self._below(100), self._below(100)
        reach = (count_1 - 1) * stride_1 + (count_2 - 1) * stride_2 + run
        return isa.Fill(
            address=self._place(reach, 1), run_bytes=run, count_1=count_1, count_2=count_2,
            stride_1=stride_1, stride_2=stride_2, value=self._below(256),
        )  # fmt: skip
