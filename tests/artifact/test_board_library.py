"""What a firmware project gets compiles without a warning, links and runs."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.compiler.artifact import build, build_artifact, toolchain
from tilewright.compiler.artifact.c_source import RUNTIME
from tilewright.compiler.artifact.layout import c_name
from tilewright.compiler.artifact.manifest import read_manifest
from tilewright.compiler.artifact.toolchain import Compiler, board_compiler
from tilewright.compiler.program import KernelCall, Objects, Port, Program
from tilewright.targets.errors import ArtifactError, TargetError

HERE = Path(__file__).parent
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
C99 = ["gcc", "-std=c99", *STRICT]
CPP = ["g++", "-x", "c++", "-std=c++11", *STRICT]


@pytest.mark.parametrize("compiler", [C99, CPP], ids=["C99", "C++"])
def test_main_links_and_runs(saved: Path, tmp_path: Path, compiler: list[str]) -> None:
    board = saved / "board"
    compile_ = [*compiler, f"-I{board}", str(HERE / "main.c"), "-x", "none"]
    run([*compile_, str(board / "libmodel.a"), "-o", "main"], tmp_path)
    assert run(["./main"], tmp_path) == "10 36 62 88 114 140 "


@pytest.mark.parametrize("compiler", [C99, CPP], ids=["C99", "C++"])
def test_the_main_that_comes_along(saved: Path, tmp_path: Path, compiler: list[str]) -> None:
    """Thirty lines to begin from, in every artifact."""
    board = saved / "board"
    assert len((board / "main.c").read_text().splitlines()) <= 30
    compile_ = [*compiler, f"-I{board}", str(board / "main.c"), "-x", "none"]
    run([*compile_, str(board / "libmodel.a"), "-o", "main"], tmp_path)
    assert run(["./main"], tmp_path) == "y\n"


@pytest.mark.parametrize("compiler", [C99, CPP], ids=["C99", "C++"])
def test_two_models_in_one_program(
    program: Program, failing_program: Program, tmp_path: Path, compiler: list[str]
) -> None:
    (tmp_path / "row_sums").mkdir()
    (tmp_path / "failing").mkdir()
    build_artifact(program, tmp_path / "row_sums")
    build_artifact(failing_program, tmp_path / "failing")
    libraries = ["row_sums/board/libmodel.a", "failing/board/libmodel.a"]
    compile_ = [*compiler, "-I.", "-Irow_sums/board", str(HERE / "two_models.c"), "-x", "none"]
    run([*compile_, *libraries, "-lpthread", "-o", "main"], tmp_path)
    assert run(["./main"], tmp_path).splitlines() == [
        "sum: the kernel failed with -7",
        "row-sums: no arena was given",
        "row-sums: the arena is smaller than the model's ARENA_BYTES",
        "row-sums: the arena is not aligned to the model's ARENA_ALIGNMENT",
        "row-sums: no weights were given",
        "row-sums: the weights are not the model's: WEIGHT_BYTES differs",
    ]


@pytest.mark.parametrize("compiler", [C99, CPP], ids=["C99", "C++"])
@pytest.mark.parametrize("source", ["model.c", "model_runtime.c", "thread_pool.c"])
def test_sources_compile_without_a_warning(
    saved: Path, tmp_path: Path, source: str, compiler: list[str]
) -> None:
    run([*compiler, "-c", str(saved / "board" / source), "-o", "it.o"], tmp_path)


def test_the_library_shows_only_the_models_names(saved: Path) -> None:
    listing = run(["nm", "--defined-only", "--extern-only", "libmodel.a"], saved / "board")
    names = re.findall(r" [A-Z] (\w+)", listing)
    assert "row_sums_init" in names
    assert "row_sums" not in names
    assert {name for name in names if not name.startswith("row_sums_")} == {
        "tilewright_pool_bytes",
        "tilewright_pool_run",
        "tilewright_pool_start",
        "tilewright_pool_stop",
    }


def test_the_model_needs_no_allocation_and_no_file(saved: Path) -> None:
    run(["ar", "x", str(saved / "board" / "libmodel.a"), "model.o"], saved)
    listing = run(["nm", "--undefined-only", "model.o"], saved)
    assert set(listing.split()) - {"U"} <= {"memset", "memcpy", "_GLOBAL_OFFSET_TABLE_"}


def test_the_model_holds_no_writable_data(saved: Path) -> None:
    run(["ar", "x", str(saved / "board" / "libmodel.a"), "model.o"], saved)
    listing = run(["nm", "model.o"], saved)
    assert re.findall(r" [bBcCgGsS] (\w+)", listing) == []


def test_pool_has_no_data_race(tmp_path: Path) -> None:
    """The thread sanitizer over many short steps."""
    source = tmp_path / "steps.c"
    source.write_text(
        """
        #include <stdio.h>
        #include "thread_pool.h"
        static double memory[128];
        static int32_t done[97];
        static int32_t count_up(const void *argument, int32_t begin, int32_t end) {
          for (int32_t task = begin; task < end; ++task) {
            done[task] += *(const int32_t *)argument;
            if (task == 96 && *(const int32_t *)argument == 0) return -3;
          }
          return 0;
        }
        int main(void) {
          tilewright_pool *pool = tilewright_pool_start(memory, sizeof memory, 3);
          int32_t step, one = 1, zero = 0, sum = 0;
          for (step = 0; step < 2000; ++step) {
            if (tilewright_pool_run(pool, count_up, &one, step % 98) != 0) return 1;
          }
          if (tilewright_pool_run(pool, count_up, &zero, 97) != -3) return 2;
          tilewright_pool_stop(pool);
          for (step = 0; step < 97; ++step) sum += done[step];
          printf("%d", sum);
          return tilewright_pool_start(memory, 8, 3) != NULL;
        }
        """
    )
    flags = ["-std=c99", "-O1", "-g", "-fsanitize=thread", f"-I{RUNTIME}"]
    run(["gcc", *flags, "steps.c", str(RUNTIME / "thread_pool.c"), "-o", "steps"], tmp_path)
    assert run(["./steps"], tmp_path) == str(sum(step % 98 for step in range(2000)))


def test_a_missing_board_compiler_is_told(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    board = replace(program.host, triple="sparc-unknown-none")
    build_artifact(replace(program, board=board), tmp_path)
    manifest = read_manifest(tmp_path)
    assert manifest["board"]["library"] is None
    assert manifest["board"]["missing"] == (
        "no C compiler for sparc-unknown-none: sparc-unknown-none-gcc is not on PATH; install it, "
        "the Python package ziglang, or name one in [cpu] c_compiler"
    )
    memory = json.loads((tmp_path / "report.json").read_text())["memory"]
    assert memory["linked"] is None and memory["flash"]["runtime"] is None
    assert memory["flash"]["weights"] == len(program.weights)
    assert not (tmp_path / "board/libmodel.a").exists()
    assert (tmp_path / "board/kernels.o").read_bytes() == program.host.code


def test_a_board_compiler_that_fails_is_told(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The artifact stands without its board library, and says why."""
    (tmp_path / "bin").mkdir()
    broken = tmp_path / "bin" / "sparc-unknown-none-gcc"
    broken.write_text("#!/bin/sh\necho 'fatal error: no licence' >&2; exit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")
    board = replace(program.host, triple="sparc-unknown-none")
    (tmp_path / "out").mkdir()
    build_artifact(replace(program, board=board), tmp_path / "out")
    described = read_manifest(tmp_path / "out")["board"]
    assert described["library"] is None
    assert described["missing"] == (
        "sparc-unknown-none-gcc --version failed: fatal error: no licence"
    )


