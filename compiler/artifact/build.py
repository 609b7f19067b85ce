"""Turn a program into the files of an artifact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tilewright.compiler.artifact.c_source import (
    model_header,
    model_source,
    stream_files,
    streams_assembly,
    uses_npu,
    weights_assembly,
)
from tilewright.compiler.artifact.layout import (
    BOARD,
    BOARD_LIBRARY,
    REPORT,
    TARGET,
    WEIGHTS,
    c_name,
)
from tilewright.compiler.artifact.libraries import (
    build_board_library,
    build_host_library,
    runtime_files,
)
from tilewright.compiler.artifact.manifest import (
    describe_board,
    describe_host,
    make_manifest,
    seal,
)
from tilewright.compiler.artifact.toolchain import board_compiler, host_compiler
from tilewright.compiler.program import Program
from tilewright.targets import simulator
from tilewright.targets.description import parse_target

_SIMULATOR = Path(simulator.__file__).parent


def build_artifact(program: Program, artifact: Path) -> None:
    """Fill the empty directory `artifact`. The same program gives the same bytes.

    Raises ArtifactError where no C compiler is found or the code cannot be linked.
    """
    target = parse_target(program.target_toml, TARGET)
    for name, content in _files(program).items():
        path = artifact / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    host = _build_host(program, artifact)
    board = _build_board(program, artifact, target.cpu.c_compiler)
    seal(make_manifest(program, target.name, host, board), artifact)


def make_report(program: Program) -> dict[str, Any]:
    """What report.json holds."""
    return {
        "operators": list(program.operators),
        "totals": program.totals,
        "notes": list(program.notes),
    }


def _files(program: Program) -> dict[str, bytes]:
    board = program.board or program.host
    files = {
        REPORT: (json.dumps(make_report(program), indent=2) + "\n").encode(),
        TARGET: program.target_toml.encode(),
        WEIGHTS: program.weights,
        f"{BOARD}/model.h": model_header(program).encode(),
        f"{BOARD}/model.c": model_source(program).encode(),
        f"{BOARD}/weights.S": weights_assembly(program).encode(),
        f"{BOARD}/streams.S": streams_assembly(program).encode(),
        **stream_files(program),
        **runtime_files(uses_npu(program)),
    }
    if board.code:
        files[f"{BOARD}/kernels.o"] = board.code
    if uses_npu(program):
        files |= {f"{BOARD}/{name}": data for name, data in _simulator_files().items()}
    return files


def _simulator_files() -> dict[str, bytes]:
    """The reference NPU driver in C, by file name."""
    paths = sorted(path for path in _SIMULATOR.iterdir() if path.suffix in (".c", ".h"))
    return {path.name: path.read_bytes() for path in paths}


def _npu_sources(program: Program) -> list[str]:
    return [name for name in _simulator_files() if name.endswith(".c")] if uses_npu(program) else []


def _build_host(program: Program, artifact: Path) -> dict[str, Any]:
    compiler = host_compiler()
    build_host_library(
        artifact, c_name(program.name), program.host.code, compiler, _npu_sources(program)
    )
    return describe_host(program.host, compiler.version())


def _build_board(program: Program, artifact: Path, asked_compiler: str | None) -> dict[str, Any]:
    """The board's library, or a manifest entry that says what is missing to build it."""
    objects = program.board or program.host
    compiler = board_compiler(objects.triple, asked_compiler)
    if isinstance(compiler, str):
        return describe_board(objects, None, None, compiler)
    missing = build_board_library(
        artifact, c_name(program.name), compiler, _npu_sources(program), "linux" in objects.triple
    )
    library = BOARD_LIBRARY if missing is None else None
    return describe_board(objects, compiler.version(), library, missing)
