"""Share a run among its operators: what each adds to the time, moves and keeps in the SRAM."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.schedules.npu.schedule import Emission
from tilewright.targets import timing
from tilewright.targets.backend import OperatorShare
from tilewright.targets.description import Npu
from tilewright.targets.simulator import Statistics


def attribute(run: Statistics, emission: Emission, npu: Npu) -> list[OperatorShare]:
    """One share for each operator of the region; `run` must have been traced."""
    count = len(emission.sram_live)
    owners = emission.operator_of_instruction
    added = [0] * count
    by_step = _added_cycles(
        emission.step_of_instruction, run.trace, run.cycles, len(emission.owners)
    )
    for owner, cycles in zip(emission.owners, by_step, strict=True):
        added[owner] += cycles
    moved = [0] * count
    picojoules = [cycles * npu.energy.idle_mw * 1e3 / npu.clock_mhz for cycles in added]
    for instruction, owner in zip(emission.stream.instructions, owners, strict=False):
        cost = timing.cost(npu, instruction)
        moved[owner] += cost.dram_bytes
        picojoules[owner] += _energy(npu, cost)
    energy = [value / 1e6 for value in picojoules]
    return [
        OperatorShare(*row) for row in zip(added, moved, emission.sram_live, energy, strict=True)
    ]


def _added_cycles(
    steps: Sequence[int], trace: Sequence[tuple[int, int]], makespan: int, count: int
) -> list[int]:
    """Each step's increments of the latest end so far, steps in their order.

    A step that ends under an earlier one adds nothing. What END waits for afterwards goes to the
    last step.
    """
    ends = [0] * count
    for step, (_, end) in zip(steps, trace, strict=False):
        ends[step] = max(ends[step], end)
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
