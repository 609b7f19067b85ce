"""The plan's size of the arena is what is used; a plan that is off is found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tests.handmade_program import KERNELS
from tilewright.compiler.artifact import Artifact, make_artifact
from tilewright.compiler.artifact.memory_use import MemoryUse, measure_memory_use
from tilewright.compiler.program import Program


def use_of(artifact: Artifact, x: np.ndarray) -> MemoryUse:
    return measure_memory_use(artifact, {"x": x})


def test_a_right_plan_is_used_to_its_last_byte(artifact: Artifact, x: np.ndarray) -> None:
    use = use_of(artifact, x)
    assert use == MemoryUse(216, 216, stray_bytes=0, reads_unwritten=False)
    assert use.is_as_planned


def test_a_plan_too_large_is_found(program: Program, x: np.ndarray) -> None:
    with make_artifact(replace(program, arena_bytes=1024)) as artifact:
        use = use_of(artifact, x)
    assert (use.used_bytes, use.is_as_planned) == (216, False)


def test_a_plan_too_small_is_found(program: Program, x: np.ndarray) -> None:
    """The output's last element lies behind the arena."""
    output = replace(program.outputs[0], shape=(5,))
    with make_artifact(replace(program, arena_bytes=212, outputs=(output,))) as artifact:
        use = use_of(artifact, x)
    assert (use.stray_bytes, use.is_as_planned) == (4, False)


def test_reading_what_nobody_wrote_is_found(
    program: Program, x: np.ndarray, compile_kernels: Callable[[str], bytes]
) -> None:
    kernels = compile_kernels(KERNELS.replace("sums[row] = 0;", ""))
    host = replace(program.host, code=kernels)
    with make_artifact(replace(program, host=host)) as artifact:
        use = use_of(artifact, x)
    assert (use.reads_unwritten, use.is_as_planned) == (True, False)
