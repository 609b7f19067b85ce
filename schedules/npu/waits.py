"""From instructions in program order to a stream: who waits for whom, and in which order to issue.

A conflict (read after write, write after read, write after write) between two engines becomes a
wait for the earlier instruction's place in its engine's count; engines run their own queues in
order. A wait that another wait, or an earlier instruction of the same engine, implies is dropped.
Instructions are then issued by the time they are expected to start, engine order kept, so that a
load which can run early is not stuck in the stream behind work that cannot.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tilewright.schedules.npu.accesses import Access, Space, accesses
from tilewright.targets import isa

_ENGINES = len(isa.Engine)
Clock = tuple[int, ...]  # for each engine, how many of its instructions are known to be complete
_NOTHING: Clock = (0,) * _ENGINES


@dataclass
class _Segment:
    """A range of one memory with the same history: its last writer and the readers since."""

    writer: Clock = _NOTHING
    readers: Clock = _NOTHING


@dataclass
class _History:
    """Segments of one memory, as sorted starts; the last one reaches to the end."""

    starts: list[int] = field(default_factory=lambda: [0])
    segments: list[_Segment] = field(default_factory=lambda: [_Segment()])

    def conflicts(self, access: Access) -> Clock:
        """What must be complete before `access` may happen."""
        first = bisect_right(self.starts, access.low) - 1
        last = bisect_left(self.starts, access.high)
        clock = _NOTHING
        for segment in self.segments[first:last]:
            clock = later(clock, segment.writer)
            if access.writes:
                clock = later(clock, segment.readers)
        return clock

    def record(self, access: Access, done: Clock) -> None:
        """Note that `access` happens with the completion told by `done` (one engine's count)."""
        first, last = self._split(access.low), self._split(access.high)
        if access.writes:
            self.starts[first:last] = [access.low]
            self.segments[first:last] = [_Segment(writer=done)]
        else:
            for segment in self.segments[first:last]:
                segment.readers = later(segment.readers, done)

    def _split(self, address: int) -> int:
        """The index of the segment that starts at `address`, made if need be."""
        place = bisect_left(self.starts, address)
        if place == len(self.starts) or self.starts[place] != address:
            before = self.segments[place - 1]
            self.starts.insert(place, address)
            self.segments.insert(place, _Segment(before.writer, before.readers))
        return place


def later(one: Clock, two: Clock) -> Clock:
    """Both have happened."""
    return tuple(map(max, one, two))


def find_conflicts(instructions: Sequence[isa.Instruction], channel_alignment: int) -> list[Clock]:
    """For each instruction, the counts of all engines that its accesses conflict with."""
    histories = {space: _History() for space in Space}
    counts = [0] * _ENGINES
    found = []
    for instruction in instructions:
        touched = accesses(instruction, channel_alignment)
        clock = _NOTHING
        for access in touched:
            clock = later(clock, histories[access.space].conflicts(access))
        found.append(clock)
        engine = instruction.engine
        assert engine is not None, "END is added when the stream is complete"
        counts[engine] += 1
        done = tuple(counts[engine] if e == engine else 0 for e in range(_ENGINES))
        for access in sorted(touched, key=lambda access: access.writes):
            histories[access.space].record(access, done)
    return found


def reduce_waits(
    instructions: Sequence[isa.Instruction], conflicts: Sequence[Clock]
) -> list[dict[isa.Engine, int]]:
    """The least waits that imply all conflicts, given that each engine runs in order."""
    completed: list[list[Clock]] = [[_NOTHING] for _ in range(_ENGINES)]
    waits = []
    for instruction, conflict in zip(instructions, conflicts, strict=True):
        engine = instruction.engine
        assert engine is not None
        known = completed[engine][-1]
        kept: dict[isa.Engine, int] = {}
        candidates = [e for e in isa.Engine if e != engine and conflict[e] > known[e]]
        implied = {e: completed[e][conflict[e]] for e in candidates}
        for e in candidates:
            if all(implied[other][e] < conflict[e] for other in candidates if other != e):
                kept[e] = conflict[e]
        for e in kept:
            known = later(known, implied[e])
        count = len(completed[engine])
        completed[engine].append(tuple(count if e == engine else known[e] for e in range(_ENGINES)))
        waits.append(kept)
    return waits


def expected_starts(
    instructions: Sequence[isa.Instruction],
    conflicts: Sequence[Clock],
    cycles: Callable[[isa.Instruction], float],
) -> tuple[list[float], float]:
    """When each instruction can start and when the last ends, engines and conflicts alone."""
    ends: list[list[float]] = [[0.0] for _ in range(_ENGINES)]
    starts = []
    for instruction, conflict in zip(instructions, conflicts, strict=True):
        engine = instruction.engine
        assert engine is not None
        start = max(ends[engine][-1], *(ends[e][conflict[e]] for e in range(_ENGINES)))
        starts.append(start)
        ends[engine].append(start + cycles(instruction))
    return starts, max(queue[-1] for queue in ends)


def order_stream(
    instructions: Sequence[isa.Instruction],
    channel_alignment: int,
    cycles: Callable[[isa.Instruction], float],
) -> tuple[list[isa.Instruction], list[int]]:
    """The instructions with their waits in issue order, and the program index of each."""
    conflicts = find_conflicts(instructions, channel_alignment)
    waits = reduce_waits(instructions, conflicts)
    starts, _ = expected_starts(instructions, conflicts, cycles)
    order = sorted(range(len(instructions)), key=lambda index: (starts[index], index))
    issued = [0] * _ENGINES
    stream = []
    for index in order:
        instruction = instructions[index]
        within_reach = {
            engine: max(count, issued[engine] - isa.LONGEST_WAIT)
            for engine, count in waits[index].items()
        }
        stream.append(replace(instruction, waits=within_reach))
        assert instruction.engine is not None
        issued[instruction.engine] += 1
    return stream, order
