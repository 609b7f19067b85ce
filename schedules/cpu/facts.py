"""What the CPU templates need to know of a CPU, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Cpu(Protocol):
    """A CPU as a target description states it; `native` stands for this machine."""

    @property
    def triple(self) -> str: ...
    @property
    def cpu(self) -> str: ...
    @property
    def features(self) -> str: ...
    @property
    def cores(self) -> int: ...


@dataclass(frozen=True)
class CpuFacts:
    """A resolved CPU: no `native` left, vectors and registers known.

    `features` is LLVM's list, as in `+neon,-sve`. `vector_bits` is 0 without vectors;
    `vector_registers` counts the registers of that width that a kernel may fill.
    """

    triple: str
    cpu: str
    features: str = ""
    cores: int = 1
    vector_bits: int = 0
    vector_registers: int = 16
    multiplies_pairs: bool = False  # adds products of int16 pairs in one instruction

    def lanes(self, dtype_bits: int) -> int:
        """Elements of `dtype_bits` in one vector register; 4 of them unrolled without vectors."""
        return max(self.vector_bits // dtype_bits, 1) if self.vector_bits else 4
