"""What an instruction set must answer so that regions of operators become streams that run.

The compiler knows operators (targets/operators.py), buffers and bytes; it never reads a stream. The
bundled backend is schedules/npu/backend.py. Another is one class, found through the entry point
group `tilewright.backends` by the name that a description gives as `backend` in [npu].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tilewright.targets.errors import TargetError
from tilewright.targets.groups import Npu
from tilewright.targets.operators import Operator, Region
from tilewright.targets.support import Refusal


@dataclass(frozen=True)
class SpilledBuffer:
    """A buffer of the region's own that needs the arena, from one operator to another."""

    buffer: str
    nbytes: int
    first_operator: int
    last_operator: int


class Plan(Protocol):
    """What the compiler must know of a region before the arena is planned."""

    @property
    def constants(self) -> bytes:
        """Weights and tables in the backend's own layout; they will lie together."""

    @property
    def spilled(self) -> Sequence[SpilledBuffer]:
        """Intermediate buffers that need a place in the arena."""

    @property
    def lives(self) -> Mapping[str, tuple[int, int]]:
        """The first and the last operator while each buffer is read or written."""


def lives_in_order(region: Region) -> dict[str, tuple[int, int]]:
    """`Plan.lives` where operators run one after the other."""
    lives: dict[str, tuple[int, int]] = {}
    for index, operator in enumerate(region.operators):
        for tensor in (*operator.inputs, operator.output):
            lives[tensor.buffer] = (lives.get(tensor.buffer, (index, index))[0], index)
    return lives


@dataclass(frozen=True)
class Emitted:
    """A region's stream, as the driver takes it, and whatever the backend remembers of it."""

    stream: bytes
    details: Any = None


@dataclass(frozen=True)
class OperatorShare:
    """`cycles` are what the operator adds to the makespan; all operators' sum is the makespan.

    `energy_uj` is of its instructions and of what the NPU draws all the time for its cycles.
    """

    cycles: int
    dram_bytes: int
    sram_peak_bytes: int
    energy_uj: float


@dataclass(frozen=True)
class Span:
    """`engine` works on `operator` (its index in the region) from `start` to `end`, in cycles."""

    engine: str
    operator: int
    start: int
    end: int


@dataclass(frozen=True)
class EnergyParts:
    """Microjoules by what draws them; idle power over the NPU's own time."""

    mac: float = 0.0
    sram: float = 0.0
    dram: float = 0.0
    idle: float = 0.0

    def __add__(self, other: EnergyParts) -> EnergyParts:
        return EnergyParts(
            self.mac + other.mac,
            self.sram + other.sram,
            self.dram + other.dram,
            self.idle + other.idle,
        )

    @property
    def total(self) -> float:
        return self.mac + self.sram + self.dram + self.idle


@dataclass(frozen=True)
class Simulation:
    """What running a region's stream takes; a share for each of its operators."""

    cycles: int
    shares: Sequence[OperatorShare]
    energy: EnergyParts
    spans: Sequence[Span] = ()


class Backend(ABC):
    """One instruction set. Stateless: every NPU of a description is passed in."""

    @abstractmethod
    def refuses(self, npu: Npu, operator: Operator) -> Refusal | None:
        """Why it cannot run `operator`; None when it can."""

    @abstractmethod
    def least_cycles(self, npu: Npu, operator: Operator) -> int:
        """A lower bound, by which operators are placed on NPU or CPU."""

    @abstractmethod
    def plan(self, npu: Npu, region: Region) -> Plan:
        """Decide all but the DRAM addresses; TilewrightError where an operator cannot fit."""

    def replan(self, npu: Npu, region: Region, choices: str) -> Plan:
        """The plan that the choices of a tuning record give; only for backends that tune."""
        raise TargetError(f"{region.name}: this backend has no tuned schedules; leave out --db")

    @abstractmethod
    def emit(self, plan: Plan, buffer_offsets: Mapping[str, int], constants_offset: int) -> Emitted:
        """The stream; buffers are bytes into the arena, constants into the weights."""

    @abstractmethod
    def simulate(
        self, npu: Npu, emitted: Emitted, constants: bytes, arena_bytes: int
    ) -> Simulation:
        """Cycles and energy of a stream that `emit` gave."""

    @abstractmethod
    def driver_files(self, npu: Npu) -> Sequence[Path]:
        """C sources and headers that implement npu_driver.h, for artifacts that run here.

        Among them npu_simulator.h: it declares `npu_machine`, `struct npu_device` and
        `npu_simulator_init`. Real hardware's driver takes their place on a board.
        """

    @abstractmethod
    def machine_source(self, npu: Npu, name: str) -> str:
        """A C definition of `const npu_machine name`, after npu_simulator.h is included."""

    @abstractmethod
    def workspace_bytes(self, npu: Npu, stream: bytes) -> int:
        """Memory that the driver needs beside the arena for running `stream`."""
