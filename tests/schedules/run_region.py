"""Plan, emit and simulate a region, and judge it by numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.schedules.evaluate import evaluate
from tilewright.schedules.memory.plan import Buffer, plan
from tilewright.schedules.npu.hazards import find_races
from tilewright.schedules.npu.region_plan import RegionPlan
from tilewright.schedules.npu.schedule import Emission, emit, plan_region
from tilewright.targets import isa
from tilewright.targets.description import Npu
from tilewright.targets.operators import Region
from tilewright.targets.simulator import Simulator, Statistics


def place_buffers(planned: RegionPlan, alignment: int = 1) -> tuple[dict[str, int], int]:
    """An arena as the compiler would make it: spilled buffers share where lives allow."""
    region = planned.region
    last = len(region.operators)
    buffers = [
        Buffer(name, region.buffer_bytes[name], 0, last)
        for name in dict.fromkeys((*region.inputs, *region.outputs))
    ]
    buffers += [
        Buffer(one.buffer, one.nbytes, one.first_operator, one.last_operator)
        for one in planned.spilled
    ]
    made = plan(buffers, alignment)
    return made.offsets, made.total_bytes


def run_region(region: Region, npu: Npu, seed: int) -> tuple[RegionPlan, Emission, Statistics]:
    """Plan, emit, check for races, simulate, and compare every output with numpy's."""
    return run_planned(plan_region(region, npu), seed)


def run_planned(planned: RegionPlan, seed: int) -> tuple[RegionPlan, Emission, Statistics]:
    region, npu = planned.region, planned.npu
    offsets, arena_bytes = place_buffers(planned)
    prefix = b"\xa5" * 24
    emission = emit(planned, offsets, len(prefix))
    assert find_races(emission.stream, npu.channel_alignment) == []
    data = np.random.default_rng(seed)
    arena = data.integers(0, 256, arena_bytes).astype(np.uint8)
    expected = {
        name: data.integers(0, 256, size).astype(np.uint8)
        for name, size in region.buffer_bytes.items()
    }
    for name in (*region.inputs, *region.outputs):
        expected[name] = arena[offsets[name] :][: region.buffer_bytes[name]].copy()
    evaluate(region, expected)
    stream = isa.encode(emission.stream)
    statistics = Simulator(npu).run(stream, prefix + planned.constants, arena, trace=True)
    for name in region.outputs:
        found = arena[offsets[name] :][: region.buffer_bytes[name]]
        assert_same(name, found, expected[name])
    return planned, emission, statistics


def assert_same(name: str, found: NDArray[np.uint8], expected: NDArray[np.uint8]) -> None:
    differing = np.flatnonzero(found != expected)
    assert differing.size == 0, f"{name}: {differing.size} bytes differ, first at {differing[0]}"
