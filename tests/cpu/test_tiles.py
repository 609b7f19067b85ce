"""Tiles, panels and the modelled time: arithmetic that needs no compiler."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.schedules.cpu.cost import START_SECONDS, modelled_seconds
from tilewright.schedules.cpu.facts import CpuFacts
from tilewright.schedules.cpu.packing import pack_panels, panel_starts
from tilewright.schedules.cpu.tile import (
    ProductShape,
    Tile,
    choose_tile,
    choose_window,
    modelled_cycles,
)

sizes = st.integers(1, 300)
cpus = st.builds(
    CpuFacts,
    triple=st.just("any"),
    cpu=st.just("any"),
    vector_bits=st.sampled_from([0, 128, 256, 512]),
    vector_registers=st.sampled_from([8, 16, 32]),
)
shapes = st.builds(ProductShape, columns=sizes, depth=sizes, length=sizes, bands=sizes)


@settings(max_examples=60, deadline=None)
@given(shapes, cpus)
def test_a_tile_fits_the_product_and_the_registers(shape: ProductShape, cpu: CpuFacts) -> None:
    tile = choose_tile(shape, cpu)
    assert tile.columns <= shape.columns
    assert tile.rows <= (shape.length * shape.bands if tile.crosses else shape.length)
    assert tile.vectors * tile.lanes == tile.columns
    if tile.rows * tile.vectors > 1:
        assert tile.rows * tile.vectors + tile.vectors + 1 <= cpu.vector_registers


@settings(max_examples=30, deadline=None)
@given(shapes, cpus)
def test_no_simple_tile_is_better_by_the_model(shape: ProductShape, cpu: CpuFacts) -> None:
    chosen = modelled_cycles(shape, choose_tile(shape, cpu), cpu.cores)
    lanes = min(4, shape.columns)
    assert chosen <= modelled_cycles(shape, Tile(1, lanes, lanes), cpu.cores)


def test_a_vector_times_a_matrix_is_split_over_the_cores() -> None:
    shape = ProductShape(columns=1000, depth=2048, length=1)
    cpu = CpuFacts(triple="any", cpu="any", cores=8, vector_bits=512, vector_registers=32)
    tile = choose_tile(shape, cpu)
    assert ceil(shape.columns / tile.columns) >= 8


def test_rows_that_share_a_cache_set_are_few() -> None:
    shape = ProductShape(columns=512, depth=2048, length=49, row_bytes=8192)
    cpu = CpuFacts(triple="any", cpu="any", vector_bits=512, vector_registers=32)
    assert choose_tile(shape, cpu).rows <= 8
    assert ProductShape(512, 2048, 49, row_bytes=8192 + 64).most_rows > 49


@given(sizes, sizes, cpus)
def test_a_window_fits(rows: int, columns: int, cpu: CpuFacts) -> None:
    tile = choose_window(rows, columns, cpu)
    assert 1 <= tile.rows <= rows
    assert tile.vectors * tile.lanes == tile.columns <= columns


@given(st.integers(1, 6), st.integers(1, 60), st.integers(1, 40))
def test_panels_cover_each_column_and_cross_no_group(groups: int, width: int, size: int) -> None:
    size = min(size, width)
    starts = panel_starts(groups * width, groups, Tile(1, size, size))
    covered = {at for start in starts for at in range(start, start + size)}
    assert covered == set(range(groups * width))
    assert all(start // width == (start + size - 1) // width for start in starts)


@given(st.integers(1, 9), st.integers(1, 40), st.booleans())
def test_packing_keeps_each_weight(depth: int, columns: int, pairs: bool) -> None:
    weight = np.arange(depth * columns).reshape(1, depth, columns) + 1
    size = min(8, columns)
    tile = Tile(1, size, size)
    packed = pack_panels(weight, 1, tile, pairs)
    for panel, start in zip(packed, panel_starts(columns, 1, tile), strict=True):
        for k in range(depth):
            row = panel[0, k // 2, :, k % 2] if pairs else panel[0, k]
            np.testing.assert_array_equal(row, weight[0, k, start : start + size])


@dataclass(frozen=True)
class Board:
    cores: int = 2
    clock_mhz: float = 1000.0
    flops_per_cycle: float = 8.0
    int8_macs_per_cycle: float = 16.0
    dram_gb_per_s: float = 4.0


def test_time_is_arithmetic_or_traffic() -> None:
    board = Board()
    busy = modelled_seconds(10**9, 1000, "float32", board) - START_SECONDS
    assert busy == 10**9 / (2 * 4 * 0.7 * 1e9)
    assert modelled_seconds(10**9, 1000, "int8", board) - START_SECONDS < busy
    assert modelled_seconds(0, 4 * 10**9, "int8", board) == 1 + START_SECONDS