def test_a_compiler_of_the_description_that_fails_names_its_command(
    program: Program, tmp_path: Path
) -> None:
    toml = program.target_toml.replace("clock_mhz", 'c_compiler = "gcc --no-such-flag"\nclock_mhz')
    other = replace(program.host, triple="x86_64-unknown-none")
    build_artifact(replace(program, target_toml=toml, board=other), tmp_path)
    assert read_manifest(tmp_path)["board"]["missing"].startswith(
        "gcc --no-such-flag failed: gcc: error: unrecognized command-line option '--no-such-flag'"
    )


@pytest.mark.skipif(
    shutil.which("arm-none-eabi-gcc") is None,
    reason="arm-none-eabi-gcc is not installed; docs/emulated-boards.md names the packages",
)
def test_a_triple_that_is_not_the_compilers_is_an_error(program: Program, tmp_path: Path) -> None:
    toml = program.target_toml.replace("clock_mhz", 'c_compiler = "arm-none-eabi-gcc"\nclock_mhz')
    with pytest.raises(TargetError) as error:
        build_artifact(replace(program, target_toml=toml, board=program.host), tmp_path)
    assert str(error.value) == (
        "arm-none-eabi-gcc makes code for 32-bit Arm, [cpu] triple is of 64-bit x86; "
        "correct triple or c_compiler"
    )


