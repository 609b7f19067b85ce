"""The size of a register tile, by a small model instead of a search.

A tile holds rows x vectors accumulators. One step of the reduction loads the vectors of the right
side, broadcasts a value a row of the left side and multiplies and adds rows * vectors times. With
two multiply-add and two load ports a step takes, in cycles,
    max(rows * vectors, loads, 2 * 4) / 2 + vectors / 2
The 4: accumulators must outnumber the latency of an addition. The last term: the right side
streams from the second-level cache. loads is rows + vectors, and a row more for each where a tile
crosses bands (lines of an image): rows are then at no fixed distance and their addresses do not
stay in registers. A tile also pays for its addresses and for writing back. So tiles grow tall
until the registers are full, unless rows or columns would be wasted at the edges, tiles would be
too few to keep all cores busy, or rows a power of two apart would evict each other from the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, gcd

from tilewright.schedules.cpu.facts import CpuFacts

ROW_SETUP, TILE_SETUP = 8, 20  # cycles to find a row's address, to begin a tile
WAYS, WAY_BYTES = 8, 4096  # of a first-level cache that few CPUs fall short of
MOST_VECTORS = 8  # beside each other: enough to hide an addition's latency, more is only code


@dataclass(frozen=True)
class Tile:
    """`crosses`: whether a tile may hold rows of several bands."""

    rows: int
    columns: int
    lanes: int
    crosses: bool = True

    @property
    def vectors(self) -> int:
        return self.columns // self.lanes


@dataclass(frozen=True)
class ProductShape:
    """bands * length rows, `columns` results each, over a reduction of `depth`.

    Rows of a band lie `row_bytes` from each other, bands do not follow each other evenly.
    """

    columns: int
    depth: int
    length: int
    bands: int = 1
    row_bytes: int = 64

    @property
    def most_rows(self) -> int:
        """Rows whose current cache lines all fit into the ways they share."""
        return WAYS * WAY_BYTES // gcd(self.row_bytes, WAY_BYTES)


def choose_tile(shape: ProductShape, cpu: CpuFacts, dtype_bits: int = 32) -> Tile:
    """The fastest tile by the model; of equal ones the widest."""
    candidates = _candidates(shape, cpu, dtype_bits)
    return min(
        candidates, key=lambda tile: (modelled_cycles(shape, tile, cpu.cores), -tile.columns)
    )


def modelled_cycles(shape: ProductShape, tile: Tile, cores: int) -> float:
    """Cycles of the core that has most to do; see the top of this file."""
    rows, vectors = tile.rows, tile.vectors
    if tile.crosses:
        tiles = ceil(shape.bands * shape.length / rows)
    else:
        tiles = shape.bands * ceil(shape.length / rows)
    scattered = tile.crosses and shape.bands > 1
    loads = rows + vectors + (rows if scattered else 0)
    step = (max(rows * vectors, loads, 8) + vectors) / 2
    setup = TILE_SETUP + (ROW_SETUP * rows if scattered else 0) + 2 * rows * vectors
    in_turn = ceil(tiles * ceil(shape.columns / tile.columns) / max(cores, 1))
    return in_turn * (shape.depth * step + setup)


def choose_window(rows: int, columns: int, cpu: CpuFacts, dtype_bits: int = 32) -> Tile:
    """A tile for element-wise work, windows and column reductions: wide, few rows."""
    lanes = min(cpu.lanes(dtype_bits), columns)
    vectors = min(max(columns // lanes, 1), 4)
    height = min(rows, max(cpu.vector_registers // (4 * vectors), 1))
    return Tile(height, lanes * vectors, lanes)


def _candidates(shape: ProductShape, cpu: CpuFacts, dtype_bits: int) -> Iterator[Tile]:
    for lanes in _lane_choices(cpu.lanes(dtype_bits), shape.columns):
        for vectors in range(1, min(max(shape.columns // lanes, 1), MOST_VECTORS) + 1):
            fitting = min((cpu.vector_registers - 1 - vectors) // vectors, shape.most_rows)
            if fitting < 1 and vectors > 1:
                break
            for crosses in (True, False) if shape.bands > 1 else (True,):
                most = shape.bands * shape.length if crosses else shape.length
                for rows in range(1, max(min(most, fitting), 1) + 1):
                    yield Tile(rows, lanes * vectors, lanes, crosses)


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
