"""Bounds: the formulas by hand, and no legal mapping beats them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.schedules.random_regions import bundled, chain_region, conv_region, tiny_npu
from tilewright.schedules.npu import bounds
from tilewright.targets import timing
from tilewright.targets.description import Npu


def test_the_roofline_is_what_anyone_recomputes() -> None:
    npu = bundled("mcu-16")  # 256 MACs a cycle, 4 bytes of DRAM a cycle
    region = conv_region(16, 16, 32, 64)
    (conv,) = region.operators
    macs = 16 * 16 * 9 * 32 * 64
    assert bounds.roofline_cycles(conv, npu) == macs // 256
    moved = 16 * 16 * 32 + 9 * 32 * 64 + 4 * 64 + 16 * 16 * 64
    slow = replace(npu, memory=replace(npu.memory, dram_gb_per_s=0.04))
    assert bounds.roofline_cycles(conv, slow) == pytest.approx(moved / 0.1, abs=1)


def test_intermediates_of_a_network_need_no_dram() -> None:
    npu = bundled("mcu-16")
    region = chain_region([conv_region(8, 8, 16, 16)] * 3)
    work = bounds.network_work(region.operators, npu)
    assert work.bytes_in == 8 * 8 * 16 + 3 * (9 * 16 * 16 + 4 * 16)
    assert work.bytes_out == 8 * 8 * 16
    assert work.mac_cycles == 3 * 64 * 9


def test_padding_to_the_array_counts() -> None:
    npu = bundled("mcu-16")
    (conv,) = conv_region(8, 8, 16, 17).operators
    assert bounds.mac_cycles(conv, npu) == 64 * 9 * 2


def test_weights_enter_through_their_port() -> None:
    npu = bundled("mcu-16")  # 4 rows of weights a cycle
    (conv,) = conv_region(1, 1, 64, 32, kernel=1).operators
    assert bounds.mac_cycles(conv, npu) == 2 * 64 / 4


def _splits(extent: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write `extent` as an unordered sum of at most `parts` terms."""
    for count in range(1, parts + 1):
        for cuts in itertools.combinations(range(1, extent), count - 1):
            sizes = [b - a for a, b in itertools.pairwise((0, *cuts, extent))]
            if sizes == sorted(sizes):
                yield tuple(sizes)


def _cheapest(npu: Npu, pixels: int, taps: int, inputs: int, outputs: int) -> int:
    """The fewest cycles of all splits into CONV instructions, fill and drain left out."""
    free = npu.array.rows // npu.array.subarrays + npu.array.columns - 2
    overhead = free if npu.array.weight_double_buffer else 0
    least = -1
    for p, i, o in itertools.product(_splits(pixels, 3), _splits(inputs, 3), _splits(outputs, 2)):
        total = 0
        for one in itertools.product(p, i, o):
            total += timing.conv_cycles(npu, one[0], taps, one[1], one[2]) - overhead
        least = total if least < 0 else min(least, total)
    return least


def test_no_split_into_instructions_beats_the_bound() -> None:
    chance = random.Random(5)
    for _ in range(60):
        npu = tiny_npu(chance)
        size = (chance.randint(1, 9), chance.choice([1, 2, 4]), chance.randint(1, 9),
                chance.randint(1, 9))  # fmt: skip
        bound = bounds.conv_cycles(npu, *size)
        assert bound <= _cheapest(npu, *size)
    assert bounds.conv_cycles(bundled("mcu-16"), 256, 9, 16, 16) == 256 * 9


def test_a_bound_is_never_below_its_roofline() -> None:
    chance = random.Random(6)
    for _ in range(50):
        npu = tiny_npu(chance)
        groups = chance.choice([1, 2, 8])
        (conv,) = conv_region(5, 7, 8, 8 * chance.randint(1, 4), groups=groups).operators
        assert bounds.bound_cycles(conv, npu) >= bounds.roofline_cycles(conv, npu)
