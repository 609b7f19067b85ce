"""Hold a program against the memory its board leaves, and say what would make it fit.

A remedy is tried, not guessed: the model is planned again with a smaller batch or input, or for
another bundled board, and the arena that this gives is told. Only the gain of int8 over float32 is
an estimate, a quarter, since it takes data to quantise a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx

from tilewright.compiler.frontend.shapes import input_shapes
from tilewright.compiler.program import NpuCall, Program
from tilewright.targets.description import Target, list_targets, load_target
from tilewright.targets.errors import MemoryLimitError, TilewrightError

Shapes = Mapping[str, tuple[int, ...]]
PlanArena = Callable[[Shapes, Target], int]  # the arena's bytes with these shapes on this board
_BOARDS_TRIED = 2


@dataclass(frozen=True)
class Shortage:
    """A region of memory that is too small; all in bytes."""

    region: str  # "arena" or "flash"
    required: int
    available: int
    limit: int

    def __str__(self) -> str:
        reserve = self.limit - self.available
        kept = f" ({self.limit:,} less {reserve:,} in reserve)" if reserve else ""
        return (
            f"the {self.region} needs {self.required:,} bytes, {self.available:,} are "
            f"available{kept}: {self.required - self.available:,} too many"
        )


def shortages(program: Program, target: Target) -> list[Shortage]:
    """The regions the program does not fit. Its flash is without the runtime, some 3 KiB."""
    memory = target.memory
    code = (program.board or program.host).code
    streams = sum(len(step.stream) for step in program.steps if isinstance(step, NpuCall))
    regions = [
        ("arena", program.arena_bytes, memory.arena_limit_bytes, memory.arena_limit_kib),
        (
            "flash",
            len(program.weights) + streams + len(code),
            memory.flash_limit_bytes,
            memory.flash_limit_kib,
        ),
    ]
    return [
        Shortage(region, required, available, (limit or 0) * 1024)
        for region, required, available, limit in regions
        if available is not None and required > available
    ]


def check_memory(program: Program, target: Target, model: onnx.ModelProto, plan: PlanArena) -> None:
    """Raise MemoryLimitError, with what is lacking and what would help, for a program too large."""
    lacking = shortages(program, target)
    if not lacking:
        return
    facts = "; ".join(map(str, lacking))
    remedies = "; ".join(_remedies(lacking, target, model, plan))
    raise MemoryLimitError(f"{target.name}: {facts}. What would help: {remedies}")


def _remedies(
    lacking: Sequence[Shortage], target: Target, model: onnx.ModelProto, plan: PlanArena
) -> Iterator[str]:
    shapes = input_shapes(model.graph)
    short = {one.region: one for one in lacking}
    if "arena" in short:
        for what, smaller in _smaller_inputs(shapes):
            arena = _try(plan, smaller, target)
            if arena is not None:
                yield f"{what}: an arena of {arena:,} bytes{_verdict(arena, short['arena'])}"
    if not _is_quantised(model):
        for one in lacking:
            estimate = one.required // 4
            yield (
                f"int8 (tilewright quantize): about {estimate:,} bytes of {one.region}, "
                f"estimated{_verdict(estimate, one)}"
            )
    for other in _roomier_boards(lacking, target):
        arena = _try(plan, shapes, other)
        limit = other.memory.arena_limit_bytes
        if arena is not None and (limit is None or arena <= limit):
            room = "no limit" if limit is None else f"{limit:,}"
            yield f"board {other.name}: an arena of {arena:,} bytes of {room}"
    yield "or raise the limits in [memory] if the board has more"


def _smaller_inputs(shapes: Shapes) -> Iterator[tuple[str, Shapes]]:
    """Batch 1, then images of half the height and width."""
    batches = {shape[0] for shape in shapes.values() if shape}
    if max(batches, default=1) > 1:
        single = {name: (1, *shape[1:]) for name, shape in shapes.items()}
        yield f"batch 1 instead of {max(batches)}", single
    images = {name: shape for name, shape in shapes.items() if len(shape) == 4}
    halved = {name: _half(shape) for name, shape in images.items()}
    if halved != images:
        spelled = ", ".join(f"{name}={','.join(map(str, one))}" for name, one in halved.items())
        yield f"--shape {spelled}", {**shapes, **halved}


def _half(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Height and width are the two larger neighbours: NCHW or NHWC."""
    batch, first, second, third = shape
    if first <= third:
        return (batch, first, second // 2, third // 2) if min(second, third) >= 16 else shape
    return (batch, first // 2, second // 2, third) if min(first, second) >= 16 else shape


def _roomier_boards(lacking: Sequence[Shortage], target: Target) -> list[Target]:
    """The bundled boards with just enough more memory, an NPU where this board has one."""

    def room(board: Target, region: str) -> float:
        limit = getattr(board.memory, f"{region}_limit_bytes")
        return float("inf") if limit is None else float(limit)

    boards = [load_target(name) for name in list_targets()]
    fitting = [
        board
        for board in boards
        if (board.npu is None) == (target.npu is None)
        and not board.cpu.is_native
        and all(room(board, one.region) >= one.required for one in lacking)
    ]
    return sorted(fitting, key=lambda board: (room(board, "arena"), board.name))[:_BOARDS_TRIED]


def _try(plan: PlanArena, shapes: Shapes, target: Target) -> int | None:
    """None where the model does not take these shapes, or the board not the model."""
    try:
        return plan(shapes, target)
    except (TilewrightError, RuntimeError, ValueError):
        return None


def _verdict(bytes_: int, shortage: Shortage) -> str:
    return ", which fits" if bytes_ <= shortage.available else ", which is still too much"


def _is_quantised(model: onnx.ModelProto) -> bool:
    return any("uantize" in node.op_type or "QLinear" in node.op_type for node in model.graph.node)
