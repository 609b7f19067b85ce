"""Schedule a region of NPU operators: decide in `plan_region`, write instructions in `emit`.

Between the two the caller places the region's spilled buffers in the arena, beside its inputs and
outputs, and its constants among those of other regions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.schedules.memory.plan import Buffer, Plan, plan
from tilewright.schedules.npu.constants import Constants, pack_constants
from tilewright.schedules.npu.emit_multiply import emit_multiply
from tilewright.schedules.npu.emit_vector import vector_emission
from tilewright.schedules.npu.emitter import Emitter
from tilewright.schedules.npu.region_plan import (
    OperatorPlan,
    RegionPlan,
    Resident,
    SpilledBuffer,
)
from tilewright.schedules.npu.residency import BufferUse, ResidencySearch, find_uses
from tilewright.schedules.npu.tiling import Tiling
from tilewright.schedules.npu.waits import order_stream
from tilewright.schedules.npu.work import describe
from tilewright.targets import isa, timing
from tilewright.targets.description import Npu
from tilewright.targets.errors import MemoryLimitError
from tilewright.targets.operators import Region

# Packing may leave gaps; operators then get these shares of the SRAM that others leave.
_SHARES = (1.0, 0.97, 0.93, 0.88, 0.8, 0.7, 0.6, 0.5)
_PACKING_EFFORT = 20_000
_LONGEST_PREFETCH = 3  # operators ahead


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
        packed = _pack_sram(npu, [uses[name] for name in uses if name in staying], tilings)
        if packed is not None:
            addresses, live = packed
            break
    else:
        raise MemoryLimitError(
            f"{region.name}: its tiles do not pack into {npu.sram_bytes} bytes of SRAM; "
            "choose a target with more"
        )
    residents = {
        name: Resident(layout, addresses.offsets[name], uses[name].is_input)
        for name in staying
        if (layout := uses[name].layout) is not None
    }
    constants = Constants(max(npu.tables.alignment, npu.memory.burst_bytes))
    operators = tuple(
        OperatorPlan(
            work,
            search.residency(index, staying),
            tiling,
            {
                name: addresses.offsets[f"{index}/{name}"]
                for name, (size, _) in tiling.rings.items()
                if size
            },
            pack_constants(work, tiling, npu, constants),
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
        addresses.total_bytes, tuple(live),
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


def _pack_sram(
    npu: Npu, kept: Sequence[BufferUse], tilings: Sequence[Tiling]
) -> tuple[Plan, list[int]] | None:
    """Addresses for staying buffers and rings, and the bytes alive at each operator.

    Weights come as early as they fit; None when nothing fits.
    """
    alignment = max(npu.channel_alignment, npu.tables.alignment)
    for ahead in range(_LONGEST_PREFETCH, -1, -1):
        buffers = [
            Buffer(use.name, use.layout.nbytes, use.first, use.last)
            for use in kept
            if use.layout is not None
        ]
        live = _live_bytes(buffers, len(tilings), alignment)
        rings = _ring_buffers(tilings, live, npu.sram_bytes, ahead, alignment)
        packed = plan([*buffers, *rings], alignment, _PACKING_EFFORT)
        if packed.total_bytes <= npu.sram_bytes:
            return packed, live
    return None


def _live_bytes(buffers: Sequence[Buffer], steps: int, alignment: int) -> list[int]:
    live = [0] * steps
    for buffer in buffers:
        for step in range(buffer.first_step, buffer.last_step + 1):
            live[step] += -(-buffer.nbytes // alignment) * alignment
    return live


def _ring_buffers(
    tilings: Sequence[Tiling], live: list[int], capacity: int, ahead: int, alignment: int
) -> list[Buffer]:
    """Rings live with their operator; weights up to `ahead` operators earlier where room is."""
    rings = []
    for index, tiling in enumerate(tilings):
        for name, (size, slots) in tiling.rings.items():
            if size:
                rings.append(Buffer(f"{index}/{name}", size * slots, index, index))
                live[index] += -(-size * slots // alignment) * alignment
    for distance in range(1, ahead + 1):
        for place, ring in enumerate(rings):
            step = ring.first_step - 1
            nbytes = -(-ring.nbytes // alignment) * alignment
            is_constant = ring.name.endswith(("/weights", "/tables"))
            due = ring.last_step - ring.first_step == distance - 1
            if is_constant and due and step >= 0 and live[step] + nbytes <= capacity:
                rings[place] = Buffer(ring.name, ring.nbytes, step, ring.last_step)
                live[step] += nbytes
    return rings


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
