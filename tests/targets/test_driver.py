"""The driver interface from C: strict C99 without a library, C++, two devices in one program."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.targets.programs import (
    ARENA_BYTES,
    CONSTANTS_BYTES,
    ProgramMaker,
    make_stream,
    random_memory,
    small_npu,
)
from tilewright.targets import load_target
from tilewright.targets.errors import TilewrightError
from tilewright.targets.simulator import SOURCES, Simulator, machine_source
from tilewright.targets.simulator.build import simulator_library

SIMULATOR = SOURCES[0].parent

MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "npu_simulator.h"
#include "machine.h"

static unsigned char constants[CONSTANTS], arena[ARENA], other_arena[ARENA];

int main(void) {
  static npu_device device, other;
  size_t bytes = npu_workspace_bytes(&machine, stream, sizeof stream);
  void *workspace = malloc(bytes), *other_workspace = malloc(bytes);
  npu_simulator_init(&device, &machine, workspace, bytes);
  npu_simulator_init(&other, &machine, other_workspace, bytes - 1);
  memcpy(arena, initial_arena, ARENA);
  memcpy(constants, initial_constants, CONSTANTS);
  if (npu_run(&device, stream, sizeof stream, constants, CONSTANTS, arena, ARENA) != NPU_OK)
    return puts(npu_error(&device)), 1;
  if (npu_run(&other, stream, sizeof stream, constants, CONSTANTS, other_arena, ARENA) !=
      NPU_TOO_SMALL)
    return 2;
  printf("%llu\\n%s\\n", (unsigned long long)npu_last_stats(&device)->cycles, npu_error(&other));
  fwrite(arena, 1, ARENA, stdout);
  return npu_error(&device)[0] != 0;
}
"""


def c_array(name: str, data: bytes) -> str:
    return f"static const unsigned char {name}[] = {{{','.join(map(str, data))}}};\n"


def compile_and_run(folder: Path, *flags: str) -> bytes:
    (folder / "main.c").write_text(MAIN)
    command = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", *flags, f"-I{SIMULATOR}"]
    sources = ["main.c", *map(str, SOURCES)]
    subprocess.run([*command, *sources, "-o", "main"], cwd=folder, check=True)
    return subprocess.run(["./main"], cwd=folder, check=True, capture_output=True).stdout


@pytest.mark.parametrize("flags", [("-O2",), ("-g", "-fsanitize=address,undefined")])
def test_a_c_program_runs_a_stream_as_python_does(tmp_path: Path, flags: tuple[str, ...]) -> None:
    rng = np.random.default_rng(5)
    npu = small_npu(rng)
    stream = make_stream(npu, ProgramMaker(npu, rng).program(12))
    constants = (rng.random(CONSTANTS_BYTES // 4) * 0.002).astype(np.float32).tobytes()
    arena = random_memory(rng, ARENA_BYTES)
    (tmp_path / "machine.h").write_text(
        f"enum {{ CONSTANTS = {CONSTANTS_BYTES}, ARENA = {ARENA_BYTES} }};\n"
        + machine_source(npu, "machine")
        + c_array("stream", stream)
        + c_array("initial_constants", constants)
        + c_array("initial_arena", bytes(arena))
    )
    output = compile_and_run(tmp_path, *flags)
    statistics = Simulator(npu).run(stream, constants, arena)
    cycles, error, bytes_ = output.split(b"\n", 2)
    assert int(cycles) == statistics.cycles
    assert error == b"command stream: needs a larger workspace; see npu_workspace_bytes"
    assert bytes_ == bytes(arena)


def test_the_sources_are_strict_and_need_no_hosted_library(tmp_path: Path) -> None:
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-ffreestanding"]
    for source in SOURCES:
        subprocess.run(
            ["cc", *flags, "-O2", "-c", str(source), "-o", f"{source.stem}.o"],
            cwd=tmp_path,
            check=True,
        )
    objects = [f"{source.stem}.o" for source in SOURCES]
    subprocess.run(["ld", "-r", *objects, "-o", "all.o"], cwd=tmp_path, check=True)
    listing = subprocess.run(
        ["nm", "-u", "all.o"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    allowed = {"memcpy", "memmove", "memset", "memcmp", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_"}
    assert {line.split()[-1] for line in listing.stdout.splitlines()} <= allowed


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_the_headers_are_cpp_too(tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(
        '#include "npu_simulator.h"\nint main() { return npu_run != nullptr ? 0 : 1; }\n'
    )
    objects = []
    for source in SOURCES:
        objects.append(f"{source.stem}.o")
        subprocess.run(
            ["cc", "-std=c99", "-c", str(source), "-o", objects[-1]], cwd=tmp_path, check=True
        )
    subprocess.run(
        ["c++", f"-I{SIMULATOR}", "main.cpp", *objects, "-o", "main"], cwd=tmp_path, check=True
    )
    subprocess.run(["./main"], cwd=tmp_path, check=True)


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    simulator_library.cache_clear()
    yield tmp_path / "cache" / "tilewright"
    simulator_library.cache_clear()


def test_the_library_is_compiled_once(fresh_cache: Path) -> None:
    simulator_library()
    [library] = fresh_cache.iterdir()
    built = library.stat().st_mtime_ns
    simulator_library.cache_clear()
    simulator_library()
    assert [path.stat().st_mtime_ns for path in fresh_cache.iterdir()] == [built]


def test_without_a_compiler(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    npu = load_target("mcu-16").npu
    assert npu is not None
    with pytest.raises(TilewrightError, match=r"simulator: no C compiler .* install one"):
        Simulator(npu)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(TilewrightError, match="CC=no-such-compiler is not there"):
        Simulator(npu)


def test_a_compiler_that_fails(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    npu = load_target("mcu-16").npu
    assert npu is not None
    with pytest.raises(TilewrightError, match=r"simulator: .*false failed"):
        Simulator(npu)
    assert list(fresh_cache.iterdir()) == []


def test_a_cache_that_cannot_be_written(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    npu = load_target("mcu-16").npu
    assert npu is not None
    with pytest.raises(TilewrightError, match=r"file/tilewright .*cannot be used .*XDG_CACHE_HOME"):
        Simulator(npu)
