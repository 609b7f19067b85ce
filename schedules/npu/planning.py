"""Plan a region step by step: what stays, tiles, constants, addresses; chains become stripes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.schedules.npu.constants import Blocks, Constants, pack_constants
from tilewright.schedules.npu.geometry import round_up
from tilewright.schedules.npu.region_plan import (
    OperatorPlan,
    RegionPlan,
    Resident,
)
from tilewright.schedules.npu.residency import BufferUse, ResidencySearch, Staying, find_uses
from tilewright.schedules.npu.sram import SramPlan, pack_sram
from tilewright.schedules.npu.stripes import stripe_chain
from tilewright.schedules.npu.tiling import Tile, Tiling
from tilewright.schedules.npu.work import Work, describe
from tilewright.targets.backend import SpilledBuffer
from tilewright.targets.description import Npu
from tilewright.targets.errors import MemoryLimitError
from tilewright.targets.operators import Operator, Region

# Packing may leave gaps; then less of the SRAM may be taken at once.
_SHARES = (1.0, 0.97, 0.93, 0.88, 0.8, 0.7, 0.6, 0.5)


@dataclass(frozen=True)
class Chain:
    """Operators first..last, without last, run depth first between `cuts` of the last's rows.

    `skewed`: each operator one stripe ahead of the next.
    """

    first: int
    last: int
    cuts: tuple[int, ...]
    skewed: bool = False


def plan_steps(
    region: Region,
    npu: Npu,
    chains: Sequence[Chain] = (),
    latencies: int = 4,
    spilled: Collection[str] = (),
    tiles: Mapping[int, Tile] | None = None,
) -> RegionPlan:
    """The plan of a region whose `chains` run in stripes, and all else operator by operator.

    Transfers of constants should last `latencies` times the DMA's latency: long ones waste less
    of the channel, short ones let work begin earlier. Buffers in `spilled` do not stay in the SRAM;
    operators in `tiles`, by their place in the region, take those tiles unless they run in stripes.
    Raises TilewrightError where that does not fit.
    """
    rate = min(npu.dram_bytes_per_cycle, npu.memory.dma_bytes_per_cycle)
    transfer_bytes = int(latencies * npu.memory.dma_latency_cycles * rate)
    steps, owners = _expand(region, chains)
    works = [describe(operator, npu) for operator in steps.operators]
    uses = find_uses(steps, works, npu)
    search = ResidencySearch(works, npu, uses, frozenset(spilled))
    for share in _SHARES:
        staying = search.choose(share)
        tilings, cycles = _choose_tilings(search, staying, share, owners, tiles or {})
        constants, blocks, extents = _pack_all_constants(works, tilings, owners, npu)
        kept = [use for use in uses.values() if use.name in staying.names]
        packed = pack_sram(npu, kept, works, tilings, extents, transfer_bytes)
        if packed is not None:
            break
    else:
        raise MemoryLimitError(
            f"{region.name}: its tiles do not pack into {npu.sram_bytes} bytes of SRAM; "
            "choose a target with more"
        )
    operators = tuple(
        OperatorPlan(
            work,
            search.residency(step, staying),
            tilings[step],
            _ring_addresses(tilings[step], step, packed),
            blocks[step],
            packed.images.get(step),
            cycles[step],
        )
        for step, work in enumerate(works)
    )
    lives = {name: _life(use, owners) for name, use in uses.items()}
    return RegionPlan(
        steps,
        npu,
        operators,
        tuple(owners),
        _residents(kept, packed),
        bytes(constants.data),
        tuple(
            SpilledBuffer(use.name, use.nbytes, *lives[use.name])
            for use in uses.values()
            if use.name not in staying.names and not use.is_input and not use.is_output
        ),
        lives,
        transfer_bytes,
        packed.total_bytes,
        _live_by_owner(packed.live, owners, len(region.operators)),
    )


def _expand(region: Region, chains: Sequence[Chain]) -> tuple[Region, list[int]]:
    """The region with its chains in stripes, and which operator each step is a part of."""
    operators: list[Operator] = []
    owners: list[int] = []
    buffers = dict(region.buffer_bytes)
    starts = {chain.first: chain for chain in chains}
    index = 0
    while index < len(region.operators):
        chain = starts.get(index)
        if chain is None:
            operators.append(region.operators[index])
            owners.append(index)
            index += 1
            continue
        part = region.operators[index : chain.last]
        striped = stripe_chain(part, chain.cuts, index, chain.skewed)
        operators += striped.operators
        owners += striped.owners
        buffers |= striped.buffer_bytes
        index = chain.last
    return replace(region, operators=tuple(operators), buffer_bytes=buffers), owners


def _choose_tilings(
    search: ResidencySearch,
    staying: Staying,
    share: float,
    owners: Sequence[int],
    tiles: Mapping[int, Tile],
) -> tuple[list[Tiling], list[float]]:
    """The best tiling of every step; parts of one operator cut channels alike, to share weights."""
    parts: dict[int, list[int]] = defaultdict(list)
    for step, owner in enumerate(owners):
        if search.works[step].multiply is not None:
            parts[owner].append(step)
    whole = {owner: tile for owner, tile in tiles.items() if owners.count(owner) == 1}
    found = [
        search.tiling(step, staying, share, whole.get(owner)) for step, owner in enumerate(owners)
    ]
    for steps in parts.values():
        tallest = max(steps, key=lambda step: (search.works[step].output.height, -step))
        for step in steps:
            alike = search.tiling_like(step, staying, share, found[tallest][0])
            found[step] = alike or found[step]
    return [tiling for tiling, _ in found], [cycles for _, cycles in found]


def _pack_all_constants(
    works: Sequence[Work], tilings: Sequence[Tiling], owners: Sequence[int], npu: Npu
) -> tuple[Constants, list[Blocks], list[tuple[int, int]]]:
    """The constants, and for every step its blocks and the (offset, bytes) they lie in."""
    constants = Constants(npu.tables.alignment)
    known: dict[tuple[int, type[Operator], int, int], tuple[Blocks, tuple[int, int]]] = {}
    blocks, extents = [], []
    for work, tiling, owner in zip(works, tilings, owners, strict=True):
        key = owner, type(work.operator), tiling.channels, tiling.reduction
        if key not in known:
            start = round_up(len(constants.data), constants.alignment)
            packed = pack_constants(work, tiling, npu, constants)
            known[key] = packed, (start, max(len(constants.data) - start, 0))
        blocks.append(known[key][0])
        extents.append(known[key][1])
    return constants, blocks, extents


def _ring_addresses(tiling: Tiling, step: int, packed: SramPlan) -> dict[str, int]:
    names = {name: f"{step}/{name}" for name in tiling.rings}
    return {
        name: packed.offsets[placed] for name, placed in names.items() if placed in packed.offsets
    }


def _residents(kept: Sequence[BufferUse], packed: SramPlan) -> dict[str, Resident]:
    return {
        use.name: Resident(use.layout, packed.offsets[use.name], use.is_input)
        for use in kept
        if use.layout is not None
    }


def _life(use: BufferUse, owners: Sequence[int]) -> tuple[int, int]:
    """The first and last operator of the region while which the buffer is in use."""
    during = owners[use.first : use.last + 1]
    return min(during), max(during)


def _live_by_owner(live: Sequence[int], owners: Sequence[int], count: int) -> tuple[int, ...]:
    peaks = [0] * count
    for nbytes, owner in zip(live, owners, strict=True):
        peaks[owner] = max(peaks[owner], nbytes)
    return tuple(peaks)
