"""The simulator in C against the slow machine in Python, on programs drawn at random."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.programs import (
    ARENA_BYTES,
    CONSTANTS_BYTES,
    ProgramMaker,
    make_stream,
    random_memory,
    small_npu,
)
from tests.targets.slow_machine import SlowMachine
from tilewright.targets.assembler import assemble, disassemble
from tilewright.targets.errors import SimulatorFault
from tilewright.targets.isa import decode
from tilewright.targets.simulator import Simulator


@pytest.mark.parametrize("first_seed", range(0, 300, 30))
def test_values_and_cycles_agree(first_seed: int) -> None:
    finished = 0
    for seed in range(first_seed, first_seed + 30):
        rng = np.random.default_rng(seed)
        npu = small_npu(rng)
        program = ProgramMaker(npu, rng).program(int(rng.integers(1, 14)))
        stream = make_stream(npu, program)
        constants = _with_multipliers(rng)
        arena = random_memory(rng, ARENA_BYTES)
        expected = bytearray(arena)
        slow = SlowMachine(npu, constants, expected)
        try:
            statistics = Simulator(npu).run(stream, constants, arena, trace=True)
        except SimulatorFault as fault:
            assert "not finite" in str(fault), f"seed {seed}: {fault}"
            continue
        slow.run(decode(stream).instructions)
        finished += 1
        assert statistics.trace[:-1] == tuple(slow.spans[i] for i in range(len(program))), seed
        assert statistics.cycles == slow.cycles, seed
        assert arena == expected, f"seed {seed}"
    assert finished >= 15


def test_assembly_of_random_programs_is_faithful() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        npu = small_npu(rng)
        stream = make_stream(npu, ProgramMaker(npu, rng).program(12))
        assert assemble(disassemble(stream)) == stream


def _with_multipliers(rng: np.random.Generator) -> bytes:
    """Constants that read as float32 are usable multipliers, for the most part."""
    values = (rng.random(CONSTANTS_BYTES // 4) * 0.002).astype(np.float32)
    return values.tobytes()
