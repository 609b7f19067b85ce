"""Name the operator that an NPU delay belongs to, from an artifact's directory and a board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.compiler.artifact.layout import TARGET, WEIGHTS
from tilewright.compiler.artifact.manifest import read_manifest
from tilewright.compiler.profile.bisect import Delay, Stream, find_delay
from tilewright.targets import isa
from tilewright.targets.board_timer import BoardTimer
from tilewright.targets.description import read_target
from tilewright.targets.errors import ProfileError
from tilewright.targets.groups import BUNDLED_BACKEND, Npu
from tilewright.targets.simulated_board import simulated_timer
from tilewright.targets.simulator import Simulator

# Below this share of a stream's time, board and simulator agree.
_AGREEMENT = 0.01


def locate(artifact: Path, report: Mapping[str, Any], board: BoardTimer) -> str:
    """What `profile --bisect` prints.

    Raises ProfileError for an artifact without NPU steps, or of another instruction set.
    """
    manifest = read_manifest(artifact)
    npu = read_target(artifact / TARGET).npu
    steps = [step for step in manifest["steps"] if step["device"] == "npu"]
    if npu is None or not steps:
        raise ProfileError(f"{artifact}: has no NPU steps, so no command stream to bisect")
    if npu.backend != BUNDLED_BACKEND:
        raise ProfileError(f"{artifact}: its streams are of {npu.backend}, which cannot be cut")
    streams = [Stream(step["stream"], (artifact / step["stream"]).read_bytes()) for step in steps]
    constants, arena = (artifact / WEIGHTS).read_bytes(), int(manifest["arena"]["bytes"])
    model = simulated_timer(npu)
    modelled = sum(model(stream.code, constants, arena) for stream in streams)
    delay = find_delay(streams, constants, arena, board, model, _AGREEMENT * modelled)
    if delay is None:
        return f"no delay: the board is within {_AGREEMENT:.0%} of {modelled:,.2f} us modelled"
    index = [stream.region for stream in streams].index(delay.region)
    code, operators = streams[index].code, steps[index]["operators"]
    row = report["operators"][_operator(report, operators, code, delay, npu, constants, arena)]
    kind = type(isa.decode(code).instructions[delay.instruction]).__name__.upper()
    return (
        f"{row['name']} ({row['op']}): instruction {delay.instruction} ({kind}) of {delay.region} "
        f"takes {delay.excess_us:,.2f} us longer than modelled, of {delay.total_us:,.2f} us that "
        f"the board takes longer in all; found with {delay.runs} runs"
    )


def _operator(
    report: Mapping[str, Any],
    operators: Sequence[int],
    code: bytes,
    delay: Delay,
    npu: Npu,
    constants: bytes,
    arena_bytes: int,
) -> int:
    """The operator whose span in the report's timeline holds the instruction."""
    trace = Simulator(npu).run(code, constants, np.zeros(arena_bytes, np.uint8), trace=True).trace
    instruction = isa.decode(code).instructions[delay.instruction]
    assert instruction.engine is not None
    spans = [span for span in report["timeline"] if span["operator"] in operators]
    begin = min(span["start_us"] for span in spans)
    begin -= min(start for start, _ in trace) / npu.clock_mhz
    start = begin + trace[delay.instruction][0] / npu.clock_mhz
    earlier = [
        span
        for span in spans
        if span["lane"] == instruction.engine.name.lower() and span["start_us"] <= start + 1e-6
    ]
    return int(max(earlier, key=lambda span: float(span["start_us"]))["operator"])
