"""What LLVM is told about a board, so that its code links with a C compiler's."""

from __future__ import annotations

import pytest

from tilewright.compiler.cpu.machine import llvm_target
from tilewright.schedules.cpu.facts import CpuFacts


@pytest.mark.parametrize(
    ("triple", "told"),
    [
        # In the short form LLVM takes none for the vendor, and eabihf for no environment.
        ("thumbv7em-none-eabihf", "thumbv7em-unknown-none-eabihf"),
        ("thumbv7m-none-eabi", "thumbv7m-unknown-none-eabi"),
        ("riscv32-unknown-none-elf", "riscv32-unknown-none-elf"),
        ("aarch64-linux-gnu", "aarch64-linux-gnu"),
    ],
)
def test_the_vendor_is_named(triple: str, told: str) -> None:
    assert llvm_target(CpuFacts(triple=triple, cpu="", features="")).attrs["mtriple"] == told


@pytest.mark.parametrize(
    ("triple", "features", "convention"),
    [
        ("riscv64-linux-gnu", "+m,+a,+f,+d,+c", "lp64d"),
        ("riscv64-linux-gnu", "+m,+f", "lp64f"),
        ("riscv32-unknown-none-elf", "+m,+c", "ilp32"),
    ],
)
def test_riscv_passes_floats_as_c_compilers_do(triple: str, features: str, convention: str) -> None:
    target = llvm_target(CpuFacts(triple=triple, cpu="", features=features))
    assert target.attrs["mabi"] == convention
