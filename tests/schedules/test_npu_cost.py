"""The vectorised formulas say what targets.timing says, for every mapping."""

from __future__ import annotations

import random

import numpy as np

from tests.schedules.random_regions import tiny_npu
from tilewright.schedules.npu import cost
from tilewright.targets import timing


def test_formulas_agree_with_the_targets() -> None:
    chance = random.Random(0)
    for _ in range(40):
        npu = tiny_npu(chance)
        values = np.array([[chance.randint(1, 60) for _ in range(4)] for _ in range(50)])
        pixels, taps, inputs, outputs = values.T
        conv = cost.conv_cycles(npu, pixels, taps, inputs, outputs)
        depthwise = cost.depthwise_cycles(npu, pixels, taps, outputs)
        moved = cost.transfer_cycles(npu, 1, pixels)
        for row, (p, t, i, o) in enumerate(values.tolist()):
            assert conv[row] == timing.conv_cycles(npu, p, t, i, o)
            assert depthwise[row] == timing.depthwise_cycles(npu, p, t, o)
            burst = npu.memory.burst_bytes
            assert moved[row] == timing.transfer_cycles(npu, -(-p // burst) * burst)
