"""Depth first in stripes computes what layer by layer computes, each row once."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.schedules.evaluate import evaluate
from tests.schedules.random_regions import Maker
from tilewright.schedules.npu.stripes import can_stripe, stripe_chain
from tilewright.targets.operators import Conv2d, Operator, Pool2d, Region


def random_chain(chance: random.Random) -> Region:
    """Operators that can be striped, each reading what the last two wrote."""
    while True:
        maker = Maker(chance, largest=16, channels=12)
        maker.tensors.append(maker._tensor(maker._extent(), maker._extent(), 6))
        makers = [maker.conv, maker.depthwise, maker.elementwise, maker.lookup, maker.pool]
        while len(maker.operators) < 4:
            made: Operator | None = chance.choice(makers)(chance.choice(maker.tensors[-2:]))
            if made is not None:
                maker.operators.append(made)
                maker.tensors.append(made.output)
        last = maker.operators[-1].output
        needed = {last.buffer}
        kept: list[Operator] = []
        for operator in reversed(maker.operators):
            if operator.output.buffer in needed:
                kept.insert(0, operator)
                needed |= {tensor.buffer for tensor in operator.inputs}
        if last.height > 2 and len(kept) > 1:
            inputs = tuple(sorted(needed - {one.output.buffer for one in kept}))
            return Region("chain", tuple(kept), inputs, (last.buffer,), maker.buffers)


@pytest.mark.parametrize("seed", range(60))
def test_stripes_give_the_same_bytes(seed: int) -> None:
    chance = random.Random(seed)
    region = random_chain(chance)
    assert all(can_stripe(operator) for operator in region.operators)
    height = region.operators[-1].output.height
    cuts = sorted({0, height, *(chance.randint(1, height - 1) for _ in range(3))})
    striped = stripe_chain(region.operators, cuts, 0)
    data = np.random.default_rng(seed)
    whole = {
        n: data.integers(0, 256, size).astype(np.uint8) for n, size in region.buffer_bytes.items()
    }
    parts = {name: raw.copy() for name, raw in whole.items()}
    parts |= {name: np.full(size, 0xA5, np.uint8) for name, size in striped.buffer_bytes.items()}
    evaluate(region, whole)
    evaluate(replace(region, operators=tuple(striped.operators)), parts)
    assert np.array_equal(whole[region.outputs[0]], parts[region.outputs[0]])
    for index, operator in enumerate(region.operators):
        rows = sum(
            part.output.height
            for part, owner in zip(striped.operators, striped.owners, strict=True)
            if owner == index and type(part) is type(operator)
        )
        assert rows <= operator.output.height
        assert not isinstance(operator, Conv2d | Pool2d) or rows > 0
