"""Compile an artifact's C code: one shared library for this machine, one archive for the board.

Both hold the runtime, the tables of model.c and the kernels, and show nothing but the names of
model.h, so that any number of models fit in one program.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tilewright.compiler.artifact.c_source import RUNTIME
from tilewright.compiler.artifact.elf import ElfObject
from tilewright.compiler.artifact.layout import (
    BOARD,
    BOARD_LIBRARY,
    BOARD_SHARED_LIBRARY,
    HOST_LIBRARY,
)
from tilewright.compiler.artifact.static_archive import static_archive
from tilewright.compiler.artifact.toolchain import Compiler
from tilewright.targets.errors import TargetError

# A contracted multiply-add would round once where the arithmetic says twice.
_FLAGS = ("-std=c99", "-O2", "-g0", "-ffp-contract=off")

_MODEL_NAMES = [
    "init",
    "run",
    "run_until",
    "error",
    "input",
    "input_at",
    "output",
    "output_at",
    "input_tensor",
    "output_tensor",
    "context_bytes",
    "npu_totals",
]
_PREPROCESS = "preprocess"  # of models that say how their pictures are prepared
_POOL_NAMES = ("bytes", "start", "stop", "run")
_MODEL_SOURCES = ("model.c", "model_runtime.c", "streams.S")
_NPU_STEP = "npu_step.c"
_NPU_DEVICE = "npu_device.c"


def build_host_library(
    artifact: Path, name: str, kernels: bytes, compiler: Compiler, npu_sources: Sequence[str]
) -> None:
    """host/libmodel.so, from the sources in board/ and this machine's kernels.

    `npu_sources` are the simulator's, in board/ as well; none for a model that uses no NPU.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = _workshop(artifact, Path(scratch))
        sources = [*_model_sources(npu_sources), "thread_pool.c"]
        objects = _compile(compiler, sources, folder, ("-fPIC",))
        if npu_sources:
            fast = ("-O3", "-march=native") if compiler.accepts("-march=native") else ("-O3",)
            simulator = [*npu_sources, _NPU_DEVICE]
            objects += _compile(compiler, simulator, folder, ("-fPIC", *fast))
        objects += _kernels(kernels, folder)
        shown = [*_shown(name, npu_sources), *(["tilewright_npu_device_bytes"] * bool(npu_sources))]
        _link_shared(compiler, folder, objects, shown)
        (artifact / HOST_LIBRARY).parent.mkdir(exist_ok=True)
        shutil.copyfile(folder / "libmodel.so", artifact / HOST_LIBRARY)


def build_board_library(
    artifact: Path, name: str, compiler: Compiler, npu_sources: Sequence[str], linux: bool
) -> dict[str, bytes]:
    """board/libmodel.a, its kernels from board/kernels.o; on Linux board/libmodel.so as well.

    Weights, thread pool and NPU driver are members of their own: a program that brings its own
    does not link them. Returns the members.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = _workshop(artifact, Path(scratch))
        flags: tuple[str, ...] = ("-ffunction-sections", "-fdata-sections")
        # Searched last, so only where the compiler has no C library.
        flags += ("-fPIC",) if linux else ("-idirafter", "freestanding")
        objects = _compile(compiler, _model_sources(npu_sources), folder, flags)
        if (folder / "kernels.o").exists():
            _check_machine(compiler, folder)
            objects.append("kernels.o")
        compiler.run(["-r", "-nostdlib", "-o", "whole.o", *objects], folder)
        shown = {f"{name}_{function}" for function in (*_MODEL_NAMES, _PREPROCESS)}
        model = ElfObject((folder / "whole.o").read_bytes()).showing_only(shown.__contains__)
        others = ["weights.S", *(["thread_pool.c"] if linux else []), *npu_sources]
        members = {"model.o": model}
        for member in _compile(compiler, others, folder, flags):
            members[member] = (folder / member).read_bytes()
        (artifact / BOARD_LIBRARY).write_bytes(static_archive(members))
        if linux:
            (folder / "model.o").write_bytes(model)
            _link_shared(compiler, folder, list(members), _shown(name, npu_sources))
            shutil.copyfile(folder / "libmodel.so", artifact / BOARD_SHARED_LIBRARY)
        return members


def _check_machine(compiler: Compiler, folder: Path) -> None:
    """Raise TargetError where compiler and description are not of one machine."""
    made, wanted = (
        ElfObject((folder / name).read_bytes()).machine for name in ("model.o", "kernels.o")
    )
    if made != wanted:
        raise TargetError(
            f"{compiler.name} makes code for {made}, [cpu] triple is of {wanted}; "
            "correct triple or c_compiler"
        )


def _shown(name: str, npu_sources: Sequence[str]) -> list[str]:
    """What a shared library lets others see."""
    # The star: a name that is not there is an error to some linkers, a pattern never.
    names = [*(f"{name}_{function}" for function in _MODEL_NAMES), f"{name}_{_PREPROCESS}*"]
    names += [f"tilewright_pool_{function}" for function in _POOL_NAMES]
    return [*names, f"{name}_weights", *([f"{name}_npu_machine", "npu_*"] if npu_sources else [])]


def _link_shared(
    compiler: Compiler, folder: Path, objects: Sequence[str], shown: Sequence[str]
) -> None:
    """libmodel.so in `folder`."""
    (folder / "shown.map").write_text(f"{{ global: {'; '.join(shown)}; local: *; }};\n")
    link = ["-shared", "-s", "-Wl,--build-id=none", "-Wl,--version-script=shown.map"]
    link += ["-Wl,-z,defs", "-o", "libmodel.so", *objects, "-lm", "-lpthread"]
    compiler.run(link, folder)


def _model_sources(npu_sources: Sequence[str]) -> list[str]:
    return [*_MODEL_SOURCES, *([_NPU_STEP] if npu_sources else [])]


def _workshop(artifact: Path, scratch: Path) -> Path:
    """A copy of board/ to compile in, so that only what is meant to be kept gets back."""
    shutil.copytree(RUNTIME / "host", scratch / BOARD)
    shutil.copytree(RUNTIME / "freestanding", scratch / BOARD / "freestanding")
    return shutil.copytree(artifact / BOARD, scratch / BOARD, dirs_exist_ok=True)


def _compile(
    compiler: Compiler, sources: Sequence[str], folder: Path, flags: Sequence[str]
) -> list[str]:
    """Their object files, as many at a time as there are CPUs."""
    objects = [f"{Path(source).stem}.o" for source in sources]
    commands = [
        [*_FLAGS, *flags, "-c", source, "-o", target]
        for source, target in zip(sources, objects, strict=True)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(lambda command: compiler.run(command, folder), commands):
            pass
    return objects


def _kernels(code: bytes, folder: Path) -> list[str]:
    if not code:
        return []
    (folder / "host_kernels.o").write_bytes(code)
    return ["host_kernels.o"]


def runtime_files(npu: bool) -> dict[str, bytes]:
    """The runtime's C files by their place in an artifact, those for the NPU where it has one."""
    names = sorted(path.name for path in RUNTIME.iterdir() if path.suffix in (".c", ".h"))
    return {
        f"{BOARD}/{name}": (RUNTIME / name).read_bytes()
        for name in names
        if npu or not name.startswith("npu_")
    }
