"""Waits order what conflicts, no wait is spare, and the race finder finds what is missing."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.schedules.random_regions import Maker, bundled, conv_region, tiny_npu
from tests.schedules.run_region import place_buffers, run_region
from tilewright.schedules.npu.attribution import attribute
from tilewright.schedules.npu.hazards import find_races
from tilewright.schedules.npu.schedule import Emission, emit, plan_region
from tilewright.targets import isa
from tilewright.targets.description import Npu


def _emitted(npu: Npu, seed: int) -> Emission:
    planned = plan_region(Maker(random.Random(seed)).region(4), npu)
    return emit(planned, place_buffers(planned)[0], 0)


def test_every_wait_is_needed() -> None:
    """Take any one wait away and some pair of accesses is no longer ordered."""
    npu = bundled("mcu-16")
    checked = 0
    for seed in range(6):
        stream = _emitted(npu, seed).stream
        for index, instruction in enumerate(stream.instructions):
            for engine in instruction.waits:
                fewer = {e: n for e, n in instruction.waits.items() if e != engine}
                changed = list(stream.instructions)
                changed[index] = replace(instruction, waits=fewer)
                races = find_races(replace(stream, instructions=changed), npu.channel_alignment)
                assert races, f"instruction {index} waits for {engine.name} in vain"
                checked += 1
    assert checked > 20


def test_a_wait_that_is_one_too_short_is_a_race() -> None:
    npu = bundled("mcu-16")
    planned = plan_region(conv_region(16, 16, 16, 16), npu)
    stream = emit(planned, place_buffers(planned)[0], 0).stream
    index, requantize = next(
        (i, one) for i, one in enumerate(stream.instructions) if isinstance(one, isa.Requantize)
    )
    shorter = {engine: count - 1 for engine, count in requantize.waits.items()}
    changed = list(stream.instructions)
    changed[index] = replace(requantize, waits=shorter)
    races = find_races(replace(stream, instructions=changed), npu.channel_alignment)
    assert any(later == index for _, later in races)


def test_engines_keep_program_order_and_waits_look_back() -> None:
    chance = random.Random(3)
    stream = _emitted(tiny_npu(chance), 3).stream
    issued = dict.fromkeys(isa.Engine, 0)
    for instruction in stream.instructions[:-1]:
        assert all(count <= issued[engine] for engine, count in instruction.waits.items())
        assert instruction.engine is not None
        issued[instruction.engine] += 1
    assert isinstance(stream.instructions[-1], isa.End)


def test_shares_add_up_to_the_run() -> None:
    for seed in range(5):
        npu = bundled("edge-128")
        region = Maker(random.Random(seed)).region(5)
        _, emission, statistics = run_region(region, npu, seed)
        shares = attribute(statistics, emission, npu)
        assert len(shares) == len(region.operators)
        assert sum(share.cycles for share in shares) == statistics.cycles
        assert sum(share.dram_bytes for share in shares) == statistics.dram_bytes
        assert all(0 <= share.sram_peak_bytes <= npu.sram_bytes for share in shares)
        total = sum(share.energy_uj for share in shares)
        assert abs(total - statistics.energy_pj / 1e6) <= 1e-6 * total + 1e-9
