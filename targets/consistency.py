"""Combinations of numbers, each allowed alone, that no hardware could have."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tilewright.targets.groups import Cpu, Npu
from tilewright.targets.schema import DescriptionError

_ARCHITECTURES = (
    "aarch64", "arm", "armv7", "armv7a", "armv8a", "thumbv6m", "thumbv7m", "thumbv7em",
    "thumbv8m.base", "thumbv8m.main", "thumbv8.1m.main", "riscv32", "riscv64", "x86_64", "i686",
)  # fmt: skip


def check_consistency(cpu: Cpu, npu: Npu | None, origin: str) -> None:
    """Raise DescriptionError with every combination that cannot be."""
    problems = [*_cpu_problems(cpu), *_npu_problems(npu)]
    if problems:
        raise DescriptionError([f"{origin}: {problem}" for problem in problems])


def _cpu_problems(cpu: Cpu) -> Iterator[str]:
    architecture = cpu.triple.partition("-")[0]
    if not cpu.is_native and architecture not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        yield (
            f'cpu.triple = "{cpu.triple}": unknown architecture "{architecture}"; '
            f'write "native" or a triple that starts with one of {known}'
        )
    if not cpu.cores:
        yield 'cpu.cores is missing; only a "native" CPU counts its own'
    if cpu.vector_bits and (cpu.vector_bits < 64 or cpu.vector_bits & (cpu.vector_bits - 1)):
        yield f"cpu.vector_bits = {cpu.vector_bits} must be 0 or a power of two from 64"


def _npu_problems(npu: Npu | None) -> Iterator[str]:
    if npu is None:
        return
    yield from _array_problems(npu)
    yield from _memory_problems(npu)
    for name, value in (
        ("npu.layout.channel_alignment", npu.layout.channel_alignment),
        ("npu.tables.alignment", npu.tables.alignment),
        ("npu.memory.burst_bytes", npu.memory.burst_bytes),
    ):
        if value & (value - 1):
            yield f"{name} = {value} must be a power of two"
    yield from _thermal_problems(npu)
    if npu.tables.alignment < 4:
        yield f"npu.tables.alignment = {npu.tables.alignment}: int32 tables need 4 or more"


def _array_problems(npu: Npu) -> Iterator[str]:
    array, depthwise = npu.array, npu.depthwise
    if array.rows % array.subarrays:
        yield (
            f"npu.array.subarrays = {array.subarrays} does not divide npu.array.rows = "
            f"{array.rows}; the parts must be equal"
        )
    if array.weight_rows_per_cycle > array.rows:
        yield (
            f"npu.array.weight_rows_per_cycle = {array.weight_rows_per_cycle} exceeds the "
            f"{array.rows} rows there are"
        )
    if depthwise.mode == "unit" and not depthwise.macs_per_cycle:
        yield 'npu.depthwise.mode = "unit" needs npu.depthwise.macs_per_cycle'
    if depthwise.mode != "unit" and depthwise.macs_per_cycle:
        yield (
            f'npu.depthwise.macs_per_cycle = {depthwise.macs_per_cycle} needs mode = "unit"; '
            f'"{depthwise.mode}" takes its speed from elsewhere'
        )
    if "depthwise" in npu.support.operators and "conv2d" not in npu.support.operators:
        yield 'npu.support.operators has "depthwise" without "conv2d", which edges fall back to'


def _memory_problems(npu: Npu) -> Iterator[str]:
    memory, array = npu.memory, npu.array
    if npu.sram_bytes % memory.banks:
        yield f"npu.memory.banks = {memory.banks} does not divide sram_kib = {memory.sram_kib}"
    if npu.accumulator_bytes < 4 * array.columns:
        yield (
            f"npu.memory.accumulator_kib = {memory.accumulator_kib} holds less than one pixel of "
            f"npu.array.columns = {array.columns} int32s ({4 * array.columns} bytes)"
        )
    weights = array.rows * array.columns * (2 if array.weight_double_buffer else 1)
    if npu.sram_bytes < weights:
        yield (
            f"npu.memory.sram_kib = {memory.sram_kib} holds less than the weights in the array "
            f"({weights / 1024:g} KiB with {array.rows} rows x {array.columns} columns); enlarge "
            "the SRAM or shrink the array"
        )
    if memory.dma_bytes_per_cycle > memory.bank_bytes_per_cycle * memory.banks:
        yield (
            f"npu.memory.dma_bytes_per_cycle = {memory.dma_bytes_per_cycle} exceeds what all "
            f"banks take ({memory.bank_bytes_per_cycle * memory.banks} bytes a cycle)"
        )


def _thermal_problems(npu: Npu) -> Iterator[str]:
    thermal = npu.thermal
    if thermal is None:
        return
    points, clocks = thermal.throttle_c, thermal.throttle_clock_percent
    if not points or len(points) != len(clocks):
        yield (
            f"npu.thermal.throttle_c has {len(points)} points, throttle_clock_percent "
            f"{len(clocks)}: each point needs its clock"
        )
        return
    if clocks[0] != 100:
        yield "npu.thermal.throttle_clock_percent must begin with 100: below it nothing is slowed"
    if any(low >= high for low, high in pairwise(points)):
        yield f"npu.thermal.throttle_c = {list(points)} must rise"
    if any(low < high for low, high in pairwise(clocks)):
        yield f"npu.thermal.throttle_clock_percent = {list(clocks)} must not rise"
    if points[0] <= thermal.ambient_c:
        yield (
            f"npu.thermal.throttle_c begins at {points[0]:g}, not above ambient_c = "
            f"{thermal.ambient_c:g}: the NPU would always be slowed"
        )
