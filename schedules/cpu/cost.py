"""How long a CPU kernel takes, by formula: the same for placement and for reported latencies.

    seconds = max(arithmetic, traffic) + START
    arithmetic = macs / (cores * rate * EFFICIENCY * clock)
    rate       = flops_per_cycle / 2 for float32, int8_macs_per_cycle for int8
    traffic    = bytes read and written / dram_gb_per_s

A kernel without multiply-accumulates spends an operation on each element it reads or writes. The
efficiency is what the register tiles reach of the peak on layers of usual size; nothing is timed,
so that artifacts are reproducible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Protocol

EFFICIENCY = 0.7
START_SECONDS = 2e-6  # waking the pool and handing out tasks

# {"types": the tensor types a kernel reads and writes}
KernelFacts = Mapping[str, Sequence[Any]]


class CostedCpu(Protocol):
    """What the formula needs of `targets.description.Cpu`."""

    @property
    def cores(self) -> int: ...
    @property
    def clock_mhz(self) -> float: ...
    @property
    def flops_per_cycle(self) -> float: ...
    @property
    def int8_macs_per_cycle(self) -> float: ...
    @property
    def dram_gb_per_s(self) -> float: ...


def kernel_seconds(facts: KernelFacts, macs: int, cpu: CostedCpu) -> float:
    """Seconds of one kernel on all cores, of `macs` multiply-accumulates or of none."""
    sizes = [_elements_and_bits(kind) for kind in facts["types"]]
    moved = sum(elements * bits // 8 for elements, bits in sizes)
    work = macs or sum(elements for elements, _bits in sizes)
    narrow = max((bits for _elements, bits in sizes[:1]), default=32) <= 16
    return modelled_seconds(work, moved, "int8" if narrow else "float32", cpu)


def modelled_seconds(macs: int, moved_bytes: int, dtype: str, cpu: CostedCpu) -> float:
    """The formula at the top of this file; `dtype` is what is multiplied."""
    rate = cpu.int8_macs_per_cycle if "int8" in dtype else cpu.flops_per_cycle / 2
    per_second = max(cpu.cores, 1) * rate * EFFICIENCY * cpu.clock_mhz * 1e6
    return max(macs / per_second, moved_bytes / (cpu.dram_gb_per_s * 1e9)) + START_SECONDS


def _elements_and_bits(kind: Any) -> tuple[int, int]:
    """Elements of a Relax tensor type and the bits of one."""
    dtype = str(kind.dtype.dtype)
    bits = 8 if dtype == "bool" else int("".join(filter(str.isdigit, dtype)))
    return prod(int(extent) for extent in kind.shape.values), bits
