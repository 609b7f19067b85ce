"""Prove a command stream free of races: every conflicting pair of accesses is ordered.

Independent of how the waits were found: the stream's waits and the engines' in-order queues give
each instruction the set of instructions known to be complete when it starts; every earlier access
to the same memory by another engine, one of the two writing, must be in that set.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.npu.accesses import Access, Space, accesses
from tilewright.targets import isa


def find_races(stream: isa.CommandStream, channel_alignment: int) -> list[tuple[int, int]]:
    """Pairs of instruction indices that touch the same memory in no settled order."""
    known = _known_complete(stream.instructions)
    places = {space: _Touched(len(stream.instructions)) for space in Space}
    engines = np.array([-1 if one.engine is None else one.engine for one in stream.instructions])
    counts = _counts(stream.instructions)
    races = []
    for index, instruction in enumerate(stream.instructions):
        touched = accesses(instruction, channel_alignment)
        for access in touched:
            earlier = places[access.space].conflicts(access)
            others = earlier[engines[earlier] != engines[index]]
            unordered = others[counts[others] > known[index, engines[others]]]
            races += [(int(other), index) for other in unordered]
        for access in touched:
            places[access.space].add(index, access)
    return sorted(set(races))


def _counts(instructions: list[isa.Instruction]) -> NDArray[np.int64]:
    """Each instruction's place in its engine's queue, from one."""
    issued = [0] * len(isa.Engine)
    counts = np.zeros(len(instructions), np.int64)
    for index, instruction in enumerate(instructions):
        if instruction.engine is not None:
            issued[instruction.engine] += 1
            counts[index] = issued[instruction.engine]
    return counts


def _known_complete(instructions: list[isa.Instruction]) -> NDArray[np.int64]:
    """For each instruction and engine, how many are certainly complete when it starts."""
    engines = len(isa.Engine)
    after: list[list[NDArray[np.int64]]] = [[np.zeros(engines, np.int64)] for _ in range(engines)]
    known = np.zeros((len(instructions), engines), np.int64)
    for index, instruction in enumerate(instructions):
        if instruction.engine is None:
            continue
        queue = after[instruction.engine]
        clock = queue[-1].copy()
        for engine, count in instruction.waits.items():
            clock = np.maximum(clock, after[engine][count])
        known[index] = clock
        done = clock.copy()
        done[instruction.engine] = len(queue)
        queue.append(done)
    return known


class _Touched:
    """All accesses of one memory so far, as arrays."""

    def __init__(self, instructions: int) -> None:
        self._rows = np.zeros((4 * instructions + 4, 4), np.int64)  # low, high, writes, index
        self._used = 0

    def add(self, index: int, access: Access) -> None:
        self._rows[self._used] = access.low, access.high, access.writes, index
        self._used += 1

    def conflicts(self, access: Access) -> NDArray[np.int64]:
        """Instructions whose access overlaps, one of the two writing."""
        rows = self._rows[: self._used]
        hit = (rows[:, 0] < access.high) & (rows[:, 1] > access.low)
        if not access.writes:
            hit &= rows[:, 2] == 1
        found: NDArray[np.int64] = rows[hit, 3]
        return found
