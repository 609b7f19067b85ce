"""Weights in the order a register tile reads them.

    plain   [panel, reduced..., column in panel]
    pairs   [panel, reduced..., K / 2, column in panel, 2]

A panel is `tile.columns` neighbouring output channels of one group; the last panel of a group
overlaps the one before it, as the tiles do (schedules/cpu/tile_columns.py).
"""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.cpu.tile import Tile


def panel_starts(columns: int, groups: int, tile: Tile) -> list[int]:
    """The first output channel of each panel."""
    width = columns // groups
    return [
        group * width + min(panel * tile.columns, width - tile.columns)
        for group in range(groups)
        for panel in range(ceil(width / tile.columns))
    ]


def pack_panels(weight: NDArray[Any], groups: int, tile: Tile, pairs: bool) -> NDArray[Any]:
    """Pack weight [reduced..., K, columns]; pairs give an odd K a row of zeros."""
    if pairs and weight.shape[-2] % 2:
        padding = [(0, 0)] * (weight.ndim - 2) + [(0, 1), (0, 0)]
        weight = np.pad(weight, padding)
    starts = panel_starts(weight.shape[-1], groups, tile)
    panels = np.stack([weight[..., at : at + tile.columns] for at in starts])
    if pairs:
        shape = (*panels.shape[:-2], panels.shape[-2] // 2, 2, tile.columns)
        panels = np.swapaxes(panels.reshape(shape), -1, -2)
    return np.ascontiguousarray(panels)
