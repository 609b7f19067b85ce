"""A board in words: its peak speed and how that follows, its balance, and its bottlenecks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tilewright.targets.description import Cpu, Npu, Target, read_target
from tilewright.targets.errors import TargetError
from tilewright.targets.groups import Thermal
from tilewright.targets.schema import DescriptionError


def check(path: str | os.PathLike[str]) -> list[str]:
    """Mistakes in the description at `path`; empty when it is sound."""
    try:
        read_target(Path(path))
    except DescriptionError as error:
        return error.mistakes
    except TargetError as error:
        return [str(error)]
    return []


def describe(target: Target) -> str:
    """What `target show` prints."""
    lines = [f"{target.name}: {target.summary}" if target.summary else target.name]
    if target.npu is not None:
        lines += _npu_lines(target.npu)
    lines += _cpu_lines(target.cpu)
    limit = target.memory.arena_limit_bytes
    if limit is not None:
        reserve = f", {target.memory.reserve_percent:g} % kept free"
        lines.append(f"memory     arena up to {limit / 1024:,.0f} KiB{reserve}")
    lines += [f"warning    {text}" for text in bottlenecks(target)]
    return "\n".join(lines)


def bottlenecks(target: Target) -> list[str]:
    """What will hold the board back whatever the model, each with its reason."""
    return [] if target.npu is None else list(_npu_bottlenecks(target.npu))


def machine_balance(npu: Npu) -> float:
    """Operations (two a MAC) the array does while DRAM delivers one byte."""
    return 2 * npu.macs_per_cycle / npu.dram_bytes_per_cycle


def peak_watts(npu: Npu) -> float:
    """What the array at its peak and idle power draw; memory traffic comes on top."""
    macs_per_second = npu.macs_per_cycle * npu.clock_mhz * 1e6
    return macs_per_second * npu.energy.mac_pj * 1e-12 + npu.energy.idle_mw / 1000


def cool_watts(thermal: Thermal) -> float:
    """The most that can be drawn for ever without reaching the first throttle point."""
    return (thermal.throttle_c[0] - thermal.ambient_c) / thermal.resistance_k_per_w


def _npu_lines(npu: Npu) -> Iterator[str]:
    array, memory = npu.array, npu.memory
    yield (
        f"npu        {npu.peak_tops:.4g} TOPS int8 peak = {array.rows} rows x {array.columns} "
        f"columns = {npu.macs_per_cycle:,} MACs x 2 operations x {npu.clock_mhz:g} MHz"
    )
    yield (
        f"           {array.reduction} reduction, {array.subarrays} sub-array"
        f"{'s' if array.subarrays > 1 else ''}, weights "
        f"{'double-buffered' if array.weight_double_buffer else 'single-buffered'}"
    )
    yield (
        f"           depthwise by {npu.depthwise.mode}: up to {npu.depthwise_macs_per_cycle:,} "
        f"MACs a cycle; vector engine {npu.vector.lanes} lanes"
    )
    yield (
        f"sram       {memory.sram_kib:,} KiB in {memory.banks} banks, accumulators "
        f"{memory.accumulator_kib:,} KiB"
    )
    yield (
        f"dram       {memory.dram_gb_per_s:g} GB/s = {npu.dram_bytes_per_cycle:.4g} bytes a cycle, "
        f"bursts of {memory.burst_bytes} bytes after {memory.dma_latency_cycles} cycles"
    )
    yield (
        f"balance    {machine_balance(npu):,.4g} operations a byte of DRAM: an operator that does "
        "fewer is bound by memory"
    )
    if npu.energy.mac_pj > 0:
        watts = peak_watts(npu)
        yield (
            f"energy     {npu.peak_tops / watts:.3g} TOPS/W at peak, counting MACs and idle power "
            f"alone ({watts:.3g} W)"
        )
    if npu.thermal is not None:
        thermal = npu.thermal
        yield (
            f"heat       slowed from {thermal.throttle_c[0]:g} C on: above "
            f"{cool_watts(thermal):.3g} W for long, at {thermal.ambient_c:g} C around it"
        )


def _cpu_lines(cpu: Cpu) -> Iterator[str]:
    yield (
        f"cpu        {cpu.cores} x {cpu.cpu} ({cpu.triple}), {cpu.clock_mhz:g} MHz: "
        f"{cpu.peak_gflops:.4g} GFLOP/s float32 peak, {cpu.dram_gb_per_s:g} GB/s"
    )


def _npu_bottlenecks(npu: Npu) -> Iterator[str]:
    array, memory = npu.array, npu.memory
    if memory.dma_bytes_per_cycle < npu.dram_bytes_per_cycle:
        yield (
            f"dma_bytes_per_cycle = {memory.dma_bytes_per_cycle} takes less than DRAM delivers "
            f"({npu.dram_bytes_per_cycle:.4g} bytes a cycle)"
        )
    if npu.depthwise_macs_per_cycle * 64 < npu.macs_per_cycle:
        yield (
            f"depthwise reaches {npu.depthwise_macs_per_cycle:,} of {npu.macs_per_cycle:,} MACs a "
            "cycle: networks of depthwise convolutions will wait for it"
        )
    if npu.vector.lanes * 4 < array.columns:
        yield (
            f"vector.lanes = {npu.vector.lanes} requantise fewer than a quarter of the "
            f"{array.columns} columns' results a cycle: layers with few inputs wait for them"
        )
    pixels = npu.accumulator_bytes // (4 * array.columns)
    load = array.rows // array.weight_rows_per_cycle
    if array.weight_double_buffer and pixels < load:
        yield (
            f"accumulators hold {pixels} pixels, weights of a pass take {load} cycles to load: "
            "the array waits for weights"
        )
    if npu.thermal is not None and peak_watts(npu) > cool_watts(npu.thermal):
        yield (
            f"the array at its peak draws {peak_watts(npu):.3g} W, cooling takes "
            f"{cool_watts(npu.thermal):.3g} W before the clock is lowered: long loads are slowed"
        )
    if machine_balance(npu) > 2 * npu.sram_bytes:
        yield "no operator that fits the SRAM does enough operations a byte to reach the peak"
