"""A simulated board as a command that times streams: targets/board_timer.py.

    python -m tilewright.targets.simulated_board BOARD.toml STREAM_FILE CONSTANTS_FILE ARENA_BYTES

It takes streams made for any description, as hardware does that does not know how it is described.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from tilewright.targets.board_timer import BoardTimer
from tilewright.targets.description import load_target
from tilewright.targets.errors import ProfileError, TilewrightError
from tilewright.targets.groups import Npu
from tilewright.targets.isa import decode, encode
from tilewright.targets.simulator import Simulator


def simulated_timer(npu: Npu) -> BoardTimer:
    """Times streams on a simulated `npu`, whatever description they were made for."""
    simulator = Simulator(npu)

    def time(stream: bytes, constants: bytes, arena_bytes: int) -> float:
        arena = np.zeros(arena_bytes, np.uint8)
        own = encode(replace(decode(stream), target_digest=npu.digest[:8]))
        run = simulator.run(own, constants, arena)
        return run.cycles / npu.clock_mhz

    return time


def main(arguments: list[str]) -> None:
    board, stream, constants, arena_bytes = arguments
    npu = load_target(board).npu
    if npu is None:
        raise ProfileError(f"{board}: has no NPU to time")
    timer = simulated_timer(npu)
    print(timer(Path(stream).read_bytes(), Path(constants).read_bytes(), int(arena_bytes)))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except TilewrightError as failure:
        sys.exit(str(failure))
