"""Emitted streams against numpy: the same bits everywhere, no races, never below the bound."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace

import pytest

from tests.schedules.random_regions import (
    Maker,
    bundled,
    chain_region,
    conv_region,
    tiny_npu,
)
from tests.schedules.run_region import place_buffers, run_planned, run_region
from tilewright.schedules.npu.bounds import network_bound_cycles, network_roofline_cycles
from tilewright.schedules.npu.schedule import emit, plan_region
from tilewright.targets import isa
from tilewright.targets.errors import TilewrightError


@pytest.mark.parametrize("seed", range(80))
def test_random_regions_give_numpys_bits_on_tiny_machines(seed: int) -> None:
    chance = random.Random(seed)
    npu = tiny_npu(chance)
    region = Maker(chance).region(chance.randint(1, 6))
    try:
        planned = plan_region(region, npu, depth_first=seed % 2 == 0)
    except TilewrightError as error:
        assert re.search("SRAM|accumulators", str(error))
        return
    _, _, statistics = run_planned(planned, seed)
    bound = network_bound_cycles(region.operators, npu)
    assert statistics.cycles >= bound >= network_roofline_cycles(region.operators, npu)


@pytest.mark.parametrize("name", ["mcu-16", "edge-128"])
@pytest.mark.parametrize("seed", range(10))
def test_random_regions_give_numpys_bits_on_bundled_machines(name: str, seed: int) -> None:
    chance = random.Random(1000 + seed)
    region = Maker(chance, largest=40, channels=150).region(8)
    run_region(region, bundled(name), seed)


def test_the_same_region_gives_the_same_bytes() -> None:
    streams = set()
    for _ in range(2):
        region = Maker(random.Random(7)).region(6)
        planned = plan_region(region, bundled("mcu-16"))
        offsets, _ = place_buffers(planned)
        streams.add(isa.encode(emit(planned, offsets, 0).stream) + planned.constants)
    assert len(streams) == 1


def test_an_operator_too_large_for_the_sram_is_named_with_need_and_have() -> None:
    npu = bundled("mcu-16")
    small = replace(npu, memory=replace(npu.memory, sram_kib=1))
    region = conv_region(8, 8, 64, 16, kernel=7)
    with pytest.raises(TilewrightError, match=r"conv: its smallest tiles need \d+ bytes of SRAM"):
        plan_region(region, small)


def test_a_pixel_too_large_for_the_accumulators_is_refused() -> None:
    npu = bundled("mcu-16")
    none = replace(npu, memory=replace(npu.memory, accumulator_kib=0))
    with pytest.raises(TilewrightError, match="conv: no tile of it fits 0 bytes of accumulators"):
        plan_region(conv_region(4, 4, 8, 8), none)


def test_a_network_that_fits_stays_in_the_sram() -> None:
    region = chain_region([conv_region(16, 16, 16, 16)] * 4)
    planned, _, statistics = run_region(region, bundled("mcu-16"), 0)
    assert planned.spilled == ()
    moved = 2 * 16 * 16 * 16 + len(planned.constants)
    assert statistics.dram_bytes <= moved


def test_the_next_operators_weights_load_under_the_current_one() -> None:
    """With DRAM far slower than the array, loads follow each other without a gap."""
    region = chain_region([conv_region(8, 8, 64, 64)] * 4)
    _, emission, statistics = run_region(region, bundled("edge-128"), 0)
    spans = [
        span
        for one, span in zip(emission.stream.instructions, statistics.trace, strict=False)
        if isinstance(one, isa.Load)
    ]
    idle = sum(max(b[0] - a[1], 0) for a, b in itertools.pairwise(spans))
    assert idle < 0.1 * statistics.cycles
