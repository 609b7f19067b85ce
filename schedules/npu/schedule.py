"""Schedule a region of NPU operators: decide in `plan_region`, write instructions in `emit`.

Between the two the caller places the region's spilled buffers in the arena, beside its inputs and
outputs, and its constants among those of other regions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.schedules.npu.constants import Constants, pack_constants
from tilewright.schedules.npu.emit_multiply import emit_multiply
from tilewright.schedules.npu.emit_vector import vector_emission
from tilewright.schedules.npu.emitter import Emitter
from tilewright.schedules.npu.geometry import round_up
from tilewright.schedules.npu.region_plan import (
    OperatorPlan,
    RegionPlan,
    Resident,
    SpilledBuffer,
)
from tilewright.schedules.npu.residency import ResidencySearch, find_uses
from tilewright.schedules.npu.sram import pack_sram
from tilewright.schedules.npu.waits import order_stream
from tilewright.schedules.npu.work import describe
from tilewright.targets import isa, timing
from tilewright.targets.description import Npu
from tilewright.targets.errors import MemoryLimitError
from tilewright.targets.operators import Region

# Packing may leave gaps; operators then get these shares of the SRAM that others leave.
_SHARES = (1.0, 0.97, 0.93, 0.88, 0.8, 0.7, 0.6, 0.5)


@dataclass(frozen=True)
class Emission:
    """A command stream, and for each of its instructions but END the operator it serves.

    `sram_live` are the bytes of SRAM taken at each operator.
    """

    stream: isa.CommandStream
    operator_of_instruction: list[int]
    sram_live: tuple[int, ...]


def plan_region(region: Region, npu: Npu) -> RegionPlan:
    """Decide tiles, what stays in the SRAM, SRAM addresses, and lay out the constants.

    Raises TilewrightError for an operator whose smallest tiles do not fit.
    """
    works = [describe(operator, npu) for operator in region.operators]
    uses = find_uses(region, works, npu)
    search = ResidencySearch(works, npu, uses)
    for share in _SHARES:
        staying = search.choose(share)
        chosen = [search.tiling(index, staying, share) for index in range(len(works))]
        tilings = [tiling for tiling, _ in chosen]
        constants = Constants(npu.tables.alignment)
        blocks, extents = [], []
        for work, tiling in zip(works, tilings, strict=True):
            start = len(constants.data)
            blocks.append(pack_constants(work, tiling, npu, constants))
            start = round_up(start, constants.alignment)
            extents.append((start, max(len(constants.data) - start, 0)))
        kept = [uses[name] for name in uses if name in staying]
        packed = pack_sram(npu, kept, works, tilings, extents)
        if packed is not None:
            break
    else:
        raise MemoryLimitError(
            f"{region.name}: its tiles do not pack into {npu.sram_bytes} bytes of SRAM; "
            "choose a target with more"
        )
    residents = {
        name: Resident(layout, packed.offsets[name], uses[name].is_input)
        for name in staying
        if (layout := uses[name].layout) is not None
    }
    operators = tuple(
        OperatorPlan(
            work,
            search.residency(index, staying),
            tiling,
            {
                name: packed.offsets[f"{index}/{name}"]
                for name in tiling.rings
                if f"{index}/{name}" in packed.offsets
            },
            blocks[index],
            packed.images.get(index),
            cycles,
        )
        for index, (work, (tiling, cycles)) in enumerate(zip(works, chosen, strict=True))
    )
    spilled = tuple(
        SpilledBuffer(use.name, use.nbytes, use.first, use.last)
        for use in uses.values()
        if use.name not in staying and not use.is_input and not use.is_output
    )
    return RegionPlan(
        region, npu, operators, residents, bytes(constants.data), spilled,
        packed.total_bytes, packed.live,
    )  # fmt: skip


def emit(
    region_plan: RegionPlan, buffer_offsets: Mapping[str, int], constants_offset: int
) -> Emission:
    """The stream of a planned region whose DRAM buffers lie at `buffer_offsets` of the arena."""
    npu = region_plan.npu
    emitter = Emitter(region_plan, buffer_offsets, constants_offset)
    for index, step in enumerate(region_plan.operators):
        emitter.owner = index
        if step.work.multiply is not None:
            emit_multiply(emitter, step)
        else:
            vector_emission(step.work.operator)(emitter, step)
    instructions, order = order_stream(
        emitter.instructions, npu.channel_alignment, lambda one: timing.cost(npu, one).cycles
    )
    stream = isa.CommandStream(
        [*instructions, isa.End()],
        region_plan.sram_bytes,
        _accumulator_bytes(instructions),
        constants_offset + len(region_plan.constants),
        _arena_bytes(instructions),
        npu.digest[:8],
    )
    owners = [emitter.owners[index] for index in order]
    return Emission(stream, owners, region_plan.sram_live)


def _accumulator_bytes(instructions: Sequence[isa.Instruction]) -> int:
    ends = [
        one.accumulator_address + one.height * one.width * one.accumulator_pitch
        for one in instructions
        if isinstance(one, isa.Requantize)
    ]
    return 4 * max(ends, default=0)


def _arena_bytes(instructions: Sequence[isa.Instruction]) -> int:
    ends = [
        one.dram_offset
        + (one.count_1 - 1) * max(one.dram_stride_1, 0)
        + (one.count_2 - 1) * max(one.dram_stride_2, 0)
        + one.run_bytes
        for one in instructions
        if isinstance(one, isa.Load | isa.Store) and one.region == isa.DramRegion.ARENA
    ]
    return max(ends, default=0)
