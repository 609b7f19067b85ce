"""Whether an operator can be scheduled at all: asked before it is given to the NPU."""

from __future__ import annotations

from tilewright.schedules.npu.grid import Residency
from tilewright.schedules.npu.tiling import find_candidates, memory_gaps
from tilewright.schedules.npu.work import describe
from tilewright.targets.description import Npu
from tilewright.targets.operators import Operator


def memory_refusal(operator: Operator, npu: Npu) -> str | None:
    """Why not even the smallest tiles of `operator` fit the NPU's memories; None when they do.

    Asked of the operator alone, with everything streamed: a region finds room for it by spilling.
    """
    work = describe(operator, npu)
    residency = Residency(tuple(False for _ in operator.inputs), output=False, stored=True)
    room = npu.sram_bytes - memory_gaps(npu)
    least: int | None = None
    for thorough in (False, True):
        least = find_candidates(work, npu, residency, thorough).least_bytes
        if least is not None and least <= room:
            return None
    if least is None:
        return f"no tile of it fits {npu.accumulator_bytes} bytes of accumulators"
    return f"its smallest tiles need {least} bytes of SRAM, this NPU has {room} to give"
