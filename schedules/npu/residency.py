"""Which buffers stay in the SRAM from their first use to their last.

Everything that can stays at first. Where an operator's leanest tiles then find no room, the buffer
that is least used for the time it would occupy is sent through the DRAM instead. Afterwards single
buffers go too where the estimate says that larger tiles are worth more than their traffic.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.npu import cost
from tilewright.schedules.npu.grid import Residency
from tilewright.schedules.npu.layout import Layout, find_layout
from tilewright.schedules.npu.tiling import (
    Candidates,
    Tile,
    Tiling,
    choose_tiling,
    find_candidates,
    memory_gaps,
)
from tilewright.schedules.npu.work import Work
from tilewright.targets.description import Npu
from tilewright.targets.errors import TilewrightError
from tilewright.targets.operators import Region, Tensor


@dataclass(frozen=True)
class BufferUse:
    """Where a buffer is touched, and how it could lie in the SRAM (None: not as a whole)."""

    name: str
    nbytes: int
    reads: tuple[int, ...]  # operators, in order
    writes: tuple[int, ...]
    is_input: bool
    is_output: bool
    layout: Layout | None

    @cached_property
    def first(self) -> int:
        return min((*self.reads, *self.writes))

    @cached_property
    def last(self) -> int:
        return max((*self.reads, *self.writes))

    @property
    def kept_bytes(self) -> int:
        """What it takes of the SRAM when it stays."""
        return self.layout.nbytes if self.layout is not None else 0


@dataclass(frozen=True)
class Staying:
    """The buffers that stay, and the bytes they take at each operator."""

    names: frozenset[str]
    live: NDArray[np.int64]

    @staticmethod
    def all_of(uses: Iterable[BufferUse], steps: int) -> Staying:
        """Every buffer that can stay."""
        live = np.zeros(steps, np.int64)
        able = [use for use in uses if use.layout is not None]
        for use in able:
            live[use.first : use.last + 1] += use.kept_bytes
        return Staying(frozenset(use.name for use in able), live)

    def without(self, use: BufferUse) -> Staying:
        live = self.live.copy()
        live[use.first : use.last + 1] -= use.kept_bytes
        return Staying(self.names - {use.name}, live)


def find_uses(region: Region, works: Sequence[Work], npu: Npu) -> dict[str, BufferUse]:
    """All buffers that operators touch, in order of first use."""
    reads: dict[str, list[tuple[int, Tensor]]] = {}
    writes: dict[str, list[tuple[int, Tensor]]] = {}
    for index, work in enumerate(works):
        for tensor in work.operator.inputs:
            reads.setdefault(tensor.buffer, []).append((index, tensor))
        writes.setdefault(work.output.buffer, []).append((index, work.output))
    uses = {}
    for name in dict.fromkeys((*reads, *writes)):
        read, written = reads.get(name, []), writes.get(name, [])
        is_input = name in region.inputs
        views = [tensor for _, tensor in read], [tensor for _, tensor in written]
        nbytes = region.buffer_bytes[name]
        stays = bool(read) and not (is_input and written)
        uses[name] = BufferUse(
            name,
            nbytes,
            tuple(index for index, _ in read),
            tuple(index for index, _ in written),
            is_input,
            name in region.outputs,
            find_layout(nbytes, *views, npu.channel_alignment) if stays else None,
        )
    return dict(sorted(uses.items(), key=lambda item: item[1].first))


@dataclass
class ResidencySearch:
    """Prices tilings for sets of staying buffers, remembering each operator's candidates."""

    works: Sequence[Work]
    npu: Npu
    uses: dict[str, BufferUse]
    spilled: frozenset[str] = frozenset()  # by demand
    _known: dict[Hashable, Candidates] = field(default_factory=dict)

    def choose(self, share: float) -> Staying:
        """The buffers to keep, when `share` of the SRAM may be taken at once."""
        able = [use for use in self.uses.values() if use.name not in self.spilled]
        staying = Staying.all_of(able, len(self.works))
        while (crowded := self._first_crowded(staying, share)) is not None:
            uses = (self.uses[name] for name in staying.names)
            here = [use for use in uses if use.first <= crowded <= use.last]
            if not here:
                break  # choosing the tiling will say what is missing
            staying = staying.without(min(here, key=_worth))
        return self._improve(staying, share)

    def tiling(
        self, index: int, staying: Staying, share: float, tile: Tile | None = None
    ) -> tuple[Tiling, float]:
        """The best tiling of an operator, or of that tile; TilewrightError when none fits."""
        residency = self.residency(index, staying)
        budget = self.budget(index, staying, share)
        for thorough in (False, True):
            found = self._candidates(index, residency, thorough).best(budget, tile=tile)
            if found:
                return found
        if tile is not None:
            name = self.works[index].operator.name
            raise TilewrightError(f"{name}: {tile} does not fit {budget} bytes; drop the tile")
        return choose_tiling(self.works[index], self.npu, residency, budget)

    def tiling_like(
        self, index: int, staying: Staying, share: float, like: Tiling
    ) -> tuple[Tiling, float] | None:
        """The best tiling that cuts channels and reduction as `like` does, if one fits."""
        residency = self.residency(index, staying)
        budget = self.budget(index, staying, share)
        for thorough in (False, True):
            found = self._candidates(index, residency, thorough).best(budget, like)
            if found:
                return found
        return None

    def residency(self, index: int, staying: Staying) -> Residency:
        work = self.works[index]
        output = self.uses[work.output.buffer]
        stays = output.name in staying.names
        inputs = tuple(tensor.buffer in staying.names for tensor in work.operator.inputs)
        load = sum(
            float(cost.transfer_cycles(self.npu, 1, use.nbytes))
            for use in (self.uses[t.buffer] for t in work.operator.inputs)
            if use.name in staying.names and use.is_input and use.first == index
        )
        return Residency(inputs, stays, output.is_output or not stays, load)

    def budget(self, index: int, staying: Staying, share: float) -> int:
        """SRAM bytes an operator's slots may take; every ring may lose an alignment."""
        kept = int(staying.live[index])
        return int(self.npu.sram_bytes * share) - kept - memory_gaps(self.npu)

    def _first_crowded(self, staying: Staying, share: float) -> int | None:
        """The first operator for which not even the leanest tiles find room."""
        for index in range(len(self.works)):
            residency = self.residency(index, staying)
            budget = self.budget(index, staying, share)
            leanest = (
                self._candidates(index, residency, thorough).least_bytes
                for thorough in (False, True)
            )
            if all(least is None or least > budget for least in leanest):
                return index
        return None

    def _candidates(self, index: int, residency: Residency, thorough: bool) -> Candidates:
        key = (self.works[index].signature, residency, thorough)
        if key not in self._known:
            self._known[key] = find_candidates(self.works[index], self.npu, residency, thorough)
        return self._known[key]

    def _improve(self, staying: Staying, share: float) -> Staying:
        """Let single buffers go where that makes the operators of their life cheaper."""
        for name in sorted(staying.names, key=lambda name: (-self.uses[name].nbytes, name)):
            use = self.uses[name]
            fewer = staying.without(use)
            span = range(use.first, use.last + 1)
            if self._cycles(span, fewer, share) < self._cycles(span, staying, share):
                staying = fewer
        return staying

    def _cycles(self, span: range, staying: Staying, share: float) -> float:
        return sum(self.tiling(index, staying, share)[1] for index in span)


def _worth(use: BufferUse) -> tuple[float, int, str]:
    """Uses per operator lived through; the larger buffer goes first among equals."""
    touched = len(use.reads) + len(use.writes)
    return touched / (use.last - use.first + 1), -use.nbytes, use.name
