"""The simulator in C against the slow machine in Python, on programs drawn at random."""

from __future__ import annotations

import zlib

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
from tilewright.targets import isa
from tilewright.targets.assembler import assemble, disassemble
from tilewright.targets.description import Npu
from tilewright.targets.errors import SimulatorFault
from tilewright.targets.isa import Engine, decode
from tilewright.targets.simulator import Simulator, Statistics
from tilewright.targets.timing import cost

# Damage that leaves no instruction to decode, as against one with fields that make no sense.
UNREADABLE = (": unknown", "reserved", "core = ", "not in wait_mask", "a later instruction")


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
        check_counts(npu, program, statistics, slow)
    assert finished >= 15


def check_counts(
    npu: Npu, program: list[isa.Instruction], statistics: Statistics, slow: SlowMachine
) -> None:
    """Everything counted is the sum over instructions, and time is accounted for."""
    energy = npu.energy
    total_energy = statistics.cycles * energy.idle_mw * 1000 / npu.clock_mhz
    bursts = 0
    for engine, counted in statistics.engines.items():
        costs = [cost(npu, one) for one in program if one.engine == engine]
        spans = [slow.spans[i] for i, one in enumerate(program) if one.engine == engine]
        sram = sum(one.sram_read + one.sram_written for one in costs)
        dram = sum(one.dram_bytes for one in costs)
        engine_bursts = sum(one.dram_burst_bytes for one in costs)
        assert counted.instructions == len(costs)
        assert counted.busy_cycles == sum(end - start for start, end in spans)
        assert counted.data_wait_cycles == counted.busy_cycles - sum(one.cycles for one in costs)
        assert counted.sync_wait_cycles == slow.queues[engine].sync_wait
        assert counted.macs == sum(one.macs for one in costs)
        into, out = sum(one.sram_read for one in costs), sum(one.sram_written for one in costs)
        assert counted.bytes_in == (dram if engine == Engine.DMA_IN else into)
        assert counted.bytes_out == (dram if engine == Engine.DMA_OUT else out)
        expected = counted.macs * energy.mac_pj + sram * energy.sram_byte_pj
        expected += engine_bursts * energy.dram_byte_pj
        assert counted.energy_pj == pytest.approx(expected)
        total_energy += expected
        bursts += engine_bursts
        assert counted.busy_cycles <= statistics.cycles
    assert statistics.dram_burst_bytes == bursts
    assert statistics.energy_pj == pytest.approx(total_energy, rel=1e-6)
    last_issue = npu.dispatch.issue_cycles * (len(program) + 1)
    busy = sum(counted.busy_cycles for counted in statistics.engines.values())
    assert statistics.cycles <= busy + last_issue


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


def test_both_readers_refuse_the_same_damage() -> None:
    """Python's decoder and the simulator on streams with a byte changed and the checksum mended."""
    refused = accepted = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        npu = small_npu(rng)
        good = make_stream(npu, ProgramMaker(npu, rng).program(6))
        simulator, constants = Simulator(npu), _with_multipliers(rng)
        for _ in range(40):
            stream = bytearray(good)
            stream[int(rng.integers(64, len(stream)))] = int(rng.integers(256))
            stream[36:40] = zlib.crc32(stream[64:]).to_bytes(4, "little")
            try:
                simulator.run(bytes(stream), constants, random_memory(rng, ARENA_BYTES))
            except SimulatorFault as fault:
                refused += 1
                message = str(fault)
            else:
                accepted += 1
                message = ""
            unreadable = any(text in message for text in UNREADABLE)
            if unreadable:
                with pytest.raises(SimulatorFault):
                    decode(bytes(stream))
            else:
                decode(bytes(stream))
    assert refused > 100
    assert accepted > 100
