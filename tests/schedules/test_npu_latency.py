"""Latency with memory lies between the lower bound and the sum of all parts done one by one."""

from __future__ import annotations

import random

import pytest

from tests.schedules.random_regions import Maker, bundled, conv_region
from tests.schedules.run_region import run_region
from tilewright.schedules.npu.bounds import network_work
from tilewright.targets import timing
from tilewright.targets.description import Npu
from tilewright.targets.operators import Region

BOARDS = ("mcu-16", "edge-64", "edge-128", "rk3588", "ethos-u85-1024")


def assert_between(region: Region, npu: Npu, seed: int) -> None:
    _, emission, run = run_region(region, npu, seed)
    instructions = emission.stream.instructions
    alone = sum(timing.cost(npu, one).cycles for one in instructions)
    issued = npu.dispatch.issue_cycles * len(instructions)
    least = network_work(region.operators, npu)
    assert least.roofline_cycles(npu) <= least.bound_cycles(npu) <= run.cycles <= alone + issued


@pytest.mark.parametrize("name", BOARDS)
@pytest.mark.parametrize("seed", range(6))
def test_random_regions(name: str, seed: int) -> None:
    chance = random.Random(f"{name} {seed}")
    assert_between(Maker(chance).region(chance.randrange(1, 5)), bundled(name), seed)


@pytest.mark.parametrize("name", BOARDS)
@pytest.mark.parametrize("seed", range(6))
def test_random_convolutions(name: str, seed: int) -> None:
    chance = random.Random(seed)
    size, inputs, outputs = (
        chance.randrange(4, 40),
        chance.randrange(1, 80),
        chance.randrange(1, 80),
    )
    kernel = chance.choice([1, 3, 5])
    assert_between(conv_region(size, size, inputs, outputs, kernel), bundled(name), seed)
