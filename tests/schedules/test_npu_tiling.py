"""The chosen tiling fits, what it claims to need is what it takes, and no candidate is cheaper."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.schedules.random_regions import Maker, bundled, conv_region, tiny_npu
from tilewright.schedules.npu.fits import memory_refusal
from tilewright.schedules.npu.grid import Residency
from tilewright.schedules.npu.layout import find_layout
from tilewright.schedules.npu.schedule import plan_region
from tilewright.schedules.npu.tiling import choose_tiling, find_candidates
from tilewright.schedules.npu.work import describe
from tilewright.targets.errors import TilewrightError
from tilewright.targets.operators import Region, Tensor

STREAMED = Residency((False,), output=False, stored=True)


@pytest.mark.parametrize("seed", range(30))
def test_slots_fit_the_budget_and_accumulators_their_buffer(seed: int) -> None:
    chance = random.Random(seed)
    npu = tiny_npu(chance)
    maker = Maker(chance, channels=64)
    conv = maker.conv(maker._tensor(14, 14, chance.randint(1, 64)))
    if conv is None:
        return
    budget = chance.randint(500, npu.sram_bytes)
    try:
        tiling, _ = choose_tiling(describe(conv, npu), npu, STREAMED, budget)
    except TilewrightError as error:
        assert f"{budget} are free" in str(error)
        return
    assert sum(size * slots for size, slots in tiling.rings.values()) <= budget
    assert tiling.rows * tiling.columns * tiling.channels * 4 <= npu.accumulator_bytes


def test_what_fits_alone_can_be_planned_and_what_does_not_says_why() -> None:
    npu = bundled("mcu-16")
    small = replace(npu, memory=replace(npu.memory, sram_kib=4))
    fitting = refused = 0
    for seed in range(60):
        maker = Maker(random.Random(seed), channels=64)
        conv = maker.conv(maker._tensor(9, 9, random.Random(seed).randint(1, 64)))
        if conv is None:
            continue
        ends = ((conv.input.buffer,), (conv.output.buffer,))
        region = Region("region", (conv,), *ends, maker.buffers)
        reason = memory_refusal(conv, small)
        if reason is None:
            assert len(plan_region(region, small).operators) == 1
            fitting += 1
        else:
            assert re.fullmatch(r"its smallest tiles need \d+ bytes of SRAM, .* to give", reason)
            with pytest.raises(TilewrightError, match="conv: its smallest tiles need"):
                plan_region(region, small)
            refused += 1
    assert fitting > 5 and refused > 5


def test_the_choice_is_within_a_percent_of_the_cheapest() -> None:
    npu = bundled("mcu-16")
    for shape in [(56, 56, 64, 64), (14, 14, 256, 256), (7, 7, 512, 512)]:
        work = describe(conv_region(*shape).operators[0], npu)
        for thorough in (False, True):
            candidates = find_candidates(work, npu, STREAMED, thorough)
            found = candidates.best(npu.sram_bytes)
            assert found is not None
            fitting = candidates.cycles[candidates.sram_bytes <= npu.sram_bytes]
            assert found[1] <= fitting.min() * 1.01


def test_more_sram_never_costs_more_than_a_percent() -> None:
    npu = bundled("edge-128")
    work = describe(conv_region(28, 28, 128, 128).operators[0], npu)
    cycles = [choose_tiling(work, npu, STREAMED, kib * 1024)[1] for kib in (64, 128, 256, 512)]
    assert all(later <= earlier * 1.01 for earlier, later in itertools.pairwise(cycles))


def test_a_layer_is_tiled_in_milliseconds() -> None:
    npu = bundled("mcu-16")
    work = describe(conv_region(112, 112, 64, 128).operators[0], npu)
    candidates = find_candidates(work, npu, STREAMED, thorough=True)
    assert 1000 < np.size(candidates.cycles) < 200_000


def test_views_of_a_staying_buffer_agree_with_its_bytes() -> None:
    """Element (y, x, c) of every view lies where the layout's rule puts its byte."""
    whole = Tensor("w", 4, 5, 12, "int8", "b")
    parts = [
        Tensor("l", 4, 5, 8, "int8", "b", 0, 60, 12),
        Tensor("r", 4, 5, 4, "int8", "b", 8, 60, 12),
        Tensor("s", 2, 3, 12, "int8", "b", 72, 60, 12),
    ]
    layout = find_layout(240, [whole], parts, 8)
    assert layout is not None and layout.sram_pixel_bytes == 16
    for tensor in (whole, *parts):
        view = layout.view(tensor, 1000)
        byte = tensor.offset + tensor.pitch_y + 2 * tensor.pitch_x + 3
        at = view.at(1, 2, 3).address - 1000
        assert at == byte // 12 * 16 + byte % 12


def test_a_buffer_whose_views_disagree_goes_through_dram() -> None:
    dense = Tensor("a", 2, 2, 6, "int8", "b")
    flat = Tensor("f", 1, 1, 24, "int8", "b")
    assert find_layout(24, [flat], [dense], 8) is None
    assert find_layout(24, [flat], [dense], 2) is not None
    left = Tensor("l", 2, 2, 3, "int8", "b", 0, 12, 6)
    right = Tensor("r", 2, 2, 3, "int8", "b", 3, 12, 6)
    assert find_layout(24, [dense], [left, right], 8) is None
