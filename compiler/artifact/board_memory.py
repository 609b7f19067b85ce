"""What a model takes of the board's flash and RAM: predicted from its parts, and as linked.

Predicted is the sum of what was compiled, part by part. Linked is a program that holds the model
and the memory it is lent, and nothing else: empty labels stand for the C library, and there is no
code of the user's. The two differ by the gaps that alignment needs, by equal strings that the
linker keeps once, and by tables of addresses that some linkers add.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.compiler.artifact.elf import ElfObject, LoadedBytes
from tilewright.compiler.artifact.layout import BOARD_LIBRARY, c_name
from tilewright.compiler.artifact.toolchain import Compiler
from tilewright.compiler.program import NpuCall, Program

_POOL = "thread_pool.o"  # only for programs that ask for it
_OF_THE_MODEL = ("model.o", "weights.o")
_OF_LINKERS = {"_GLOBAL_OFFSET_TABLE_"}


def predict_memory(program: Program, workspace_bytes: int) -> dict[str, Any]:
    """For the report where no C compiler for the board was there; null for what it would make."""
    board = program.board or program.host
    flash: dict[str, int | None] = {
        "weights": len(program.weights),
        "streams": sum(len(step.stream) for step in program.steps if isinstance(step, NpuCall)),
        "kernels": ElfObject(board.code).loaded_bytes().flash if board.code else 0,
        "runtime": None,
        "npu_simulator": None if workspace_bytes else 0,
    }
    ram: dict[str, int | None] = {
        "arena": program.arena_bytes,
        "context": None,
        "npu_workspace": workspace_bytes,
        "npu_device": None if workspace_bytes else 0,
    }
    return {"flash": flash, "ram": ram, "predicted": None, "linked": None}


def measure_memory(
    program: Program,
    artifact: Path,
    compiler: Compiler,
    members: Mapping[str, bytes],
    workspace_bytes: int,
) -> dict[str, Any]:
    """`predict_memory` made whole: `members` are those of board/libmodel.a."""
    memory = predict_memory(program, workspace_bytes)
    flash, ram = memory["flash"], memory["ram"]
    objects = {name: ElfObject(data) for name, data in members.items() if name != _POOL}
    taken = {name: one.loaded_bytes() for name, one in objects.items()}
    known = flash["streams"] + flash["kernels"]
    flash["runtime"] = taken["model.o"].flash - known
    simulator = [size.flash for name, size in taken.items() if name not in _OF_THE_MODEL]
    flash["npu_simulator"] = sum(simulator)
    written = sum(size.written for size in taken.values())
    defined = {name for one in objects.values() for name in one.shown()}
    outside = {name for one in objects.values() for name in one.wanted()} - defined - _OF_LINKERS
    linked, lent = _link(program, artifact, compiler, outside, workspace_bytes)
    ram |= {name: lent.get(name, 0) for name in ("context", "npu_device")}
    ram["relocated"] = written  # tables of addresses that a loader with random addresses fills
    memory["predicted"] = {"flash": sum(flash.values()), "ram": sum(ram.values())}
    memory["linked"] = {"flash": linked.flash, "ram": linked.ram}
    return memory


def _link(
    program: Program,
    artifact: Path,
    compiler: Compiler,
    outside: set[str],
    workspace_bytes: int,
) -> tuple[LoadedBytes, dict[str, int]]:
    """A program of the model and its memory alone, and the sizes of what it is lent."""
    name = c_name(program.name)
    sizes = {"arena": f"{name}_ARENA_BYTES", "context": "sizeof(tilewright_context)"}
    wanted = [f"{name}_init", f"{name}_weights"]
    includes = ['#include "model.h"']
    if workspace_bytes:
        sizes |= {
            "npu_workspace": f"{name}_NPU_WORKSPACE_BYTES",
            "npu_device": "sizeof(npu_device)",
        }
        wanted += ["npu_simulator_init", f"{name}_npu_machine"]
        includes.append('#include "npu_simulator.h"')
    arrays = [f"unsigned char memory_{part}[({size}) + !({size})];" for part, size in sizes.items()]
    labels = [
        f'__asm__(".text\\n.global {one}\\n.type {one}, %function\\n{one}:");'
        for one in sorted(outside)
    ]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "memory.c").write_text("\n".join([*includes, *arrays, *labels]) + "\n")
        board = str((artifact / BOARD_LIBRARY).parent.absolute())
        compiler.run(["-std=c99", "-g0", f"-I{board}", "-c", "memory.c", "-o", "memory.o"], folder)
        compiler.run(
            [
                *("-nostdlib", "-static", "memory.o", *(f"-Wl,-u,{one}" for one in wanted)),
                *(str((artifact / BOARD_LIBRARY).absolute()), "-Wl,--build-id=none"),
                *(f"-Wl,-e,{name}_init", "-o", "program"),
            ],
            folder,
        )
        program_file = ElfObject((folder / "program").read_bytes())
        found = program_file.symbol_sizes()
        lent = {part: found[f"memory_{part}"] for part in sizes}
        return program_file.loaded_bytes(), lent
