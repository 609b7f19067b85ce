"""Depth first in stripes computes what layer by layer computes, each row once."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.schedules.evaluate import evaluate
from tests.schedules.random_regions import Maker, bundled, chain_region, conv_region, tiny_npu
from tests.schedules.run_region import run_planned
from tilewright.schedules.npu.attribution import attribute
from tilewright.schedules.npu.planning import Chain, plan_steps
from tilewright.schedules.npu.schedule import plan_region
from tilewright.schedules.npu.stripes import can_stripe, stripe_chain
from tilewright.targets.description import Npu
from tilewright.targets.operators import Conv2d, Elementwise, Operator, Pool2d, Region, Tensor


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
    striped = stripe_chain(region.operators, cuts, 0, skewed=chance.random() < 0.5)
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


@pytest.mark.parametrize("seed", range(40))
def test_striped_streams_give_numpys_bits(seed: int) -> None:
    chance = random.Random(seed)
    region = random_chain(chance)
    npu = tiny_npu(chance)
    npu = replace(npu, memory=replace(npu.memory, sram_kib=64))
    height = region.operators[-1].output.height
    cuts = (0, *sorted({chance.randint(1, height - 1) for _ in range(3)}), height)
    planned = plan_steps(region, npu, [Chain(0, len(region.operators), cuts, seed % 2 == 0)])
    _, emission, statistics = run_planned(planned, seed)
    shares = attribute(statistics, emission, npu)
    assert len(shares) == len(region.operators)
    assert sum(share.cycles for share in shares) == statistics.cycles


def inverted_bottleneck(npu: Npu) -> Region:
    """Expand, depthwise, project, whose wide intermediates are larger than the SRAM."""
    side = 1
    while side * side * 64 < npu.sram_bytes:
        side *= 2
    parts = [
        conv_region(side, side, 16, 64, kernel=1),
        conv_region(side, side, 64, 64, kernel=3, groups=64),
        conv_region(side, side, 64, 16, kernel=1),
    ]
    return chain_region(parts)


@pytest.mark.parametrize("name", ["mcu-16", "edge-128"])
def test_wide_intermediates_never_reach_the_dram(name: str) -> None:
    npu = bundled(name)
    region = inverted_bottleneck(npu)
    _, _, layer_by_layer = run_planned(plan_region(region, npu), 0)
    planned, _, depth_first = run_planned(plan_region(region, npu, depth_first=True), 0)
    assert planned.spilled == ()
    assert depth_first.dram_bytes < layer_by_layer.dram_bytes / 3
    assert depth_first.cycles < layer_by_layer.cycles
    ends = region.inputs + region.outputs
    constants = 1.1 * len(planned.constants)
    assert depth_first.dram_bytes <= constants + 1.3 * sum(region.buffer_bytes[n] for n in ends)


def test_weights_are_stored_once_for_all_stripes() -> None:
    npu = bundled("mcu-16")
    region = inverted_bottleneck(npu)
    whole = plan_region(region, npu)
    striped = plan_region(region, npu, depth_first=True)
    assert len(striped.operators) > len(whole.operators)
    assert len(striped.constants) <= 1.3 * len(whole.constants)


def test_an_input_lives_as_long_as_its_chain() -> None:
    """The first operator of a chain still reads rows while the last one already writes."""
    npu = bundled("mcu-16")
    region = inverted_bottleneck(npu)
    planned = plan_region(region, npu, depth_first=True)
    assert planned.lives[region.inputs[0]] == (0, 2)
    assert planned.lives[region.outputs[0]] == (0, 2)


def test_what_is_broadcast_is_complete_before_the_rows_that_use_it() -> None:
    """Squeeze and excite: the factor depends on all rows, so the product is in no chain with it."""
    npu = bundled("mcu-16")
    region = inverted_bottleneck(npu)
    wide = region.operators[1].output
    pooled = Tensor("pooled", 1, 1, wide.channels, "int8", "pooled")
    scaled = replace(wide, name="scaled", buffer="scaled")
    limits = {"clip_low": -128, "clip_high": 127}
    half = 0.5
    pool = Pool2d("pool", ("pool",), pooled, kind="average", input=wide, kernel=(64, 64), **limits)
    factor = Elementwise(
        "scale", ("scale",), scaled, kind="mul", a=wide, b=pooled, a_scale=half, a_zero=0,
        b_scale=half, b_zero=0, output_scale=half, output_zero=0, **limits,
    )  # fmt: skip
    last = replace(region.operators[2], input=scaled)
    operators = (*region.operators[:2], pool, factor, last)
    sizes = region.buffer_bytes | {"pooled": pooled.elements, "scaled": scaled.elements}
    squeezed = replace(region, operators=operators, buffer_bytes=sizes)
    run_planned(plan_region(squeezed, npu, depth_first=True), 0)