def test_ziglang_stands_in_for_a_missing_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setenv("PATH", "")
    for triple, cpu, flags in [
        ("aarch64-linux-gnu", "cortex-a72", "-target aarch64-linux-musl -mcpu=cortex_a72"),
        ("riscv64-linux-gnu", "generic-rv64", "-target riscv64-linux-musl -mcpu=baseline_rv64"),
        (
            "thumbv8.1m.main-none-eabihf",
            "cortex-m55",
            "-target thumb-freestanding-eabihf -mcpu=cortex_m55",
        ),
    ]:
        compiler = board_compiler(triple, cpu, None)
        assert isinstance(compiler, Compiler)
        assert f"-m ziglang cc {flags} " in " ".join(compiler.command)


@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="the package ziglang is not installed"
)
def test_ziglang_builds_for_a_board(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = toolchain._zig("x86_64-linux-gnu", "x86-64")
    monkeypatch.setattr(build, "board_compiler", lambda *asked: compiler)
    build_artifact(program, tmp_path)
    assert read_manifest(tmp_path)["board"]["missing"] is None


def test_what_the_board_holds_is_predicted(saved: Path) -> None:
    memory = json.loads((saved / "report.json").read_text())["memory"]
    assert memory["ram"]["arena"] == 216
    assert 0 <= memory["linked"]["ram"] - memory["predicted"]["ram"] < 64  # the linker's own table
    assert abs(memory["predicted"]["flash"] - memory["linked"]["flash"]) < 256


def test_the_description_can_name_the_compiler(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    toml = program.target_toml.replace("clock_mhz", 'c_compiler = "acme-cc -mfast"\nclock_mhz')
    build_artifact(replace(program, target_toml=toml), tmp_path)
    assert read_manifest(tmp_path)["board"]["missing"] == (
        "acme-cc (cpu.c_compiler of the target) is not on PATH"
    )


@pytest.mark.parametrize(
    ("triple", "command"),
    [
        ("aarch64-unknown-linux-gnu", "aarch64-linux-gnu-gcc"),
        ("riscv64-linux-gnu", "riscv64-linux-gnu-gcc"),
        (
            "thumbv8.1m.main-none-eabihf",
            "arm-none-eabi-gcc -mcpu=some-core -mthumb -mfloat-abi=hard",
        ),
        ("thumbv7m-none-eabi", "arm-none-eabi-gcc -mcpu=some-core -mthumb -mfloat-abi=soft"),
    ],
)
def test_the_usual_cross_compiler_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, triple: str, command: str
) -> None:
    name = command.split()[0]
    assert name in str(board_compiler(triple, "some-core", None))
    (tmp_path / name).write_text("#!/bin/sh\n")
    (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = board_compiler(triple, "some-core", None)
    assert isinstance(found, Compiler)
    assert " ".join(found.command) == command


@pytest.mark.parametrize(
    ("model", "prefix"),
    [
        ("resnet8", "resnet8"),
        ("resnet-8 v2", "resnet_8_v2"),
        ("8bit", "model_8bit"),
        ("_x", "model__x"),
        ("npu", "model_npu"),
        ("tilewright_pool", "model_tilewright_pool"),
        ("netz-größe", "netz_gr__e"),
        ("", "model_"),
    ],
)
def test_any_model_name_gives_a_c_name(model: str, prefix: str) -> None:
    assert c_name(model) == prefix


def test_odd_names_survive_the_c_source(
    program: Program, compile_kernels: Callable[[str], bytes], tmp_path: Path
) -> None:
    """Quotes, trigraphs, comment ends, non-ASCII letters, digits after an escape."""
    odd = 'a"b\\c*/??/\n\u00e91'
    kernels = compile_kernels("#include <stdint.h>\nint32_t f(int32_t a, int32_t b){return 0;}")
    ports = (Port(odd, (), "int64", 0), Port("half", (2, 0), "float16", 8))
    odd_program = replace(
        program,
        name=odd,
        inputs=ports,
        outputs=ports,
        steps=(KernelCall((), "f", (), 1),),
        host=Objects("x86_64-linux-gnu", "", "", kernels),
        weights=b"",
    )
    build_artifact(odd_program, tmp_path)
    run([*C99, "-c", "model.c", "-o", "it.o"], tmp_path / "board")
    assert odd.encode() in (tmp_path / "host/libmodel.so").read_bytes()


def test_a_dtype_c_does_not_have_is_explained(program: Program, tmp_path: Path) -> None:
    port = Port("x", (1,), "complex64", 0)
    with pytest.raises(ArtifactError) as error:
        build_artifact(replace(program, inputs=(port,)), tmp_path)
    assert str(error.value).startswith("x: the C interface has no complex64 tensor of rank 1; ")


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout
