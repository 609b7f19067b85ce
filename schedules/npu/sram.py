"""Addresses in the SRAM: staying buffers, rings of slots, and constants loaded ahead.

What tiles and staying buffers leave free goes to constants. First an operator's constants become
an image: all of them, as they lie in DRAM, instead of a ring of slots that refills. Then images of
neighbouring operators that are small join, so that one transfer brings them all. Then images and
rings of constants begin to live operators earlier, and load under the work before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.schedules.memory.plan import Buffer, plan
from tilewright.schedules.npu.geometry import round_up
from tilewright.schedules.npu.region_plan import Image
from tilewright.schedules.npu.residency import BufferUse
from tilewright.schedules.npu.tiling import Tiling
from tilewright.schedules.npu.work import Work
from tilewright.targets.description import Npu

_PACKING_EFFORT = 6_000
_WORTH_SEARCHING = 1.04  # a search does not often win more
# (operators ahead, share of the SRAM to fill), most hopeful first: packing may leave gaps.
_AMBITIONS = ((32, 1.0), (32, 0.93), (12, 0.85), (2, 0.7), (0, 0.0))


@dataclass(frozen=True)
class SramPlan:
    """`offsets` of buffers by name and of rings by "operator/ring"; `live` bytes an operator."""

    offsets: dict[str, int]
    images: dict[int, Image]
    total_bytes: int
    live: tuple[int, ...]


def pack_sram(
    npu: Npu,
    kept: Sequence[BufferUse],
    works: Sequence[Work],
    tilings: Sequence[Tiling],
    constants: Sequence[tuple[int, int]],
    transfer_bytes: int,
) -> SramPlan | None:
    """Places for everything; `constants` are each operator's (offset, bytes). None: no room.

    Images smaller than `transfer_bytes` are joined with their neighbours.
    """
    alignment = max(npu.channel_alignment, npu.tables.alignment)
    for ahead, share in _AMBITIONS:
        packing = _Packing(alignment, int(npu.sram_bytes * share), len(tilings))
        packing.add_buffers(kept)
        packing.add_rings(works, tilings, constants)
        packing.make_images(constants)
        packing.join_images(transfer_bytes)
        packing.load_ahead(ahead)
        made = plan(packing.buffers, alignment, 0, npu.sram_bytes)
        if npu.sram_bytes < made.total_bytes <= npu.sram_bytes * _WORTH_SEARCHING:
            made = plan(packing.buffers, alignment, _PACKING_EFFORT, npu.sram_bytes)
        if made.total_bytes <= npu.sram_bytes:
            images = packing.images(made.offsets)
            return SramPlan(made.offsets, images, made.total_bytes, tuple(packing.live))
    return None


@dataclass
class _Constants:
    """Constants of some operators, alive from step `alive`: an image, or rings of their own."""

    steps: set[int]
    alive: int
    rings: dict[str, tuple[int, int]] = field(default_factory=dict)  # name: (step, bytes)
    offset: int = 0
    nbytes: int = 0  # of the image; 0 while rings are used

    @property
    def first(self) -> int:
        return min(self.steps)

    @property
    def last(self) -> int:
        return max(self.steps)

    def is_alive(self, step: int) -> bool:
        return self.alive <= step <= self.last


class _Packing:
    """What lives when, as it grows; `room` is what growth may fill up to."""

    def __init__(self, alignment: int, room: int, steps: int) -> None:
        self.alignment, self.room = alignment, room
        self.live = [0] * steps
        self.fixed: list[Buffer] = []
        self.constants: list[_Constants] = []

    @property
    def buffers(self) -> list[Buffer]:
        buffers = list(self.fixed)
        for part in self.constants:
            if part.nbytes:
                buffers.append(Buffer(f"{part.first}/image", part.nbytes, part.alive, part.last))
            else:
                early = part.first - part.alive
                for name, (step, nbytes) in part.rings.items():
                    buffers.append(Buffer(name, nbytes, step - early, step))
        return buffers

    def images(self, offsets: dict[str, int]) -> dict[int, Image]:
        """The image of every operator that has one."""
        return {
            step: Image(part.offset, part.nbytes, offsets[f"{part.first}/image"])
            for part in self.constants
            if part.nbytes
            for step in part.steps
        }

    def add_buffers(self, kept: Sequence[BufferUse]) -> None:
        for use in kept:
            assert use.layout is not None
            self.fixed.append(Buffer(use.name, use.layout.nbytes, use.first, use.last))
            for step in range(use.first, use.last + 1):
                self.live[step] += self._size(use.layout.nbytes)

    def add_rings(
        self,
        works: Sequence[Work],
        tilings: Sequence[Tiling],
        constants: Sequence[tuple[int, int]],
    ) -> None:
        """The rings of every operator; operators with the same constants share what becomes one."""
        parts: dict[int, _Constants] = {}
        for step, (work, tiling) in enumerate(zip(works, tilings, strict=True)):
            offset, _ = constants[step]
            for name, (size, slots) in tiling.rings.items():
                if not size:
                    continue
                self.live[step] += self._size(size * slots)
                if name == "tables" or (name == "weights" and not work.streamed_weights):
                    part = parts.setdefault(offset, _Constants({step}, step, offset=offset))
                    part.steps.add(step)
                    part.rings[f"{step}/{name}"] = step, size * slots
                else:
                    self.fixed.append(Buffer(f"{step}/{name}", size * slots, step, step))
        self.constants = list(parts.values())

    def make_images(self, constants: Sequence[tuple[int, int]]) -> None:
        """All constants of an operator at once, where its own time has room for them."""
        for part in self.constants:
            nbytes = constants[part.first][1]
            more = {step: self._size(nbytes) for step in range(part.first, part.last + 1)}
            for step, ring_bytes in part.rings.values():
                more[step] -= self._size(ring_bytes)
            if all(self.live[step] + extra <= self.room for step, extra in more.items()):
                self._grow(more)
                part.nbytes = nbytes

    def join_images(self, enough: int) -> None:
        """Join images of neighbours until one transfer of them is worth its latency."""
        joined: list[_Constants] = []
        for part in self.constants:
            before = joined[-1] if joined else None
            if not before or not 0 < before.nbytes < enough or not 0 < part.nbytes < enough:
                joined.append(part)
                continue
            nbytes = part.offset + part.nbytes - before.offset
            more = {
                step: self._size(nbytes)
                - before.is_alive(step) * self._size(before.nbytes)
                - part.is_alive(step) * self._size(part.nbytes)
                for step in range(before.first, max(before.last, part.last) + 1)
            }
            if all(self.live[step] + extra <= self.room for step, extra in more.items()):
                self._grow(more)
                before.steps |= part.steps
                before.nbytes = nbytes
            else:
                joined.append(part)
        self.constants = joined

    def load_ahead(self, farthest: int) -> None:
        """Constants live ever earlier, all operators by one step at a time."""
        for distance in range(1, farthest + 1):
            for part in self.constants:
                step = part.alive - 1
                rings = sum(self._size(nbytes) for _, nbytes in part.rings.values())
                nbytes = self._size(part.nbytes) or rings
                in_turn = part.first - part.alive == distance - 1
                in_turn &= part.nbytes > 0 or len(part.steps) == 1
                if in_turn and step >= 0 and self.live[step] + nbytes <= self.room:
                    part.alive = step
                    self.live[step] += nbytes

    def _grow(self, more: dict[int, int]) -> None:
        for step, extra in more.items():
            self.live[step] += extra

    def _size(self, nbytes: int) -> int:
        return round_up(nbytes, self.alignment)
