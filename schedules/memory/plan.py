"""Give every buffer its offset in one arena, so that buffers alive together never overlap.

The bound is the largest sum of aligned sizes alive at one step, after aliasing: no placement
needs less. `pack.pack` does the search; here are lifetimes, aliases and the proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.schedules.memory.pack import Item, pack
from tilewright.targets.errors import MemoryLimitError


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


def plan(buffers: Sequence[Buffer], alignment: int, effort: int = 200_000, enough: int = 0) -> Plan:
    """Place `buffers` at multiples of `alignment`; `effort` bounds the search, in placements.

    A total of `enough` bytes is as good as the least. The same buffers give the same plan: the
    effort counts steps, not seconds.
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
    placed = dict(zip(lifetimes, pack(items, max(bound, enough), effort), strict=True))
    offsets = {name: placed[root] + offset for name, (root, offset) in homes.items()}
    total = max(
        (placed[root] + item.size for root, item in zip(lifetimes, items, strict=True)), default=0
    )
    return Plan(offsets, total, bound)


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
