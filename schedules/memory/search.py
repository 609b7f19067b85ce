"""Place items under a given capacity where packing by rules fails: a search that propagates.

Items fall, as in a solution where everything is pushed down: each rests on the bottom or on an
item that lives with it. So one step is: this item at its lowest offset, or else (it is "raised")
it rests on an item still to come, and cannot lie below the lowest end of those. Floors of sections
of time and lowest offsets of items follow from each other; a section whose floor and bytes to come
exceed the capacity ends the branch and is blamed. An item is taken only when no other fits below
it, for that one would have come first.

Three rules of choice and three orders of items take turns, each try a little longer than those
before; later tries shake the orders and remember the blame. The steps are taken in C (search.c);
what they find depends on nothing but the items.
"""

from __future__ import annotations

import ctypes
import functools
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.memory.pack import Item
from tilewright.targets.simulator.build import compiled_library

_SOURCE = Path(__file__).with_name("search.c")
_RULES = (0, 1, 2)  # `enum rule` in search.c
_FOUND, _IMPOSSIBLE, _NO_MEMORY = 1, 0, 2
_FIRST_TRY = 2  # steps an item
_LONGER = 1.1  # from one round of all rules and orders to the next
_SHAKEN = 0.2  # of an order's keys

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


def fit(items: Sequence[Item], capacity: int, steps: int) -> list[int] | None:
    """An offset for each item, all ending by `capacity`; None if there is none or none was found.

    `steps` bounds the search; a step takes some microseconds. Raises TilewrightError without a C
    compiler.
    """
    if not items:
        return []
    first, last, start, members = _sections(items)
    size = np.array([item.size for item in items], np.int64)
    blame = np.zeros(len(start) - 1, np.int64)
    offsets = np.zeros(len(items), np.int64)
    chance = random.Random(0)
    orders = _orders(size, last - first + 1)
    tries = [(rule, order) for rule in _RULES for order in orders]
    nodes, count = _FIRST_TRY * len(items), 0
    while steps > 0:
        rule, order = tries[count % len(tries)]
        shaken = [int(key * (1 + _SHAKEN * chance.random())) for key in order.tolist()]
        key = order if count < len(tries) else np.array(shaken, np.int64)
        outcome = _library().tilewright_fit(
            len(items), len(start) - 1, first, last, start, members, size, key,
            capacity, nodes, rule, blame, offsets,
        )  # fmt: skip
        if outcome == _NO_MEMORY:
            raise MemoryError
        if outcome in (_FOUND, _IMPOSSIBLE):
            return offsets.tolist() if outcome == _FOUND else None
        steps -= nodes
        count += 1
        blame //= 2
        if count % len(tries) == 0:
            nodes = int(nodes * _LONGER)
    return None


def _sections(items: Sequence[Item]) -> tuple[Int32, Int32, Int32, Int32]:
    """Each item's first and last section, where each section's members start, and the members."""
    times = sorted({time for item in items for time in (item.first, item.last + 1)})
    at = {time: index for index, time in enumerate(times)}
    first = np.array([at[item.first] for item in items], np.int32)
    last = np.array([at[item.last + 1] - 1 for item in items], np.int32)
    members = [np.flatnonzero((first <= s) & (s <= last)) for s in range(len(times) - 1)]
    start = np.cumsum([0, *map(len, members)]).astype(np.int32)
    return first, last, start, np.concatenate(members).astype(np.int32)


def _orders(size: Int64, life: Int32) -> list[Int64]:
    """Keys, least first: the longest lived, those of the largest area, the largest."""
    largest = int(size.max()) + 1
    return [-(life.astype(np.int64) * largest + size), -(life * size), -size]


@functools.cache
def _library() -> ctypes.CDLL:
    library = compiled_library("memory-search", [_SOURCE])
    words, longs = (np.ctypeslib.ndpointer(kind, flags="C") for kind in (np.int32, np.int64))
    library.tilewright_fit.argtypes = [
        ctypes.c_int32, ctypes.c_int32, words, words, words, words, longs, longs,
        ctypes.c_int64, ctypes.c_int64, ctypes.c_int32, longs, longs,
    ]  # fmt: skip
    return library
