"""Choose the tiles of one operator: all sizes and loop orders at once, priced by formula.

Of the tilings within one percent of the cheapest, the one with the smallest slots is chosen: what
it leaves free holds tensors that stay and weights that load ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.npu.cost import ceil_div
from tilewright.schedules.npu.geometry import round_up
from tilewright.schedules.npu.grid import Grid, Residency, Slots, count, find_slots
from tilewright.schedules.npu.pricing import price
from tilewright.schedules.npu.work import Work
from tilewright.targets.description import Npu
from tilewright.targets.errors import TilewrightError

_NEAR = 1.01


class Tile(NamedTuple):
    """What a demand for a tiling says; the slots follow."""

    rows: int
    columns: int
    channels: int
    reduction: int
    channels_first: bool


@dataclass(frozen=True)
class Tiling:
    """Extents of a tile of the output and of the reduction, the loop order, and the slots.

    Each kind of slot is a ring: `inputs` etc. are the bytes of one, `input_slots` etc. how many.
    """

    rows: int
    columns: int
    channels: int
    reduction: int
    channels_first: bool
    inputs: tuple[int, ...]
    input_slots: int
    weights: int
    weight_slots: int
    tables: int
    table_slots: int
    output: int
    output_slots: int

    @property
    def rings(self) -> dict[str, tuple[int, int]]:
        """Bytes of a slot and number of slots of every ring, by name."""
        rings = {f"input{i}": (size, self.input_slots) for i, size in enumerate(self.inputs)}
        rings["weights"] = (self.weights, self.weight_slots)
        rings["tables"] = (self.tables, self.table_slots)
        rings["output"] = (self.output, self.output_slots)
        return rings


@dataclass(frozen=True)
class Candidates:
    """Every tiling of one operator under one residency, priced once for all budgets."""

    grid: Grid
    slots: Slots
    cycles: NDArray[np.float64]  # infinite where illegal
    sram_bytes: NDArray[np.int64]

    @cached_property
    def least_bytes(self) -> int | None:
        """What the leanest legal tiling takes; None when none is legal."""
        legal = np.isfinite(self.cycles)
        return int(self.sram_bytes[legal].min()) if legal.any() else None

    def best(
        self, budget: int, like: Tiling | None = None, tile: Tile | None = None
    ) -> tuple[Tiling, float] | None:
        """The cheapest tiling within `budget` bytes of SRAM and its cycles, if any fits.

        `like`: only tilings that cut channels and reduction as this one does; `tile`: that one.
        """
        fits = self.sram_bytes <= budget
        if like is not None:
            fits &= (self.grid.channels == like.channels) & (self.grid.reduction == like.reduction)
        for name in Tile._fields if tile is not None else ():
            fits &= getattr(self.grid, name) == getattr(tile, name)
        cycles = np.where(fits, self.cycles, np.inf)
        if not np.isfinite(cycles).any():
            return None
        near = cycles <= cycles.min() * _NEAR
        sram = np.where(near, self.sram_bytes, np.iinfo(np.int64).max)
        index = int(np.lexsort((cycles, sram))[0])
        return self._tiling(index), float(cycles[index])

    def hopeful(self, budget: int, count: int) -> list[Tile]:
        """The `count` cheapest tiles within `budget`, cheapest first."""
        cycles = np.where(self.sram_bytes <= budget, self.cycles, np.inf)
        found: dict[Tile, None] = {}
        for index in np.argsort(cycles, kind="stable"):
            if len(found) == count or not np.isfinite(cycles[index]):
                break
            row = (getattr(self.grid, name)[index].item() for name in Tile._fields)
            found[Tile(*row)] = None
        return list(found)

    def _tiling(self, index: int) -> Tiling:
        grid, slots = self.grid, self.slots
        return Tiling(
            int(grid.rows[index]),
            int(grid.columns[index]),
            int(grid.channels[index]),
            int(grid.reduction[index]),
            bool(grid.channels_first[index]),
            tuple(int(slot[index]) for slot in slots.inputs),
            int(slots.input_slots[index]),
            int(slots.weights[index]),
            int(slots.weight_slots[index]),
            int(slots.tables[index]),
            int(slots.table_slots[index]),
            int(slots.output[index]),
            int(slots.output_slots[index]),
        )


def find_candidates(work: Work, npu: Npu, residency: Residency, thorough: bool) -> Candidates:
    """Price all tilings; `thorough` adds narrow tiles and split reductions."""
    grid = _enumerate(work, thorough)
    counts = count(work, grid)
    slots = find_slots(work, grid, counts, residency, npu)
    cycles = price(work, npu, residency, grid, counts, slots)
    return Candidates(grid, slots, cycles, slots.total)


def choose_tiling(work: Work, npu: Npu, residency: Residency, budget: int) -> tuple[Tiling, float]:
    """The cheapest tiling whose slots take at most `budget` bytes of SRAM, and its cycles.

    Raises TilewrightError naming the operator, what it needs at least, what there is, the way out.
    """
    least: int | None = None
    for thorough in (False, True):
        candidates = find_candidates(work, npu, residency, thorough)
        found = candidates.best(budget)
        if found:
            return found
        least = candidates.least_bytes
    raise TilewrightError(_nothing_fits(work, npu, least, budget))


def memory_gaps(npu: Npu) -> int:
    """SRAM bytes that alignment may cost an operator: a gap before each of its rings."""
    return 5 * max(npu.channel_alignment, npu.tables.alignment)


def _nothing_fits(work: Work, npu: Npu, least: int | None, budget: int) -> str:
    name = ", ".join(work.operator.onnx_nodes) or work.operator.name
    if least is None:
        return (
            f"{name}: no tile of it fits {npu.accumulator_bytes} bytes of accumulators; "
            "leave it to the CPU or choose a larger target"
        )
    return (
        f"{name}: its smallest tiles need {least} bytes of SRAM, {budget} are free; "
        "leave it to the CPU or choose a target with more SRAM"
    )


def _enumerate(work: Work, thorough: bool) -> Grid:
    """Every combination of tile sizes and orders; thorough adds narrow tiles and reductions."""
    output, multiply = work.output, work.multiply
    depth = multiply.reduction if multiply else 1
    splits = multiply is not None and not multiply.is_channelwise and thorough
    columns = _sizes(output.width, 1)
    axes: list[list[int]] = [
        _sizes(output.height, 1),
        columns if thorough else columns[:3],
        _sizes(output.channels, work.grain),
        _sizes(depth, work.reduction_grain) if splits else [depth],
        [0, 1] if multiply else [0],
        [0, 1] if multiply else [0],
    ]
    rows, width, channels, reduction, first, stay = (
        axis.ravel() for axis in np.meshgrid(*map(np.array, axes), indexing="ij")
    )
    return Grid(rows, width, channels, reduction, first == 1, stay == 1)


def _sizes(extent: int, grain: int) -> list[int]:
    """Tile sizes worth trying: the extent in 1, 2, 3... equal parts, then ever more coarsely."""
    parts, sizes = 1, [extent]
    while parts < extent:
        parts = parts + 1 if parts < 8 else parts * 5 // 4
        size = round_up(ceil_div(extent, parts), grain)
        if size < sizes[-1]:
            sizes.append(size)
    return sizes
