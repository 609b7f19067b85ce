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

_PACKING_EFFORT = 20_000
# (operators ahead, share of the SRAM to fill), most hopeful first: packing may leave gaps.
_AMBITIONS = ((32, 1.0), (32, 0.95), (16, 0.9), (8, 0.8), (2, 0.7), (0, 0.0))
_LATENCIES = 4  # a transfer should last as many times its latency


@dataclass(frozen=True)
class SramPlan:
    """`offsets` of buffers by name and of rings by "operator/ring"; `live` bytes an operator."""

    offsets: dict[str, int]
    images: dict[int, Image]
    total_bytes: int
    live: tuple[int, ...]


def worthwhile_bytes(npu: Npu) -> int:
    """A transfer of so many bytes hides its latency well."""
    rate = min(npu.dram_bytes_per_cycle, npu.memory.dma_bytes_per_cycle)
    return int(_LATENCIES * npu.memory.dma_latency_cycles * rate)


def pack_sram(
    npu: Npu,
    kept: Sequence[BufferUse],
    works: Sequence[Work],
    tilings: Sequence[Tiling],
    constants: Sequence[tuple[int, int]],
) -> SramPlan | None:
    """Places for everything; `constants` are each operator's (offset, bytes). None: no room."""
    alignment = max(npu.channel_alignment, npu.tables.alignment)
    for ahead, share in _AMBITIONS:
        packing = _Packing(alignment, int(npu.sram_bytes * share), len(tilings))
        packing.add_buffers(kept)
        packing.add_rings(works, tilings)
        packing.make_images(constants)
        packing.join_images(worthwhile_bytes(npu))
        packing.load_ahead(ahead)
        made = plan(packing.buffers, alignment, _PACKING_EFFORT)
        if made.total_bytes <= npu.sram_bytes:
            images = packing.images(made.offsets)
            return SramPlan(made.offsets, images, made.total_bytes, tuple(packing.live))
    return None


@dataclass
class _Constants:
    """Constants of operators first..last, alive from `alive`: an image, or rings of one's own."""

    first: int
    last: int
    alive: int
    rings: dict[str, int] = field(default_factory=dict)  # name: bytes
    offset: int = 0
    nbytes: int = 0  # of the image; 0 while rings are used


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
                for name, nbytes in part.rings.items():
                    buffers.append(Buffer(f"{part.first}/{name}", nbytes, part.alive, part.last))
        return buffers

    def images(self, offsets: dict[str, int]) -> dict[int, Image]:
        """The image of every operator that has one."""
        return {
            step: Image(part.offset, part.nbytes, offsets[f"{part.first}/image"])
            for part in self.constants
            if part.nbytes
            for step in range(part.first, part.last + 1)
        }

    def add_buffers(self, kept: Sequence[BufferUse]) -> None:
        for use in kept:
            assert use.layout is not None
            self.fixed.append(Buffer(use.name, use.layout.nbytes, use.first, use.last))
            self._occupy(use.layout.nbytes, use.first, use.last)

    def add_rings(self, works: Sequence[Work], tilings: Sequence[Tiling]) -> None:
        for step, (work, tiling) in enumerate(zip(works, tilings, strict=True)):
            part = _Constants(step, step, step)
            for name, (size, slots) in tiling.rings.items():
                is_constant = name == "tables" or (name == "weights" and not work.streamed_weights)
                if is_constant and size:
                    part.rings[name] = size * slots
                elif size:
                    self.fixed.append(Buffer(f"{step}/{name}", size * slots, step, step))
                if size:
                    self._occupy(size * slots, step, step)
            if part.rings:
                self.constants.append(part)

    def make_images(self, constants: Sequence[tuple[int, int]]) -> None:
        """All constants of an operator at once, where its own time has room for them."""
        for part in self.constants:
            offset, nbytes = constants[part.first]
            more = self._size(nbytes) - self._ring_bytes(part)
            if self.live[part.first] + more <= self.room or more <= 0:
                part.offset, part.nbytes = offset, nbytes
                self.live[part.first] += more

    def join_images(self, enough: int) -> None:
        """Join images of neighbours until one transfer of them is worth its latency."""
        joined: list[_Constants] = []
        for part in self.constants:
            before = joined[-1] if joined else None
            if before is None or not self._joins(before, part, enough):
                joined.append(part)
                continue
            end = part.offset + part.nbytes
            self._occupy(-before.nbytes, before.first, before.last)
            self._occupy(-part.nbytes, part.first, part.last)
            before.last, before.nbytes = part.last, end - before.offset
            self._occupy(before.nbytes, before.first, before.last)
        self.constants = joined

    def load_ahead(self, farthest: int) -> None:
        """Constants live ever earlier, all operators by one step at a time."""
        for distance in range(1, farthest + 1):
            for part in self.constants:
                step = part.alive - 1
                nbytes = self._size(part.nbytes) or self._ring_bytes(part)
                in_turn = part.first - part.alive == distance - 1
                if in_turn and step >= 0 and self.live[step] + nbytes <= self.room:
                    part.alive = step
                    self.live[step] += nbytes

    def _joins(self, before: _Constants, part: _Constants, enough: int) -> bool:
        """Both are images, small, and all of them fits while any of their operators runs."""
        if not before.nbytes or not part.nbytes or before.nbytes >= enough:
            return False
        whole = self._size(part.offset + part.nbytes - before.offset)
        if part.nbytes >= enough:
            return False
        own = dict.fromkeys(range(before.first, before.last + 1), before.nbytes)
        own[part.first] = part.nbytes
        return all(
            self.live[step] - self._size(own.get(step, 0)) + whole <= self.room
            for step in range(before.first, part.last + 1)
        )

    def _occupy(self, nbytes: int, first: int, last: int) -> None:
        sign = -1 if nbytes < 0 else 1
        for step in range(first, last + 1):
            self.live[step] += sign * self._size(abs(nbytes))

    def _ring_bytes(self, part: _Constants) -> int:
        return sum(self._size(nbytes) for nbytes in part.rings.values())

    def _size(self, nbytes: int) -> int:
        return round_up(nbytes, self.alignment)
