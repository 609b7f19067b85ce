"""The size of a register tile, by a small model instead of a search.

A tile holds rows x columns accumulators; one step of the reduction loads `columns / lanes` vectors
of the right side, broadcasts `rows` values of the left side and does rows * columns / lanes
multiply-adds. Time of a step, in cycles, with two multiply-add and two load ports:
    max(vectors * rows, rows + vectors, 4 * 2) / 2 + vectors / 2
The 8: the accumulators must outnumber the latency. The last term: the right side streams from the
second-level cache at half a vector a cycle more. So tiles grow tall until the registers are full,
unless rows or columns would be wasted at the edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from tilewright.schedules.cpu.facts import CpuFacts


@dataclass(frozen=True)
class Tile:
    rows: int
    columns: int
    lanes: int

    @property
    def vectors(self) -> int:
        return self.columns // self.lanes


def choose_tile(rows: int, columns: int, cpu: CpuFacts, dtype_bits: int = 32) -> Tile:
    """The fastest tile by the model for a product with `rows` x `columns` results."""
    widest = cpu.lanes(dtype_bits)
    best: tuple[float, int, Tile] | None = None
    for lanes in _lane_choices(widest, columns):
        for vectors in range(1, max(columns // lanes, 1) + 1):
            for height in range(1, min(rows, cpu.vector_registers) + 1):
                if vectors * height + vectors + 1 > cpu.vector_registers:
                    break
                step = (max(vectors * height, vectors + height, 8) + vectors) / 2
                tiles = ceil(rows / height) * ceil(columns / (lanes * vectors))
                tile = Tile(height, lanes * vectors, lanes)
                key = (tiles * step, -tile.columns, tile)
                if best is None or key[:2] < best[:2]:
                    best = key
    assert best is not None
    return best[2]


def choose_window(rows: int, columns: int, cpu: CpuFacts, dtype_bits: int = 32) -> Tile:
    """A tile for element-wise work, windows and column reductions: wide, few rows."""
    lanes = min(cpu.lanes(dtype_bits), columns)
    vectors = min(max(columns // lanes, 1), 4)
    height = min(rows, max(cpu.vector_registers // (4 * vectors), 1))
    return Tile(height, lanes * vectors, lanes)


def _lane_choices(widest: int, columns: int) -> list[int]:
    """Lanes to consider: the vector and its halves, or all columns where they are fewer."""
    if columns < 4 or widest == 1:
        return [min(columns, max(widest, 4))]
    choices = []
    lanes = widest
    while lanes >= min(widest, 4):
        if lanes <= columns:
            choices.append(lanes)
        lanes //= 2
    return choices or [columns]
