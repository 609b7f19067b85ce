"""A board in words: its peak speed and how that follows, its balance, and its bottlenecks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tilewright.targets.description import Cpu, Npu, Target, read_target
from tilewright.targets.errors import TargetError
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
    energy = npu.energy
    if energy.mac_pj > 0:
        watts = npu.macs_per_cycle * npu.clock_mhz * 1e6 * energy.mac_pj * 1e-12
        watts += energy.idle_mw / 1000
        yield (
            f"energy     {npu.peak_tops / watts:.3g} TOPS/W at peak, counting MACs and idle power "
            f"alone ({watts:.3g} W)"
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
    if machine_balance(npu) > 2 * npu.sram_bytes:
        yield "no operator that fits the SRAM does enough operations a byte to reach the peak"
