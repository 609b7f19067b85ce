"""The C interface of a model (board/model.h) as Python sees it, through ctypes."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.compiler.artifact.layout import HOST_LIBRARY, WEIGHTS
from tilewright.targets.errors import ArtifactError

Bytes = NDArray[np.uint8]


class _Resources(ctypes.Structure):
    """tilewright_resources."""

    _fields_ = (
        ("arena", ctypes.c_void_p),
        ("arena_bytes", ctypes.c_size_t),
        ("weights", ctypes.c_void_p),
        ("weight_bytes", ctypes.c_size_t),
        ("npu", ctypes.c_void_p),
        ("runner", ctypes.c_void_p),
        ("runner_data", ctypes.c_void_p),
    )


class NpuTotals(ctypes.Structure):
    """tilewright_npu_totals: cycles, MACs, bytes over the DRAM channel, femtojoules."""

    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cycles", "macs", "dram_bytes", "energy_fj")
    )


class Model:
    """One loaded libmodel.so with a context of its own; all memory it uses is held here."""

    def __init__(
        self, directory: Path, manifest: Mapping[str, Any], arena: Bytes, threads: int
    ) -> None:
        self._library = _open(directory / HOST_LIBRARY)
        self._name: str = manifest["c_name"]
        self._arena = arena
        self._weights = map_file(directory / WEIGHTS)
        self._threads = threads
        self._npu_workspace = aligned_bytes(manifest["npu_workspace_bytes"], 64)
        self._npu = self._start_npu()
        self._pool_memory = np.empty(0, np.uint8)
        self._pool = 0
        self._process = 0
        self._is_closed = False
        self._context = np.zeros(self._size("context_bytes"), np.uint8)
        self._start()

    def run(self) -> None:
        """Raises ArtifactError with the model's own words when a step fails."""
        self._ready()
        self._check(self._function("run")(_address(self._context)))

    def run_until(self, steps: int) -> None:
        self._ready()
        self._check(self._function("run_until")(_address(self._context), steps))

    def npu_totals(self) -> NpuTotals:
        """What the NPU counted in the last run."""
        totals = self._function("npu_totals")
        totals.restype = NpuTotals
        counted = totals(_address(self._context))
        assert isinstance(counted, NpuTotals)
        return counted

    def close(self) -> None:
        """Ends the worker threads; the model can not run any more."""
        if self._pool and self._process == os.getpid():
            self._library.tilewright_pool_stop(ctypes.c_void_p(self._pool))
        self._pool = 0
        self._is_closed = True

    def _ready(self) -> None:
        """A forked process has none of its parent's threads and starts its own."""
        if self._is_closed:
            raise ArtifactError(f"{self._name}: was closed and cannot run; load it again")
        if self._process != os.getpid():
            self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._start_pool()
        runner = ctypes.cast(self._library.tilewright_pool_run, ctypes.c_void_p).value
        resources = _Resources(
            arena=_address(self._arena),
            arena_bytes=self._arena.size,
            weights=_address(self._weights),
            weight_bytes=self._weights.size,
            npu=_address(self._npu),
            runner=runner if self._pool else None,
            runner_data=self._pool or None,
        )
        self._check(self._function("init")(_address(self._context), ctypes.byref(resources)))

    def _start_npu(self) -> Bytes:
        """A simulated NPU, or nothing for a model that uses none."""
        if not self._npu_workspace.size:
            return np.empty(0, np.uint8)
        size = self._library.tilewright_npu_device_bytes
        size.restype = ctypes.c_size_t
        device = aligned_bytes(size(), 64)
        machine = (ctypes.c_char * 0).in_dll(self._library, f"{self._name}_npu_machine")
        self._library.npu_simulator_init(
            _address(device),
            ctypes.byref(machine),
            _address(self._npu_workspace),
            ctypes.c_size_t(self._npu_workspace.size),
        )
        return device

    def _start_pool(self) -> None:
        if self._threads == 1:
            return
        size = self._library.tilewright_pool_bytes
        size.restype = ctypes.c_size_t
        self._pool_memory = aligned_bytes(size(self._threads), 64)
        start = self._library.tilewright_pool_start
        start.restype = ctypes.c_void_p
        memory = _address(self._pool_memory)
        pool = start(memory, ctypes.c_size_t(self._pool_memory.size), self._threads)
        if not pool:
            raise ArtifactError(
                f"{self._name}: the system starts no {self._threads} threads; ask for fewer"
            )
        self._pool = int(pool)

    def _check(self, status: int) -> None:
        if status != 0:
            describe = self._function("error")
            describe.restype = ctypes.c_char_p
            message = describe(_address(self._context)) or b"unknown failure"
            raise ArtifactError(message.decode(errors="replace"))

    def _size(self, function: str) -> int:
        count = self._function(function)
        count.restype = ctypes.c_size_t
        return int(count())

    def _function(self, function: str) -> Any:
        return getattr(self._library, f"{self._name}_{function}")


def aligned_bytes(size: int, alignment: int) -> Bytes:
    """Zeroed memory whose address is a multiple of `alignment`."""
    memory = np.zeros(size + alignment, np.uint8)
    start = -memory.ctypes.data % alignment
    return memory[start : start + size]


def map_file(path: Path) -> Bytes:
    """The file's bytes, read-only and shared with every process that maps it."""
    if path.stat().st_size == 0:
        return np.empty(0, np.uint8)
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def _open(library: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(library.absolute()))
    except OSError as error:
        raise ArtifactError(f"{library}: cannot be loaded: {error}") from error


def _address(array: Bytes) -> ctypes.c_void_p:
    """NULL for no bytes: numpy gives an empty array any address."""
    return ctypes.c_void_p(array.ctypes.data if array.size else None)
