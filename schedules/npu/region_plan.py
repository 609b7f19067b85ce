"""What is decided for a region before the arena is planned: all but the DRAM addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.schedules.npu.constants import Blocks
from tilewright.schedules.npu.grid import Residency
from tilewright.schedules.npu.layout import Layout
from tilewright.schedules.npu.tiling import Tiling
from tilewright.schedules.npu.work import Work
from tilewright.targets.backend import SpilledBuffer
from tilewright.targets.description import Npu
from tilewright.targets.operators import Region


@dataclass(frozen=True)
class Resident:
    """A buffer that stays in the SRAM at `address`; `is_loaded` when it comes from the DRAM."""

    layout: Layout
    address: int
    is_loaded: bool


@dataclass(frozen=True)
class Image:
    """Constants of one or more operators that lie in the SRAM as they do in the constants."""

    offset: int
    nbytes: int
    address: int


@dataclass(frozen=True)
class OperatorPlan:
    """One operator's tiles and the SRAM address of each of its rings of slots.

    `image` holds all its constants; None: they go through rings.
    """

    work: Work
    residency: Residency
    tiling: Tiling
    addresses: Mapping[str, int]
    blocks: Blocks
    image: Image | None
    cycles: float  # estimated


@dataclass(frozen=True)
class RegionPlan:
    """`constants` are placed by the caller; `spilled` needs places in the arena.

    `operators` are the steps in the order they run, and `owners` the operator of the region each
    is a part of; `region` is the one of the steps. `lives` are the first and last operator while
    which a buffer is in use, and `sram_live` the bytes of the SRAM taken at each operator.
    """

    region: Region
    npu: Npu
    operators: tuple[OperatorPlan, ...]
    owners: tuple[int, ...]
    residents: Mapping[str, Resident]
    constants: bytes
    spilled: tuple[SpilledBuffer, ...]
    lives: Mapping[str, tuple[int, int]]
    transfer_bytes: int
    sram_bytes: int
    sram_live: tuple[int, ...]
