"""The bundled instruction set as a backend: plan, emit, simulate, and the simulator as driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from tilewright.schedules.npu.attribution import attribute
from tilewright.schedules.npu.bounds import bound_cycles
from tilewright.schedules.npu.choices import Choices, plan_choices
from tilewright.schedules.npu.fits import memory_refusal
from tilewright.schedules.npu.region_plan import RegionPlan
from tilewright.schedules.npu.schedule import Emission, emit, plan_region
from tilewright.targets.backend import Backend, Emitted, EnergyParts, Plan, Simulation, Span
from tilewright.targets.description import Npu
from tilewright.targets.isa import Engine, encode
from tilewright.targets.operators import Operator, Region
from tilewright.targets.simulator import HEADERS, SOURCES, Simulator, Statistics, machine_source
from tilewright.targets.support import Refusal, refuses


class TiledBackend(Backend):
    """Tiles in the scratchpad, four engines, semaphores: targets/isa."""

    def refuses(self, npu: Npu, operator: Operator) -> Refusal | None:
        found = refuses(npu, operator)
        if found is None and (text := memory_refusal(operator, npu)) is not None:
            return Refusal("memory", text)
        return found

    def least_cycles(self, npu: Npu, operator: Operator) -> int:
        return bound_cycles(operator, npu)

    def plan(self, npu: Npu, region: Region) -> Plan:
        return plan_region(region, npu, depth_first=True)

    def replan(self, npu: Npu, region: Region, choices: str) -> Plan:
        return plan_choices(region, npu, Choices.from_text(choices))

    def emit(self, plan: Plan, buffer_offsets: Mapping[str, int], constants_offset: int) -> Emitted:
        assert isinstance(plan, RegionPlan)
        emission = emit(plan, buffer_offsets, constants_offset)
        return Emitted(encode(emission.stream), emission)

    def simulate(
        self, npu: Npu, emitted: Emitted, constants: bytes, arena_bytes: int
    ) -> Simulation:
        emission = emitted.details
        assert isinstance(emission, Emission)
        arena = np.zeros(arena_bytes, np.uint8)
        run = Simulator(npu).run(emitted.stream, constants, arena, trace=True)
        return Simulation(
            run.cycles,
            attribute(run, emission, npu),
            energy_parts(npu, run),
            tuple(_spans(emission, run)),
        )

    def driver_files(self, npu: Npu) -> Sequence[Path]:
        return [*SOURCES, *HEADERS]

    def machine_source(self, npu: Npu, name: str) -> str:
        return machine_source(npu, name)

    def workspace_bytes(self, npu: Npu, stream: bytes) -> int:
        return Simulator(npu).workspace_bytes(stream)


def energy_parts(npu: Npu, run: Statistics) -> EnergyParts:
    """The run's energy by what draws it; the parts add up to `run.energy_pj`."""
    engines, energy = run.engines, npu.energy
    # The DMA engines count DRAM on one side and the SRAM on the other.
    sram = engines[Engine.DMA_IN].bytes_out + engines[Engine.DMA_OUT].bytes_in
    for engine in (Engine.MAC, Engine.VECTOR):
        sram += engines[engine].bytes_in + engines[engine].bytes_out
    return EnergyParts(
        mac=run.macs * energy.mac_pj / 1e6,
        sram=sram * energy.sram_byte_pj / 1e6,
        dram=run.dram_burst_bytes * energy.dram_byte_pj / 1e6,
        idle=run.cycles * energy.idle_mw / npu.clock_mhz / 1e3,
    )


def _spans(emission: Emission, run: Statistics) -> Iterator[Span]:
    """The trace, an engine's instructions of one operator that follow each other as one span."""
    last: dict[str, Span] = {}
    for instruction, owner, (start, end) in zip(
        emission.stream.instructions, emission.operator_of_instruction, run.trace, strict=False
    ):
        if instruction.engine is None:  # END
            continue
        engine = instruction.engine.name.lower()
        before = last.get(engine)
        if before is not None and before.operator == owner:
            last[engine] = Span(engine, owner, before.start, end)
            continue
        if before is not None:
            yield before
        last[engine] = Span(engine, owner, start, end)
    yield from last.values()
