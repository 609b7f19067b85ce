"""A compiled model as plain data: what the artifact's C code, its report and its loader need."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from tilewright.compiler.preprocessing import Preprocessing

Region = Literal["arena", "weights"]


@dataclass(frozen=True)
class Reference:
    """Where an argument lies: byte `offset` from the start of the arena or of the weights."""

    region: Region
    offset: int


@dataclass(frozen=True)
class Port:
    """An input or output of the model, dense and row-major in the arena."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # numpy's name
    offset: int
    scale: float | None = None
    zero: int | None = None

    # The same layout as the ONNX model has, unless the user asked for another.
    layout: str = ""

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Intermediate:
    """A tensor of the ONNX graph that lies in the arena, dense, once `steps` steps have run.

    `axes` leads from the arena's order of axes to the ONNX tensor's: onnx = arena.transpose(axes).
    """

    name: str
    shape: tuple[int, ...]  # in the arena
    dtype: str
    offset: int
    steps: int
    axes: tuple[int, ...]


@dataclass(frozen=True)
class KernelCall:
    """One CPU kernel: `symbol(arguments..., task_begin, task_end)`, in any split of 0..tasks."""

    operators: tuple[int, ...]  # indices into Program.operators
    symbol: str
    arguments: tuple[Reference, ...]
    tasks: int


@dataclass(frozen=True)
class NpuCall:
    """One NPU region: its command stream addresses the weights and the arena directly."""

    operators: tuple[int, ...]
    symbol: str
    stream: bytes


@dataclass(frozen=True)
class TimeSpan:
    """`lane` (cpu, crossing, or an engine of the NPU) works on an operator, in microseconds.

    `operator` is its index in Program.operators; None for a crossing.
    """

    lane: str
    operator: int | None
    start_us: float
    end_us: float


@dataclass(frozen=True)
class Objects:
    """The CPU kernels of one machine as a relocatable object file, with what it was built for."""

    triple: str
    cpu: str
    features: str
    code: bytes


@dataclass(frozen=True)
class Program:
    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    steps: tuple[KernelCall | NpuCall, ...]
    arena_bytes: int
    weights: bytes
    host: Objects
    board: Objects | None  # None where the board is the host
    operators: tuple[dict[str, Any], ...]  # report.json's rows
    totals: dict[str, Any]
    target_toml: str  # the description it was compiled for, verbatim
    notes: tuple[dict[str, Any], ...] = field(default=())  # copies made, warnings, with causes
    timeline: tuple[TimeSpan, ...] = field(default=())  # modelled; lanes are the board's
    preprocessing: Preprocessing | None = None  # how a picture becomes the input
    source: bytes = b""  # the int8 ONNX model, where compiling made it; kept in the artifact
    intermediates: tuple[Intermediate, ...] = field(default=())  # in the order they are computed
