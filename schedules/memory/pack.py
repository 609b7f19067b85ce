"""Pack rectangles of fixed time and free address into the lowest arena.

Dynamic storage allocation is NP-hard; networks are easy. Several greedy fills meet the bound on
most of them; where none does, a hill climb reorders the buffers that stand in the way, as
published for compilers of small NPUs, until the bound or the effort is reached.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """`size` bytes (aligned) alive over the steps first..last, both included."""

    size: int
    first: int
    last: int


def pack(items: Sequence[Item], goal: int, effort: int) -> list[int]:
    """An offset for each item; ends at a total of `goal`, or after about `effort` placements."""
    if not items:
        return []
    neighbours = _neighbours(items)
    best: list[int] = []
    best_total = -1
    best_order: list[int] = []
    for order in _orders(items, neighbours):
        offsets = first_fit(items, neighbours, order)
        total = _total(items, offsets)
        if best_total < 0 or total < best_total:
            best, best_total, best_order = offsets, total, order
        if best_total <= goal:
            return best
    offsets = skyline_fit(items)
    if _total(items, offsets) < best_total:
        best, best_total = offsets, _total(items, offsets)
        best_order = sorted(range(len(items)), key=lambda index: (best[index], index))
    if best_total <= goal:
        return best
    return _climb(items, neighbours, best_order, best, goal, effort)


def first_fit(
    items: Sequence[Item], neighbours: Sequence[Sequence[int]], order: Sequence[int]
) -> list[int]:
    """Each item in turn to the lowest address free for the whole of its life."""
    offsets = [-1] * len(items)
    for index in order:
        taken = sorted(
            (offsets[other], offsets[other] + items[other].size)
            for other in neighbours[index]
            if offsets[other] >= 0
        )
        address = 0
        for low, high in taken:
            if low - address >= items[index].size:
                break
            address = max(address, high)
        offsets[index] = address
    return offsets


def skyline_fit(items: Sequence[Item]) -> list[int]:
    """Best fit of a strip packing: into the lowest valley the item that lives longest in it.

    The skyline is a list of (first, last, height); a valley no item fits is filled up to its
    lower neighbour.
    """
    start = min(item.first for item in items)
    end = max(item.last for item in items)
    skyline = [(start, end, 0)]
    offsets = [-1] * len(items)
    waiting = sorted(
        range(len(items)),
        key=lambda index: (
            items[index].first - items[index].last,
            -items[index].size,
            index,
        ),
    )
    while waiting:
        valley = min(range(len(skyline)), key=lambda place: (skyline[place][2], place))
        first, last, height = skyline[valley]
        chosen = next(
            (
                index
                for index in waiting
                if first <= items[index].first and items[index].last <= last
            ),
            None,
        )
        if chosen is None:
            skyline = _fill_valley(skyline, valley)
            continue
        waiting.remove(chosen)
        offsets[chosen] = height
        item = items[chosen]
        pieces = [
            (first, item.first - 1, height),
            (item.first, item.last, height + item.size),
            (item.last + 1, last, height),
        ]
        skyline[valley : valley + 1] = [piece for piece in pieces if piece[0] <= piece[1]]
    return offsets


def _fill_valley(skyline: list[tuple[int, int, int]], valley: int) -> list[tuple[int, int, int]]:
    """Raise one segment to its lower neighbour and join segments that are now level."""
    sides = [skyline[place][2] for place in (valley - 1, valley + 1) if 0 <= place < len(skyline)]
    first, last, _ = skyline[valley]
    raised = [*skyline[:valley], (first, last, min(sides)), *skyline[valley + 1 :]]
    joined = [raised[0]]
    for piece in raised[1:]:
        if piece[2] == joined[-1][2]:
            joined[-1] = (joined[-1][0], piece[1], piece[2])
        else:
            joined.append(piece)
    return joined


def _climb(
    items: Sequence[Item],
    neighbours: Sequence[Sequence[int]],
    order: list[int],
    offsets: list[int],
    goal: int,
    effort: int,
) -> list[int]:
    """Move what holds up the highest item ahead of it; keep changes that do no harm."""
    chance = random.Random(0)
    best, best_total = offsets, _total(items, offsets)
    current = first_fit(items, neighbours, order)
    current_total = _total(items, current)
    rounds = effort // len(items)
    for turn in range(rounds):
        trial = list(order)
        for _ in range(1 + (turn % 3 == 2)):
            _promote(items, neighbours, current, trial, chance)
        placed = first_fit(items, neighbours, trial)
        total = _total(items, placed)
        patience = 1 + 0.02 * (1 - turn / rounds) if chance.random() < 0.1 else 1.0
        if total <= current_total * patience:
            order, current, current_total = trial, placed, total
        if total < best_total:
            best, best_total = placed, total
            if best_total <= goal:
                break
    return best


def _promote(
    items: Sequence[Item],
    neighbours: Sequence[Sequence[int]],
    offsets: Sequence[int],
    order: list[int],
    chance: random.Random,
) -> None:
    """Swap, in place, an item at the top (or one that supports it) with an earlier one."""
    top = _total(items, offsets)
    highest = [i for i, item in enumerate(items) if offsets[i] + item.size == top]
    item = chance.choice(highest)
    below = [other for other in neighbours[item] if offsets[other] < offsets[item]]
    if below and chance.random() < 0.5:
        item = chance.choice(below)
    rank = {index: position for position, index in enumerate(order)}
    rivals = [other for other in neighbours[item] if rank[other] < rank[item]]
    if rivals:
        other = chance.choice(rivals)
        order[rank[item]], order[rank[other]] = other, item


def _orders(items: Sequence[Item], neighbours: Sequence[Sequence[int]]) -> list[list[int]]:
    def sort(key: Callable[[int], tuple[int, ...]]) -> list[int]:
        return sorted(range(len(items)), key=lambda index: (*key(index), index))

    def crowd(index: int) -> int:
        return items[index].size + sum(items[other].size for other in neighbours[index])

    def life(index: int) -> int:
        return items[index].last - items[index].first + 1

    return [
        sort(lambda index: (-items[index].size, -life(index))),
        sort(lambda index: (-items[index].size * life(index),)),
        sort(lambda index: (-life(index), -items[index].size)),
        sort(lambda index: (-crowd(index), -items[index].size)),
        sort(lambda index: (items[index].first, -items[index].size)),
        sort(lambda index: (-items[index].last, -items[index].size)),
    ]


def _neighbours(items: Sequence[Item]) -> list[list[int]]:
    """For each item, those alive together with it."""
    found: list[list[int]] = [[] for _ in items]
    alive: list[int] = []
    for index in sorted(range(len(items)), key=lambda index: items[index].first):
        alive = [other for other in alive if items[other].last >= items[index].first]
        for other in alive:
            found[other].append(index)
        found[index] += alive
        alive.append(index)
    return found


def _total(items: Sequence[Item], offsets: Sequence[int]) -> int:
    return max(offset + item.size for offset, item in zip(offsets, items, strict=True))
