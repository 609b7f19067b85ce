"""Give every buffer its offset in one arena, so that buffers alive together never overlap.

The bound is the largest sum of aligned sizes alive at one step, after aliasing: no placement
needs less. `pack.pack` places, `search.fit` where a limit is told; here are lifetimes, aliases and
the proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.schedules.memory.pack import Item, pack
from tilewright.schedules.memory.search import fit
from tilewright.targets.errors import MemoryLimitError

_FITTING_STEPS = 3_000_000  # half a minute at most, for hundreds of buffers


@dataclass(frozen=True)
class Buffer:
    """`nbytes` alive from step `first_step` to step `last_step`, both included.

    `alias` is (parent name, byte offset): the buffer is that part of its parent, which then lives
    as long as any of its parts.
    """

    name: str
    nbytes: int
    first_step: int
    last_step: int
    alias: tuple[str, int] | None = None


@dataclass(frozen=True)
class Plan:
    """`offsets` in bytes for every buffer, aliases included.

    `total_bytes` is what the arena needs, `bound_bytes` what any arena would need at least.
    """

    offsets: dict[str, int]
    total_bytes: int
    bound_bytes: int


def plan(
    buffers: Sequence[Buffer],
    alignment: int,
    effort: int = 200_000,
    enough: int = 0,
    limit: int | None = None,
) -> Plan:
    """Place `buffers` at multiples of `alignment`; `effort` bounds the search, in placements.

    A total of `enough` bytes is as good as the least. With a `limit` in bytes, a search that aims
    at it takes the place of the hill climb; the plan may still exceed it, where nothing fits or
    nothing was found. The same buffers give the same plan: effort counts steps, not seconds.
    Raises MemoryLimitError when an alias does not lie inside its parent.
    """
    by_name = {buffer.name: buffer for buffer in buffers}
    if len(by_name) != len(buffers):
        raise ValueError("two buffers have the same name")
    homes = {buffer.name: _home(buffer, by_name) for buffer in buffers}
    lifetimes: dict[str, tuple[int, int]] = {}
    for buffer in buffers:
        root, _ = homes[buffer.name]
        first, last = lifetimes.get(root, (buffer.first_step, buffer.last_step))
        lifetimes[root] = (min(first, buffer.first_step), max(last, buffer.last_step))
    items = [
        Item(-(-by_name[root].nbytes // alignment) * alignment, first, last)
        for root, (first, last) in lifetimes.items()
    ]
    bound = live_bytes_bound(items)
    if limit is None:
        packed = pack(items, max(bound, enough), effort)
    else:
        packed = _fitted(items, bound, limit // alignment * alignment)
    placed = dict(zip(lifetimes, packed, strict=True))
    offsets = {name: placed[root] + offset for name, (root, offset) in homes.items()}
    total = max(
        (placed[root] + item.size for root, item in zip(lifetimes, items, strict=True)), default=0
    )
    return Plan(offsets, total, bound)


def _fitted(items: Sequence[Item], bound: int, limit: int) -> list[int]:
    """Offsets by the rules, or by the search where those exceed a limit that could be met."""
    packed = pack(items, max(bound, limit), 0)
    total = max((at + item.size for at, item in zip(packed, items, strict=True)), default=0)
    if total <= limit or bound > limit:
        return packed
    return fit(items, limit, _FITTING_STEPS) or packed


def live_bytes_bound(items: Sequence[Item]) -> int:
    """The largest sum of sizes alive at one step."""
    changes: dict[int, int] = {}
    for item in items:
        changes[item.first] = changes.get(item.first, 0) + item.size
        changes[item.last + 1] = changes.get(item.last + 1, 0) - item.size
    live = peak = 0
    for step in sorted(changes):
        live += changes[step]
        peak = max(peak, live)
    return peak


def _home(buffer: Buffer, by_name: dict[str, Buffer]) -> tuple[str, int]:
    """The buffer that is no alias, and the byte offset of `buffer` in it."""
    offset = 0
    name = buffer.name
    for _ in by_name:
        alias = by_name[name].alias
        if alias is None:
            return name, offset
        parent, shift = alias
        if parent not in by_name:
            raise MemoryLimitError(
                f"{name}: aliases {parent}, which is not planned; plan the two together"
            )
        if shift < 0 or shift + by_name[name].nbytes > by_name[parent].nbytes:
            raise MemoryLimitError(
                f"{name}: bytes {shift} to {shift + by_name[name].nbytes} are outside {parent} "
                f"of {by_name[parent].nbytes} bytes; give it a place of its own"
            )
        name, offset = parent, offset + shift
    raise MemoryLimitError(f"{buffer.name}: its aliases form a circle; break it at one buffer")
