"""Measure a board by micro-benchmarks: the numbers of a description that follow from times.

Each benchmark is a command stream of a few instructions of one engine. What an instruction takes is
the difference of running it often and half as often, so that what launching a stream takes cancels.
From what size, in steps, an instruction takes longer, the sizes of array and engines follow; the
formulas are those of targets/timing.py, solved for the number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.targets import isa
from tilewright.targets.board_timer import BoardTimer
from tilewright.targets.errors import ProfileError
from tilewright.targets.groups import Npu, round_up

_REPEATS = 8
_MANY_REPEATS = 512  # of short instructions, so that they outweigh a clock's noise
_LARGEST_SIDE = 1024  # of an array that a description allows
_ARENA_BYTES = 1 << 21


@dataclass(frozen=True)
class Fitted:
    """A key of [npu], as `memory.dram_gb_per_s`: what the description says, what was measured."""

    key: str
    described: float
    measured: float

    @property
    def difference(self) -> float:
        """As a fraction of what is described."""
        return self.measured / self.described - 1 if self.described else float("inf")


def probe(npu: Npu, timer: BoardTimer) -> list[Fitted]:
    """The numbers of the board behind `timer`, which runs streams made for `npu`.

    Clock, sizes of memories, alignments and modes are taken from the description. Numbers that no
    benchmark shows, such as bank widths, are left out. Raises ProfileError when the times of the
    board make no sense.
    """
    bench = _Bench(npu, timer)
    pairs = [*_array(bench), *_depthwise(bench), *_vector(bench), *_memory(bench)]
    return [Fitted(key, _described(npu, key), value) for key, value in pairs]


def _described(npu: Npu, key: str) -> float:
    group, _, name = key.partition(".")
    return float(getattr(getattr(npu, group), name))


@dataclass(frozen=True)
class _Bench:
    """Cycles of instructions on the board."""

    npu: Npu
    timer: BoardTimer

    def cycles(self, instruction: isa.Instruction, repeats: int = _REPEATS) -> float:
        """Of one among many of its kind."""
        often = self.total([instruction] * 2 * repeats)
        return (often - self.total([instruction] * repeats)) / repeats

    def total(self, instructions: list[isa.Instruction]) -> float:
        stream = isa.CommandStream(
            [*instructions, isa.End()],
            self.npu.sram_bytes,
            self.npu.accumulator_bytes,
            0,
            _ARENA_BYTES,
            self.npu.digest[:8],
        )
        return self.timer(isa.encode(stream), b"", _ARENA_BYTES) * self.npu.clock_mhz

    @property
    def accumulators(self) -> int:
        return self.npu.accumulator_bytes // 4


def _array(bench: _Bench) -> list[tuple[str, float]]:
    """Rows and columns by the first size that needs another pass, sub-arrays by the pixels' share.

    One pass of M pixels takes M cycles and constants, M / sub-arrays where these divide the rows.
    """
    narrow = bench.npu.channel_alignment
    pixels = min(4096, bench.accumulators // narrow)
    # Twice as many pixels take as many cycles more as one part works on.
    share = _positive(_conv(bench, pixels) - _conv(bench, pixels // 2), "pixels") / (pixels / 2)
    subarrays = max(1, round(1 / share))
    part = _most_of(pixels // subarrays)
    rows_of_part = _last(
        lambda inputs: _conv(bench, pixels, inputs) - _conv(bench, pixels) < part,
        min(_LARGEST_SIDE, bench.npu.sram_bytes // narrow),
    )
    columns = _last(lambda outputs: _is_one_pass(bench, outputs, subarrays), _LARGEST_SIDE)
    found = [
        ("array.rows", float(rows_of_part * subarrays)),
        ("array.columns", float(columns)),
        ("array.subarrays", float(subarrays)),
    ]
    if bench.npu.array.weight_double_buffer:
        # A pixel a part: what the rows' weights take to load is not lost among them.
        few = [
            bench.cycles(isa.Conv(**_multiply(bench.npu, subarrays, inputs, 1)), _MANY_REPEATS)
            for inputs in (1, rows_of_part)
        ]
        loading = max(1.0, 1 + few[1] - few[0])
        found.append(("array.weight_rows_per_cycle", float(round(rows_of_part / loading))))
    return found


def _most_of(pixels: int) -> float:
    """Cycles that tell another pass from weights that take longer to load."""
    return 0.75 * pixels


def _is_one_pass(bench: _Bench, outputs: int, subarrays: int) -> bool:
    pixels = min(4096, bench.accumulators // outputs)
    longer = _conv(bench, pixels, outputs=outputs) - _conv(bench, pixels)
    return longer < _most_of(-(-pixels // subarrays))


def _conv(bench: _Bench, pixels: int, inputs: int = 1, outputs: int = 1) -> float:
    return bench.cycles(isa.Conv(**_multiply(bench.npu, pixels, inputs, outputs)))


def _multiply(npu: Npu, pixels: int, inputs: int, outputs: int, kernel: int = 1) -> dict[str, Any]:
    """A row of `pixels`, all read from one place, so that any size fits the SRAM."""
    return {
        "input_address": 0,
        "input_row_pitch": 0,
        "input_pixel_pitch": 0,
        "input_height": kernel,
        "input_width": pixels + kernel - 1,
        "input_channels": inputs,
        "weight_address": 0,
        "weight_channel_pitch": round_up(outputs, npu.channel_alignment),
        "accumulator_address": 0,
        "accumulator_pitch": outputs,
        "output_height": 1,
        "output_width": pixels,
        "output_channels": outputs,
        "kernel_h": kernel,
        "kernel_w": kernel,
        "stride_h": 1,
        "stride_w": 1,
        "dilation_h": 1,
        "dilation_w": 1,
        "pad_top": 0,
        "pad_left": 0,
        "input_zero": 0,
        "weight_zero": 0,
        "bias_address": isa.NO_BIAS,
    }


def _depthwise(bench: _Bench) -> list[tuple[str, float]]:
    """MACs a cycle of a unit of its own, by the cycles of large kernels."""
    if bench.npu.depthwise.mode != "unit":
        return []
    channels = bench.npu.channel_alignment
    pixels, kernel = min(2048, bench.accumulators // channels), 7

    def cycles(width: int) -> float:
        fields = _multiply(bench.npu, width, channels, channels, kernel)
        return bench.cycles(isa.Depthwise(**fields, channel_multiplier=1))

    half = pixels // 2
    longer = _positive(cycles(pixels) - cycles(pixels - half), "depthwise convolutions")
    return [("depthwise.macs_per_cycle", float(round(half * channels * kernel**2 / longer)))]


def _vector(bench: _Bench) -> list[tuple[str, float]]:
    """Lanes by what twice as many elements take, startup by what remains."""
    large = bench.npu.sram_bytes // 2

    def fill(elements: int) -> isa.Instruction:
        return isa.Fill(
            address=0, run_bytes=elements, count_1=1, count_2=1, stride_1=0, stride_2=0, value=0
        )

    longer = _positive(bench.cycles(fill(2 * large)) - bench.cycles(fill(large)), "fills")
    lanes = max(1, round(large / longer))
    short = min(16, large // lanes)  # cycles of work, more than issuing takes
    startup = max(0.0, bench.cycles(fill(short * lanes), _MANY_REPEATS) - short)
    return [("vector.lanes", float(lanes)), ("vector.startup_cycles", float(round(startup)))]


def _memory(bench: _Bench) -> list[tuple[str, float]]:
    """One transfer shows the slower of port and DRAM, a load beside a store the DRAM alone."""
    npu = bench.npu
    size = min(npu.sram_bytes // 2, _ARENA_BYTES // 4) // 4096 * 4096

    def load(nbytes: int, run: int = 0, stride: int = 0) -> isa.Instruction:
        return isa.Load(**_transfer(0, 0, run or nbytes, nbytes // (run or nbytes), stride))

    store = isa.Store(**_transfer(_ARENA_BYTES // 2, size, size, 1, 0))
    longer = _positive(bench.cycles(load(size)) - bench.cycles(load(size // 2)), "loads")
    rate = size / 2 / longer
    together = bench.total([load(size), store]) - bench.total([load(size)])
    channel = size / _positive(together, "loads beside stores")
    run, runs = npu.layout.dram_channels_multiple, 128
    scattered = bench.cycles(load(2 * run * runs, run, 4096))
    scattered -= bench.cycles(load(run * runs, run, 4096))
    burst = scattered * rate / runs
    latency = max(0.0, bench.cycles(load(run), _MANY_REPEATS) - burst / rate)
    found = [
        ("memory.dram_gb_per_s", round(channel * npu.clock_mhz / 1000, 4)),
        ("memory.dma_latency_cycles", float(round(latency))),
        ("memory.burst_bytes", float(round(burst))),
    ]
    if rate < 0.98 * channel:
        found.append(("memory.dma_bytes_per_cycle", float(round(rate))))
    return found


def _transfer(dram: int, sram: int, run: int, count: int, stride: int) -> dict[str, Any]:
    return {
        "region": isa.DramRegion.ARENA,
        "dram_offset": dram,
        "sram_address": sram,
        "run_bytes": run,
        "count_1": count,
        "count_2": 1,
        "dram_stride_1": stride,
        "dram_stride_2": 0,
        "sram_stride_1": run if count > 1 else 0,
        "sram_stride_2": 0,
    }


def _last(holds: Callable[[int], bool], largest: int) -> int:
    """The largest size up to `largest` for which `holds`, which does not come back once gone."""
    low, high = 1, 2
    while high <= largest and holds(high):
        low, high = high, 2 * high
    if high > largest:
        high = largest + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _positive(cycles: float, what: str) -> float:
    if cycles <= 0:
        raise ProfileError(
            f"probe: twice as many {what} take no longer ({cycles:g} cycles): "
            "does the command time the stream it is given?"
        )
    return cycles
