"""Time that only a whole stream shows: issue, queues, waits, the DRAM channel and the banks.

Numbers are worked out by hand for one NPU: 4 bytes of DRAM a cycle, 64 cycles of latency, bursts of
64 bytes, an instruction issued every 2 cycles, 16 lanes after 16 cycles, 8 banks of 32 KiB.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.targets.programs import ARENA_BYTES, CONSTANTS_BYTES, make_stream
from tilewright.targets import isa, load_target
from tilewright.targets.description import Npu
from tilewright.targets.isa import Engine, Instruction
from tilewright.targets.simulator import Simulator, Statistics

_found = load_target("mcu-16").npu
assert _found is not None
NPU = _found
BANK = NPU.sram_bytes // 8


def run(*instructions: Instruction, npu: Npu = NPU) -> Statistics:
    stream = make_stream(npu, list(instructions))
    arena = np.zeros(ARENA_BYTES, np.uint8)
    return Simulator(npu).run(stream, bytes(CONSTANTS_BYTES), arena, trace=True)


def transfer(kind: type[Any], address: int = 0, **waits: int) -> Instruction:
    """640 bytes: 64 cycles of latency and 160 of data."""
    made = kind(
        region=1, dram_offset=0, sram_address=address, run_bytes=640, count_1=1, count_2=1,
        dram_stride_1=0, dram_stride_2=0, sram_stride_1=0, sram_stride_2=0,
        waits={Engine[engine]: count for engine, count in waits.items()},
    )  # fmt: skip
    assert isinstance(made, Instruction)
    return made


def fill(address: int = 0, count: int = 640, **waits: int) -> Instruction:
    """16 cycles to start, 640 bytes in 40."""
    return isa.Fill(
        address=address, run_bytes=count, count_1=1, count_2=1, stride_1=0, stride_2=0, value=0,
        waits={Engine[engine]: done for engine, done in waits.items()},
    )  # fmt: skip


def test_engines_run_side_by_side_as_they_are_issued() -> None:
    statistics = run(transfer(isa.Load), fill(BANK))
    assert statistics.trace == ((2, 226), (4, 60), (226, 226))


def test_an_instruction_waits_for_another_engine() -> None:
    statistics = run(transfer(isa.Load), fill(BANK, DMA_IN=1))
    assert statistics.trace[1] == (226, 282)
    assert statistics.engines[Engine.VECTOR].sync_wait_cycles == 226 - 4
    assert statistics.cycles == 282


def test_an_engine_runs_its_queue_in_order() -> None:
    statistics = run(fill(), fill(BANK), fill(2 * BANK))
    assert statistics.trace[:3] == ((2, 58), (58, 114), (114, 170))
    assert statistics.engines[Engine.VECTOR].sync_wait_cycles == 0


def test_dma_engines_share_the_dram_channel() -> None:
    """The store asks for the channel at 4 + 64 and gets it when the load's bytes have passed."""
    statistics = run(transfer(isa.Load), transfer(isa.Store, BANK))
    assert statistics.trace[:2] == ((2, 226), (4, 226 + 160))
    assert statistics.engines[Engine.DMA_OUT].data_wait_cycles == 226 - (4 + 64)


def test_a_full_queue_holds_up_the_dispatcher() -> None:
    """Two fills fill the queue: the load behind the third is issued 2 after the first has ended."""
    npu = replace(NPU, dispatch=replace(NPU.dispatch, queue_depth=2))
    third_behind = [fill(), fill(BANK), fill(2 * BANK), transfer(isa.Load, 3 * BANK)]
    assert run(*third_behind, npu=npu).trace[3][0] == 58 + 2
    assert run(*third_behind).trace[3][0] == 8


def test_the_later_one_loses_to_a_bank_conflict() -> None:
    """A bank serves 2 bytes a cycle. The load moves 640 in 224 cycles, the fill 640 in 56.

    Over the fill's 56 cycles: 640 + 640 * 56 // 224 - 2 * 56 = 688 bytes too many, 344 cycles.
    """
    npu = replace(NPU, memory=replace(NPU.memory, bank_bytes_per_cycle=2))
    apart = run(transfer(isa.Load), fill(BANK), npu=npu)
    assert apart.engines[Engine.VECTOR].data_wait_cycles == 0
    together = run(transfer(isa.Load), fill(1024), npu=npu)
    assert together.trace[:2] == ((2, 226), (4, 4 + 56 + 344))
    assert together.engines[Engine.VECTOR].data_wait_cycles == 344


def test_banks_that_serve_both_cost_nothing() -> None:
    assert run(transfer(isa.Load), fill(1024)).trace[:2] == ((2, 226), (4, 60))


def test_the_stream_ends_with_its_last_engine() -> None:
    assert run(transfer(isa.Load), fill(BANK)).cycles == 226
    assert run().cycles == 2
