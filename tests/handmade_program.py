"""Small programs with kernels written in C, so that no TVM is needed to try an artifact."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler.artifact import Artifact, make_artifact
from tilewright.compiler.program import KernelCall, Objects, Port, Program, Reference

TARGET = """
name = "bench"
[cpu]
triple = "native"
cpu = "native"
clock_mhz = 1000
vector_bits = 128
flops_per_cycle = 8
int8_macs_per_cycle = 8
dram_gb_per_s = 8
"""
ROWS, COLUMNS = 6, 5

# y = (x @ ones) + bias, row by row, in two steps with a temporary between them.
KERNELS = """
#include <stdint.h>
int32_t row_sums(const float *x, float *sums, int32_t begin, int32_t end) {
  for (int32_t row = begin; row < end; ++row) {
    sums[row] = 0;
    for (int column = 0; column < 5; ++column) sums[row] += x[row * 5 + column];
  }
  return 0;
}
int32_t add_bias(const float *sums, const float *bias, float *y, int32_t begin, int32_t end) {
  for (int32_t row = begin; row < end; ++row) y[row] = sums[row] + bias[row];
  return 0;
}
int32_t refuse(const float *x, int32_t begin, int32_t end) { return -7; }
"""


@pytest.fixture(scope="session")
def compile_kernels(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bytes]:
    """C source -> relocatable object, as the CPU backend would give it."""

    def compile_(source: str) -> bytes:
        folder = tmp_path_factory.mktemp("kernels")
        (folder / "kernels.c").write_text(source)
        command = ["cc", "-std=c99", "-O2", "-fPIC", "-c", "kernels.c", "-o", "kernels.o"]
        subprocess.run(command, cwd=folder, check=True)
        return (folder / "kernels.o").read_bytes()

    return compile_


@pytest.fixture(scope="session")
def program(compile_kernels: Callable[[str], bytes]) -> Program:
    """x float32 [6, 5] at 0, sums at 128, y float32 [6] at 192; the bias is the weights."""
    return Program(
        name="row-sums",
        inputs=(Port("x", (ROWS, COLUMNS), "float32", 0, layout="NC"),),
        outputs=(Port("y", (ROWS,), "float32", 192),),
        steps=(
            KernelCall((0,), "row_sums", (Reference("arena", 0), Reference("arena", 128)), ROWS),
            KernelCall(
                (1,),
                "add_bias",
                (Reference("arena", 128), Reference("weights", 0), Reference("arena", 192)),
                ROWS,
            ),
        ),
        arena_bytes=192 + 4 * ROWS,
        weights=np.arange(ROWS, dtype=np.float32).tobytes(),
        host=Objects("x86_64-linux-gnu", "x86-64", "", compile_kernels(KERNELS)),
        board=None,
        operators=({"name": "sum", "device": "cpu"}, {"name": "bias", "device": "cpu"}),
        totals={"macs": 0, "arena_bytes": 192 + 4 * ROWS},
        target_toml=TARGET,
        notes=({"note": "nothing was copied"},),
    )


@pytest.fixture(scope="session")
def failing_program(program: Program) -> Program:
    """Its only step returns -7."""
    call = KernelCall((0,), "refuse", (Reference("arena", 0),), 1)
    return replace(program, name="failing", steps=(call,))


@pytest.fixture(scope="session")
def artifact(program: Program) -> Artifact:
    """Made once; tests leave its files alone."""
    return make_artifact(program, threads=2)


@pytest.fixture
def saved(artifact: Artifact, tmp_path: Path) -> Path:
    """A copy on disk that a test may damage."""
    artifact.save(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(7).standard_normal((ROWS, COLUMNS)).astype(np.float32)


@pytest.fixture
def y(x: np.ndarray) -> np.ndarray:
    """What the model makes of `x`, summed in the kernel's order."""
    sums = np.zeros(ROWS, np.float32)
    for column in range(COLUMNS):
        sums += x[:, column]
    return sums + np.arange(ROWS, dtype=np.float32)
