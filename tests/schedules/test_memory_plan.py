"""The arena planner: nothing overlaps, networks meet the bound, aliases stay in their parents."""

from __future__ import annotations

import csv
import random
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.schedules.memory.pack import Item, first_fit
from tilewright.schedules.memory.plan import Buffer, Plan, plan
from tilewright.schedules.memory.search import fit
from tilewright.targets.errors import MemoryLimitError

DATA = Path(__file__).parent / "data"


def assert_sound(buffers: list[Buffer], made: Plan, alignment: int) -> None:
    roots = [buffer for buffer in buffers if buffer.alias is None]
    for index, one in enumerate(roots):
        assert made.offsets[one.name] % alignment == 0
        assert made.offsets[one.name] + one.nbytes <= made.total_bytes
        for two in roots[index + 1 :]:
            alive = one.first_step <= two.last_step and two.first_step <= one.last_step
            a, b = made.offsets[one.name], made.offsets[two.name]
            assert not alive or a + one.nbytes <= b or b + two.nbytes <= a
    assert made.total_bytes >= made.bound_bytes


@st.composite
def buffers_strategy(draw: st.DrawFn) -> list[Buffer]:
    count = draw(st.integers(0, 14))
    made = []
    for index in range(count):
        first = draw(st.integers(0, 10))
        last = first + draw(st.integers(0, 6))
        made.append(Buffer(f"b{index}", draw(st.integers(1, 300)), first, last))
    return made


@settings(max_examples=100, deadline=None)
@given(buffers_strategy(), st.sampled_from([1, 16, 64]))
def test_nothing_alive_together_overlaps(buffers: list[Buffer], alignment: int) -> None:
    assert_sound(buffers, plan(buffers, alignment, effort=2000), alignment)


def test_networks_reach_the_bound_exactly() -> None:
    chance = random.Random(0)
    for _ in range(20):
        buffers = []
        step = 0
        while step < 60:  # residual blocks: a chain with skips over one to three operators
            size = chance.randint(1, 64) * 1024
            skip = chance.choice([0, 0, 2, 3])
            buffers.append(Buffer(f"b{step}", size, step, step + 1 + skip))
            step += 1
        made = plan(buffers, 16)
        assert_sound(buffers, made, 16)
        assert made.total_bytes == made.bound_bytes


def test_an_alias_keeps_its_parent_alive_and_lies_in_it() -> None:
    buffers = [
        Buffer("whole", 200, 0, 1),
        Buffer("half", 100, 4, 5, alias=("whole", 100)),
        Buffer("quarter", 50, 5, 5, alias=("half", 50)),
        Buffer("other", 100, 3, 3),
    ]
    made = plan(buffers, 1)
    assert made.offsets["half"] == made.offsets["whole"] + 100
    assert made.offsets["quarter"] == made.offsets["whole"] + 150
    assert made.total_bytes == made.bound_bytes == 300


@pytest.mark.parametrize(
    ("buffers", "message"),
    [
        ([Buffer("b", 9, 0, 0, ("a", 2)), Buffer("a", 10, 0, 0)], "b: bytes 2 to 11 are outside a"),
        ([Buffer("b", 9, 0, 0, ("gone", 0))], "b: aliases gone, which is not planned"),
        ([Buffer("a", 9, 0, 0, ("b", 0)), Buffer("b", 9, 0, 0, ("a", 0))], "form a circle"),
    ],
)
def test_a_bad_alias_is_named(buffers: list[Buffer], message: str) -> None:
    with pytest.raises(MemoryLimitError, match=message):
        plan(buffers, 1)


def test_the_same_buffers_give_the_same_plan() -> None:
    buffers = _instance("A")
    assert plan(buffers, 1024, effort=20_000) == plan(buffers, 1024, effort=20_000)


def test_a_hard_instance_stays_within_a_sixth_of_its_bound() -> None:
    buffers = _instance("A")
    made = plan(buffers, 1024, effort=100_000)
    assert_sound(buffers, made, 1024)
    assert made.total_bytes <= made.bound_bytes * 7 / 6


@pytest.mark.parametrize(
    "name",
    ["A", "C", "G", *(pytest.param(name, marks=pytest.mark.long) for name in ("E", "I", "K"))],
)
def test_a_hard_instance_fits_the_limit_it_is_known_to_fit(name: str) -> None:
    buffers = _instance(name)
    made = plan(buffers, 1024, limit=1 << 20)
    assert_sound(buffers, made, 1024)
    assert made.total_bytes <= 1 << 20


@settings(max_examples=60, deadline=None)
@given(buffers_strategy(), st.sampled_from([1, 16]))
def test_a_limit_is_met_wherever_it_can_be(buffers: list[Buffer], alignment: int) -> None:
    """What the hill climb reaches, the search reaches when told so; it then aims one lower."""
    made = plan(buffers, alignment, effort=2000)
    told = plan(buffers, alignment, limit=made.total_bytes)
    assert_sound(buffers, told, alignment)
    assert told.total_bytes <= made.total_bytes
    lower = plan(buffers, alignment, limit=max(made.total_bytes - alignment, made.bound_bytes))
    assert_sound(buffers, lower, alignment)


def test_the_search_finds_what_exists_and_proves_what_does_not() -> None:
    """First fit over all orders of a few items is every plan in which each is pushed down."""
    chance = random.Random(1)
    for _ in range(40):
        items = []
        for _ in range(6):
            first = chance.randint(0, 4)
            items.append(Item(chance.randint(1, 6), first, first + chance.randint(0, 3)))
        neighbours = [
            [j for j, b in enumerate(items) if j != i and a.first <= b.last and b.first <= a.last]
            for i, a in enumerate(items)
        ]
        least = min(
            max(
                at + item.size
                for at, item in zip(first_fit(items, neighbours, order), items, strict=True)
            )
            for order in permutations(range(len(items)))
        )
        found = fit(items, least, 10_000)
        assert found is not None
        assert max(at + item.size for at, item in zip(found, items, strict=True)) <= least
        assert fit(items, least - 1, 10_000) is None


def _instance(name: str) -> list[Buffer]:
    """A MiniMalloc instance, whose lifetimes are half open."""
    with (DATA / f"minimalloc_{name}.csv").open() as file:
        return [
            Buffer(row["id"], int(row["size"]), int(row["lower"]), int(row["upper"]) - 1)
            for row in csv.DictReader(file)
        ]
