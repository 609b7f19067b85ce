"""Read an artifact back and run it: arrays in by name, arrays out by name."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilewright.compiler.artifact.arguments import port_view, write_inputs
from tilewright.compiler.artifact.build import build_artifact
from tilewright.compiler.artifact.dispatch import IN_FLIGHT, WAITING, Dispatcher
from tilewright.compiler.artifact.host_machine import check_machine
from tilewright.compiler.artifact.layout import MANIFEST, REPORT
from tilewright.compiler.artifact.manifest import (
    Manifest,
    check_files,
    read_manifest,
)
from tilewright.compiler.artifact.native import Model, aligned_bytes
from tilewright.compiler.artifact.scratch import Scratch
from tilewright.compiler.artifact.write import (
    disk_errors,
    read_tar,
    write_artifact,
    write_tar,
)
from tilewright.compiler.program import Program
from tilewright.targets.description import Target, load_target
from tilewright.targets.errors import ArtifactError

if TYPE_CHECKING:
    from tilewright.compiler.quantize import Quantized

Array = NDArray[Any]


def load_artifact(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    target: str | os.PathLike[str] | None = None,
) -> Artifact:
    """The artifact in a directory or a .tar; `threads` defaults to the CPUs this process may use.

    Raises ArtifactError when it is missing, damaged, of another schema version, for another
    machine, or, where a `target` is named, compiled for another description than that.
    """
    place = Path(path)
    if not place.exists():
        raise ArtifactError(f"{place}: no such artifact; make one with tilewright compile")
    if place.is_dir():
        artifact = Artifact(place, threads=threads)
    else:
        unpacked = Scratch()
        read_tar(place, unpacked.path)
        artifact = Artifact(unpacked.path, threads=threads, scratch=unpacked)
    if target is not None:
        _check_target(artifact.manifest, load_target(target), place)
    return artifact


def _check_target(manifest: Manifest, target: Target, place: Path) -> None:
    compiled_for = manifest["target"]
    if compiled_for["sha256"] != hashlib.sha256(target.source.encode()).hexdigest():
        which = (
            "another description of it"
            if compiled_for["name"] == target.name
            else f"{compiled_for['name']}"
        )
        raise ArtifactError(
            f"{place}: was compiled for {which}, not for {target.name} as it is described now; "
            "compile the model again"
        )


def make_artifact(program: Program, *, threads: int | None = None) -> Artifact:
    """The program as an artifact in a temporary directory, until `save` gives it a place."""
    scratch = Scratch()
    with disk_errors(scratch.path):
        build_artifact(program, scratch.path)
    return Artifact(scratch.path, threads=threads, scratch=scratch)


class Artifact:
    """A compiled model that can be run here, looked into and saved.

    Runs of one artifact take turns; several artifacts run side by side.
    """

    def __init__(
        self,
        directory: Path,
        *,
        threads: int | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        """`scratch` is what holds the files where nobody has given them a place."""
        self.directory = directory
        self.manifest: Manifest = read_manifest(directory)
        check_files(self.manifest, directory)
        check_machine(self.manifest["host"], directory)
        self.report: dict[str, Any] = json.loads((directory / REPORT).read_text(encoding="utf-8"))
        self.threads = _thread_count(threads)
        self.quantized: Quantized | None = None  # what compile_model(calibration=...) found
        self.verification: object = None  # what compile_model(verify=True) compared
        self._scratch = scratch
        self._turn = threading.Lock()
        self._dispatcher: Dispatcher | None = None
        arena = self.manifest["arena"]
        self._arena = aligned_bytes(arena["bytes"], arena["alignment"])
        self._model = Model(directory, self.manifest, self._arena, self.threads)

    def run(self, inputs: Mapping[str, ArrayLike] | None = None) -> dict[str, Array]:
        """The outputs by name, as copies. Without `inputs`, what `input(name)` was filled with.

        Any memory order will do; names, shapes and dtypes must be the model's, or ArtifactError
        says what is expected.
        """
        with self._turn:
            if inputs is not None:
                write_inputs(self.manifest, self._arena, inputs)
            self._model.run()
            return {port["name"]: self._view(port).copy() for port in self.manifest["outputs"]}

    def run_async(
        self, inputs: Mapping[str, ArrayLike] | Callable[[], Mapping[str, ArrayLike]]
    ) -> Future[dict[str, Array]]:
        """The outputs to come; see `dispatch`, whose usual numbers this takes.

        A function as `inputs`, such as preprocessing, runs beside another request's inference.
        """
        with self._turn:
            if self._dispatcher is None:
                self._dispatcher = self.dispatch()
        return self._dispatcher.submit(inputs)

    def dispatch(self, *, in_flight: int = IN_FLIGHT, waiting: int = WAITING) -> Dispatcher:
        """A dispatcher with this many requests in flight, each with its own arena, and as many
        waiting. Close it, or use it in a `with` statement.
        """
        return Dispatcher(
            self.directory, self.manifest, self.threads, in_flight=in_flight, waiting=waiting
        )

    def input(self, name: str) -> Array:
        """The input's place in the arena, to be filled before each run: running reuses it."""
        return self._view(self._port("inputs", name))

    def output(self, name: str) -> Array:
        """The output's place in the arena, good until the next run."""
        return self._view(self._port("outputs", name))

    def run_until(self, steps: int) -> None:
        """Run the first `steps` steps on what the inputs were filled with.

        Looked at through `tensor`, a value is good from the step that wrote it until its memory
        is reused. Raises ArtifactError for a step the model has not got.
        """
        with self._turn:
            self._model.run_until(steps)

    def tensor(self, offset: int, shape: Sequence[int], dtype: str) -> Array:
        """A view of the arena as a dense tensor at byte `offset`."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        return self._view({"offset": offset, "bytes": size, "shape": shape, "dtype": dtype})

    def statistics(self) -> dict[str, int]:
        """What the simulated NPU counted in the last run; empty for a model that uses none.

        `cycles`, `macs`, `dram_bytes` (whole bursts) and `energy_fj` (femtojoules).
        """
        if not self.manifest["npu_workspace_bytes"]:
            return {}
        totals = self._model.npu_totals()
        return {field[0]: getattr(totals, field[0]) for field in totals._fields_}

    def save(self, directory: str | os.PathLike[str], *, tar: bool = False) -> None:
        """Write the files to `directory`, and with `tar` to `directory`.tar as well."""
        destination = Path(directory)
        write_artifact(destination, self._copy)
        if tar:
            write_tar(destination, destination.with_name(f"{destination.name}.tar"))

    def close(self) -> None:
        """End the worker threads and remove temporary files; the artifact cannot run any more."""
        if self._dispatcher is not None:
            self._dispatcher.close()
        self._model.close()
        if self._scratch is not None:
            self._scratch.remove()

    def __enter__(self) -> Artifact:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_model") and not sys.is_finalizing():
            self.close()

    def _copy(self, fresh: Path) -> None:
        for name in (MANIFEST, *self.manifest["files"]):
            (fresh / name).parent.mkdir(exist_ok=True, parents=True)
            shutil.copyfile(self.directory / name, fresh / name)

    def _view(self, port: Mapping[str, Any]) -> Array:
        return port_view(self._arena, port)

    def _port(self, kind: str, name: str) -> Mapping[str, Any]:
        for port in self.manifest[kind]:
            if port["name"] == name:
                return dict(port)
        names = ", ".join(port["name"] for port in self.manifest[kind])
        raise ArtifactError(
            f"{self.manifest['name']}: has no {kind[:-1]} {name!r}; its {kind} are {names}"
        )


def _thread_count(asked: int | None) -> int:
    if asked is None:
        return len(os.sched_getaffinity(0))
    if asked < 1:
        raise ArtifactError(f"{asked} threads cannot run a model; ask for 1 or more")
    return asked
