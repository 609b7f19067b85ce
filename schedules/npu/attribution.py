"""Share a run among its operators: what each adds to the time, moves and keeps in the SRAM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.schedules.npu.region_plan import RegionPlan
from tilewright.schedules.npu.schedule import Emission
from tilewright.targets import timing
from tilewright.targets.description import Npu


@dataclass(frozen=True)
class OperatorShare:
    """`cycles` are what the operator adds to the makespan; all operators' sum is the makespan.

    `energy_pj` leaves out what is drawn all the time, which `idle_mw` over the run gives.
    """

    cycles: int
    dram_bytes: int
    sram_peak_bytes: int
    energy_pj: float


def attribute(
    region_plan: RegionPlan, emission: Emission, trace: Sequence[tuple[int, int]], makespan: int
) -> list[OperatorShare]:
    """One share for each operator of the region; `trace` is (start, end) per instruction."""
    npu = region_plan.npu
    count = len(region_plan.operators)
    instructions = emission.stream.instructions[:-1]
    added = _added_cycles(emission.operator_of_instruction, trace, makespan, count)
    moved, energy = [0] * count, [0.0] * count
    for instruction, operator in zip(instructions, emission.operator_of_instruction, strict=True):
        cost = timing.cost(npu, instruction)
        moved[operator] += cost.dram_bytes
        energy[operator] += _energy(npu, cost)
    live = region_plan.sram_live
    return [OperatorShare(*row) for row in zip(added, moved, live, energy, strict=True)]


def _added_cycles(
    owners: Sequence[int], trace: Sequence[tuple[int, int]], makespan: int, count: int
) -> list[int]:
    """Each operator's increments of the latest end so far, operators in their order.

    An operator that ends under an earlier one adds nothing. What END waits for afterwards goes to
    the last operator.
    """
    ends = [0] * count
    for owner, (_, end) in zip(owners, trace, strict=False):
        ends[owner] = max(ends[owner], end)
    if count:
        ends[-1] = max(ends[-1], makespan)
    added, latest = [], 0
    for end in ends:
        added.append(max(end - latest, 0))
        latest = max(latest, end)
    return added


def _energy(npu: Npu, cost: timing.Cost) -> float:
    energy = npu.energy
    sram = (cost.sram_read + cost.sram_written) * energy.sram_byte_pj
    return cost.macs * energy.mac_pj + sram + cost.dram_burst_bytes * energy.dram_byte_pj
