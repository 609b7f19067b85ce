"""Find where a board loses time, when it can only say how long a whole command stream took.

The first n instructions of a stream, closed by END, are a stream too: waits reach backwards only.
What the board takes beyond the simulator for a prefix is its excess. The search halves a range of
instructions, going where the excess grows more, and so finds a delay of one instruction after about
log2(instructions) prefixes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilewright.targets import isa
from tilewright.targets.board_timer import BoardTimer
from tilewright.targets.errors import ProfileError


@dataclass(frozen=True)
class Stream:
    """A command stream of an artifact by its region's name."""

    region: str
    code: bytes


@dataclass(frozen=True)
class Delay:
    """`instruction` of `region` takes `excess_us` longer than modelled; `total_us` is all excess.

    `runs` is how often the board ran.
    """

    region: str
    instruction: int
    excess_us: float
    total_us: float
    runs: int


def find_delay(
    streams: Sequence[Stream],
    constants: bytes,
    arena_bytes: int,
    board: BoardTimer,
    model: BoardTimer,
    threshold_us: float = 0.0,
) -> Delay | None:
    """The instruction with the delay; None when the board is within `threshold_us` of the model.

    `board` and `model` time a stream. Raises ProfileError when there is no stream.
    """
    if not streams:
        raise ProfileError("the artifact has no NPU steps: there is no command stream to bisect")
    runs = 0

    def excess(code: bytes) -> float:
        nonlocal runs
        runs += 1
        return board(code, constants, arena_bytes) - model(code, constants, arena_bytes)

    whole = {stream.region: excess(stream.code) for stream in streams}
    worst = max(streams, key=lambda stream: whole[stream.region])
    total = whole[worst.region]
    if total <= threshold_us:
        return None
    prefix = prefixes(worst.code)
    low, high = 0, len(isa.decode(worst.code).instructions) - 1
    excess_low, excess_high = excess(prefix(0)), total
    while high - low > 1:
        middle = (low + high) // 2
        excess_middle = excess(prefix(middle))
        if excess_middle - excess_low > excess_high - excess_middle:
            high, excess_high = middle, excess_middle
        else:
            low, excess_low = middle, excess_middle
    return Delay(worst.region, high - 1, excess_high - excess_low, total, runs)


def prefixes(code: bytes) -> Callable[[int], bytes]:
    """The stream of the first n instructions."""
    stream = isa.decode(code)

    def prefix(count: int) -> bytes:
        return isa.encode(replace(stream, instructions=[*stream.instructions[:count], isa.End()]))

    return prefix
