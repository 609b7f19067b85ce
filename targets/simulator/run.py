"""Run a command stream in the simulator from Python."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.targets.errors import SimulatorFault
from tilewright.targets.groups import Npu
from tilewright.targets.isa import Engine
from tilewright.targets.simulator.build import simulator_library
from tilewright.targets.simulator.machine import Machine, machine_struct

Bytes = bytes | bytearray | memoryview | NDArray[np.uint8]


@dataclass(frozen=True)
class EngineStatistics:
    """`npu_engine_stats` of npu_driver.h; energy in picojoules."""

    instructions: int
    busy_cycles: int
    data_wait_cycles: int
    sync_wait_cycles: int
    bytes_in: int
    bytes_out: int
    macs: int
    energy_pj: float


@dataclass(frozen=True)
class Statistics:
    """What a run did. `trace[i]` is when instruction i started and ended, in cycles."""

    cycles: int
    engines: dict[Engine, EngineStatistics]
    dram_burst_bytes: int
    energy_pj: float
    trace: tuple[tuple[int, int], ...] = ()

    @property
    def macs(self) -> int:
        return sum(engine.macs for engine in self.engines.values())

    @property
    def dram_bytes(self) -> int:
        """Bytes asked for, before rounding to bursts."""
        return self.engines[Engine.DMA_IN].bytes_in + self.engines[Engine.DMA_OUT].bytes_out


_ENGINE_COUNTS = (
    "instructions", "busy_cycles", "data_wait_cycles", "sync_wait_cycles", "bytes_in", "bytes_out",
    "macs",
)  # fmt: skip


class _EngineStats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (*_ENGINE_COUNTS, "energy_fj")]


class _Stats(ctypes.Structure):
    _fields_ = [
        ("cycles", ctypes.c_uint64),
        ("engines", _EngineStats * len(Engine)),
        ("dram_burst_bytes", ctypes.c_uint64),
        ("energy_fj", ctypes.c_uint64),
    ]


class _Span(ctypes.Structure):
    _fields_ = [("start", ctypes.c_uint64), ("end", ctypes.c_uint64)]


class Device(ctypes.Structure):
    """`struct npu_device` of npu_simulator.h, for whoever hands one to a model's runtime."""

    _fields_ = [
        ("machine", ctypes.POINTER(Machine)),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_size_t),
        ("trace", ctypes.POINTER(_Span)),
        ("trace_length", ctypes.c_size_t),
        ("stats", _Stats),
        ("error", ctypes.c_char * 160),
    ]


class Simulator:
    """One simulated NPU. Not for use by two threads at once."""

    def __init__(self, npu: Npu) -> None:
        """Raises TilewrightError when the simulator cannot be compiled."""
        self._library = simulator_library()
        self._library.npu_workspace_bytes.restype = ctypes.c_size_t
        self._machine = machine_struct(npu)
        self._device = Device()
        self._workspace: NDArray[np.uint64] = np.empty(0, np.uint64)

    def run(
        self, stream: bytes, constants: Bytes, arena: bytearray | NDArray[np.uint8], *,
        trace: bool = False,
    ) -> Statistics:  # fmt: skip
        """Run `stream` to its end, writing `arena` in place.

        Raises SimulatorFault naming the instruction, its field and the reason.
        """
        spans = (_Span * (len(stream) // 64))() if trace else None
        self._prepare(stream, spans)
        # Empty constants or arenas have no address; the stream must not touch them then.
        read = np.frombuffer(constants, np.uint8)
        written = np.frombuffer(arena, np.uint8)
        if not written.flags.writeable:
            raise ValueError("the arena must be writeable")
        status = self._library.npu_run(
            ctypes.byref(self._device),
            ctypes.c_char_p(stream),
            ctypes.c_size_t(len(stream)),
            ctypes.c_void_p(read.ctypes.data),
            ctypes.c_size_t(read.size),
            ctypes.c_void_p(written.ctypes.data),
            ctypes.c_size_t(written.size),
        )
        if status:
            raise SimulatorFault(self._device.error.decode())
        return _statistics(self._device.stats, spans, len(stream) // 64 - 1)

    def workspace_bytes(self, stream: bytes) -> int:
        """Memory the simulator needs for running `stream`."""
        size = self._library.npu_workspace_bytes(
            ctypes.byref(self._machine), ctypes.c_char_p(stream), ctypes.c_size_t(len(stream))
        )
        return int(size)

    def _prepare(self, stream: bytes, spans: ctypes.Array[_Span] | None) -> None:
        needed = -(-self.workspace_bytes(stream) // 8)
        if self._workspace.size < needed:
            self._workspace = np.empty(needed, np.uint64)
        self._library.npu_simulator_init(
            ctypes.byref(self._device),
            ctypes.byref(self._machine),
            ctypes.c_void_p(self._workspace.ctypes.data),
            ctypes.c_size_t(self._workspace.nbytes),
        )
        if spans is not None:
            self._device.trace = ctypes.cast(spans, ctypes.POINTER(_Span))
            self._device.trace_length = len(spans)


def _statistics(stats: _Stats, spans: ctypes.Array[_Span] | None, count: int) -> Statistics:
    engines = {}
    for engine, counted in zip(Engine, stats.engines, strict=True):
        values = {name: int(getattr(counted, name)) for name in _ENGINE_COUNTS}
        engines[engine] = EngineStatistics(**values, energy_pj=counted.energy_fj / 1000)
    trace = tuple((span.start, span.end) for span in spans[:count]) if spans else ()
    return Statistics(stats.cycles, engines, stats.dram_burst_bytes, stats.energy_fj / 1000, trace)
