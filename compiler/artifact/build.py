"""Turn a program into the files of an artifact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tilewright.compiler.artifact.board_memory import measure_memory, predict_memory
from tilewright.compiler.artifact.c_source import (
    machine_definition,
    main_source,
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
    QUANTIZED,
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
from tilewright.compiler.artifact.preprocess_source import preprocess_files
from tilewright.compiler.artifact.toolchain import (
    board_compiler,
    host_compiler,
    is_this_machine,
)
from tilewright.compiler.program import NpuCall, Program
from tilewright.schedules.backends import backend_of
from tilewright.targets.description import Npu, parse_target
from tilewright.targets.errors import ArtifactError

_MACHINE = "npu_machine.c"


def build_artifact(program: Program, artifact: Path) -> None:
    """Fill the empty directory `artifact`. The same program gives the same bytes.

    Raises ArtifactError where no C compiler is found or the code cannot be linked.
    """
    target = parse_target(program.target_toml, TARGET)
    workspace_bytes = _npu_workspace_bytes(program, target.npu)
    for name, content in _files(program, target.npu, workspace_bytes).items():
        path = artifact / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    host = _build_host(program, artifact)
    board, memory = _build_board(program, artifact, target.cpu.c_compiler, workspace_bytes)
    _write_report(program, memory, artifact)
    manifest = make_manifest(program, target.name, host, board, workspace_bytes)
    seal(manifest, artifact)


def _write_report(program: Program, memory: dict[str, Any], artifact: Path) -> None:
    report = {
        "operators": list(program.operators),
        "totals": program.totals,
        "memory": memory,
        "notes": list(program.notes),
        "timeline": [vars(span) for span in program.timeline],
    }
    (artifact / REPORT).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _files(program: Program, npu: Npu | None, workspace_bytes: int) -> dict[str, bytes]:
    board = program.board or program.host
    files = {
        TARGET: program.target_toml.encode(),
        WEIGHTS: program.weights,
        f"{BOARD}/model.h": model_header(program, workspace_bytes).encode(),
        f"{BOARD}/model.c": model_source(program).encode(),
        f"{BOARD}/main.c": main_source(program).encode(),
        f"{BOARD}/weights.S": weights_assembly(program).encode(),
        f"{BOARD}/streams.S": streams_assembly(program).encode(),
        **stream_files(program),
        **runtime_files(uses_npu(program)),
        **preprocess_files(program),
    }
    if program.source:
        files[QUANTIZED] = program.source
    if board.code:
        files[f"{BOARD}/kernels.o"] = board.code
    if npu is not None and uses_npu(program):
        files[f"{BOARD}/{_MACHINE}"] = machine_definition(program, npu).encode()
        driver = backend_of(npu).driver_files(npu)
        files |= {f"{BOARD}/{path.name}": path.read_bytes() for path in driver}
    return files


def _npu_sources(program: Program) -> list[str]:
    """The simulated NPU in C; nothing for a model that uses none."""
    npu = parse_target(program.target_toml, TARGET).npu
    if npu is None or not uses_npu(program):
        return []
    driver = backend_of(npu).driver_files(npu)
    return [_MACHINE, *(path.name for path in driver if path.suffix == ".c")]


def _npu_workspace_bytes(program: Program, npu: Npu | None) -> int:
    """What the simulator needs for the most demanding command stream."""
    streams = [step.stream for step in program.steps if isinstance(step, NpuCall)]
    if npu is None:
        assert not streams, "a command stream for a board without an NPU"
        return 0
    backend = backend_of(npu)
    return max((backend.workspace_bytes(npu, stream) for stream in streams), default=0)


def _build_host(program: Program, artifact: Path) -> dict[str, Any]:
    compiler = host_compiler()
    build_host_library(
        artifact, c_name(program.name), program.host.code, compiler, _npu_sources(program)
    )
    return describe_host(program.host, compiler.version(), simulates=uses_npu(program))


def _build_board(
    program: Program, artifact: Path, asked_compiler: str | None, workspace_bytes: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The board's library, or a manifest entry that says what is missing; the memory it takes."""
    objects = program.board or program.host
    predicted = predict_memory(program, workspace_bytes)
    compiler = board_compiler(objects.triple, objects.cpu, asked_compiler)
    if isinstance(compiler, str):
        return describe_board(objects, None, None, compiler), predicted
    linux = "linux" in objects.triple
    try:
        version = compiler.version()
        members = build_board_library(
            artifact, c_name(program.name), compiler, _npu_sources(program), linux
        )
        memory = measure_memory(program, artifact, compiler, members, workspace_bytes)
    except ArtifactError as error:
        if is_this_machine(objects.triple):
            raise
        # The sources are good, or this machine's library would not stand; the tools are not.
        return describe_board(objects, None, None, str(error)), predicted
    return describe_board(objects, version, BOARD_LIBRARY, None), memory
