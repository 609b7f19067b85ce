"""Schedule a region of NPU operators: decide in `plan_region`, write instructions in `emit`.

Between the two the caller places the region's spilled buffers in the arena, beside its inputs and
outputs, and its constants among those of other regions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tilewright.schedules.npu.chains import choose_chains
from tilewright.schedules.npu.emit_multiply import emit_multiply
from tilewright.schedules.npu.emit_vector import vector_emission
from tilewright.schedules.npu.emitter import Emitter
from tilewright.schedules.npu.planning import Chain, plan_steps
from tilewright.schedules.npu.region_plan import RegionPlan
from tilewright.schedules.npu.waits import expected_starts, find_conflicts, order_stream
from tilewright.targets import isa, timing
from tilewright.targets.description import Npu
from tilewright.targets.errors import TilewrightError
from tilewright.targets.operators import Region

_ROOMS = (0.9, 0.75)  # of the SRAM for a chain's stripes, by formula
_USUAL_LATENCIES = 4  # plan_steps' own
_LATENCIES = (1, 16)  # tried beside those


@dataclass(frozen=True)
class Emission:
    """A command stream, and for each of its instructions but END the operator it serves.

    Operators in stripes are several steps; `owners` says of which operator each step is a part,
    and `sram_live` are the bytes of SRAM taken at each operator.
    """

    stream: isa.CommandStream
    step_of_instruction: list[int]
    owners: tuple[int, ...]
    sram_live: tuple[int, ...]

    @property
    def operator_of_instruction(self) -> list[int]:
        return [self.owners[step] for step in self.step_of_instruction]


def plan_region(region: Region, npu: Npu, depth_first: bool = False) -> RegionPlan:
    """Decide tiles, what stays in the SRAM, SRAM addresses, and lay out the constants.

    With `depth_first`, chains whose intermediates do not fit the SRAM run stripe by stripe where
    that is expected to be faster; the arena must then be planned with the plan's own `lives`.
    Raises TilewrightError for an operator whose smallest tiles do not fit.
    """
    return plan_first(region, npu, depth_first)[0]


def plan_first(
    region: Region, npu: Npu, depth_first: bool
) -> tuple[RegionPlan, tuple[Chain, ...], int]:
    """The plan of `plan_region`, with the chains and latencies (see plan_steps) that gave it."""
    shapes: list[list[Chain]] = [[]]
    whole = plan_steps(region, npu)
    if depth_first:
        for room in _ROOMS:
            chains = choose_chains(region, npu, whole, room)
            shapes += [chains, [replace(chain, skewed=True) for chain in chains]]
    plans = {0: whole}
    for index, shape in enumerate(shapes):
        with suppress(TilewrightError):  # stripes that do not pack are no plan
            plans[index] = plans.get(index) or plan_steps(region, npu, shape)
    best = min(plans, key=lambda index: (expected_cycles(plans[index]), index))
    longer = {_USUAL_LATENCIES: plans[best]}
    for latencies in _LATENCIES:
        longer[latencies] = plan_steps(region, npu, shapes[best], latencies)
    chosen = min(longer, key=lambda latencies: expected_cycles(longer[latencies]))
    return longer[chosen], tuple(shapes[best]), chosen


def expected_cycles(region_plan: RegionPlan) -> float:
    """The makespan by the instructions' own costs, no bank or channel conflicts, no dispatch."""
    npu = region_plan.npu
    emitter = _write_program(region_plan, _apart(region_plan), 0)
    conflicts = find_conflicts(emitter.instructions, npu.channel_alignment)
    _, end = expected_starts(
        emitter.instructions, conflicts, lambda one: timing.cost(npu, one).cycles
    )
    return end


def _apart(region_plan: RegionPlan) -> dict[str, int]:
    """Arena offsets one after the other, for when only the order of accesses matters."""
    offsets, end = {}, 0
    for name, nbytes in region_plan.region.buffer_bytes.items():
        offsets[name], end = end, end + nbytes
    return offsets


def _write_program(
    region_plan: RegionPlan, buffer_offsets: Mapping[str, int], constants_offset: int
) -> Emitter:
    """All instructions in program order, without waits."""
    emitter = Emitter(region_plan, buffer_offsets, constants_offset)
    for index, step in enumerate(region_plan.operators):
        emitter.step = index
        if step.work.multiply is not None:
            emit_multiply(emitter, step)
        else:
            vector_emission(step.work.operator)(emitter, step)
    return emitter


def emit(
    region_plan: RegionPlan, buffer_offsets: Mapping[str, int], constants_offset: int
) -> Emission:
    """The stream of a planned region whose DRAM buffers lie at `buffer_offsets` of the arena."""
    npu = region_plan.npu
    emitter = _write_program(region_plan, buffer_offsets, constants_offset)
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
    steps = [emitter.steps[index] for index in order]
    return Emission(stream, steps, region_plan.owners, region_plan.sram_live)


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
