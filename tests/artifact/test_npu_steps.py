"""A model whose steps take turns between the simulated NPU and the CPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler import cli
from tilewright.compiler.artifact import Artifact, make_artifact
from tilewright.compiler.artifact.c_source import RUNTIME
from tilewright.compiler.artifact.memory_use import measure_memory_use
from tilewright.compiler.program import KernelCall, NpuCall, Objects, Port, Program, Reference
from tilewright.targets.assembler import assemble
from tilewright.targets.description import load_target
from tilewright.targets.errors import ArtifactError

TARGET = load_target("mcu-16")
NEGATE = """
#include <stdint.h>
int32_t negate(const int8_t *x, int8_t *y, int32_t begin, int32_t end) {
  for (int32_t i = begin; i < end; ++i) y[i] = -x[i];
  return 0;
}
"""


def copying(source: int, destination: int, *, digest: str = "") -> bytes:
    """A stream that copies 64 bytes of the arena by way of the SRAM."""
    assert TARGET.npu is not None
    run = "run_bytes=64 count_1=1 count_2=1"
    strides = "dram_stride_1=0 dram_stride_2=0 sram_stride_1=0 sram_stride_2=0"
    return assemble(
        f"""
        .target {digest or TARGET.npu.digest[:8].hex()}
        .sram 4096
        .accumulator 0
        .constants 0
        .arena 256
        LOAD region=1 dram_offset={source} sram_address=0 {run} {strides}
        STORE wait=DMA_IN:1 region=1 dram_offset={destination} sram_address=0 {run} {strides}
        END wait=DMA_IN:1,DMA_OUT:1
        """
    )


@pytest.fixture(scope="module")
def npu_program(program: Program, compile_kernels: Callable[[str], bytes]) -> Program:
    """y = -x in three steps: the NPU copies 0 to 64, the CPU negates to 128, the NPU to 192."""
    kernel = KernelCall((1,), "negate", (Reference("arena", 64), Reference("arena", 128)), 64)
    return replace(
        program,
        name="there_and_back",
        inputs=(Port("x", (64,), "int8", 0),),
        outputs=(Port("y", (64,), "int8", 192),),
        steps=(
            NpuCall((0,), "npu_region_0", copying(0, 64)),
            kernel,
            NpuCall((2,), "npu_region_1", copying(128, 192)),
        ),
        arena_bytes=256,
        weights=b"",
        host=Objects("x86_64-linux-gnu", "x86-64", "", compile_kernels(NEGATE)),
        operators=({"name": "in"}, {"name": "negate"}, {"name": "out"}),
        target_toml=TARGET.source.replace("arm-none-eabi", "x86_64-linux-gnu"),
    )


@pytest.fixture(scope="module")
def npu_artifact(npu_program: Program) -> Iterator[Artifact]:
    with make_artifact(npu_program, threads=2) as artifact:
        yield artifact


@pytest.fixture
def bytes_in() -> np.ndarray:
    return np.arange(-32, 32, dtype=np.int8)


def test_steps_on_both_devices(npu_artifact: Artifact, bytes_in: np.ndarray) -> None:
    assert np.array_equal(npu_artifact.run({"x": bytes_in})["y"], -bytes_in)


def test_counts_are_summed_over_the_steps_of_one_run(
    npu_artifact: Artifact, bytes_in: np.ndarray
) -> None:
    for _ in range(2):
        npu_artifact.run({"x": bytes_in})
    whole = npu_artifact.statistics()
    npu_artifact.run_until(1)
    half = npu_artifact.statistics()
    assert 0 < half["cycles"] < whole["cycles"] == 2 * half["cycles"]
    assert whole["dram_bytes"] == 2 * half["dram_bytes"] >= 256
    assert whole["macs"] == 0


def test_a_cpu_model_has_no_counts(artifact: Artifact, x: np.ndarray) -> None:
    artifact.run({"x": x})
    assert artifact.statistics() == {}


def test_memory_is_as_planned(npu_artifact: Artifact, bytes_in: np.ndarray) -> None:
    assert measure_memory_use(npu_artifact, {"x": bytes_in}).is_as_planned


def test_a_stream_for_another_npu_is_refused(npu_program: Program, bytes_in: np.ndarray) -> None:
    foreign = NpuCall((0,), "foreign", copying(0, 64, digest="0123456789abcdef"))
    with (
        make_artifact(replace(npu_program, steps=(foreign,))) as artifact,
        pytest.raises(ArtifactError, match=r"^in: .* was compiled for another NPU") as error,
    ):
        artifact.run({"x": bytes_in})
    assert "\n" not in str(error.value)


def test_command_streams_can_be_read(
    npu_artifact: Artifact, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    npu_artifact.save(tmp_path / "out")
    assert cli.main(["disassemble", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line.startswith(";")] == ["; in", "; out"]
    assert "LOAD region=1 dram_offset=128 sram_address=0 run_bytes=64" in printed
    assert (tmp_path / "out/board/streams/npu_region_1.bin").read_bytes() == copying(128, 192)


def test_run_tells_simulated_cycles(
    npu_artifact: Artifact, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    npu_artifact.save(tmp_path / "out")
    assert cli.main(["run", str(tmp_path / "out"), "--random", "1"]) == 0
    assert re.search(r"^NPU: [\d,]+ cycles a run, simulated$", capsys.readouterr().out, re.M)


MAIN = """
#include <stdio.h>
#include "model.h"
#include "npu_simulator.h"
static uint64_t arena[64], workspace[there_and_back_NPU_WORKSPACE_BYTES / 8 + 1];
int main(void) {
  npu_device device;
  tilewright_context context;
  tilewright_resources resources = {(char *)arena + (64 - (size_t)arena % 64) % 64,
                                    there_and_back_ARENA_BYTES, there_and_back_weights,
                                    there_and_back_WEIGHT_BYTES, NULL, NULL, NULL};
  if (there_and_back_init(&context, &resources) == 0) return 1;
  printf("%s\\n", there_and_back_error(&context));
  npu_simulator_init(&device, &there_and_back_npu_machine, workspace, sizeof workspace);
  resources.npu = &device;
  if (there_and_back_init(&context, &resources) != 0) return 2;
  ((int8_t *)there_and_back_input_at(&context, 0))[63] = 5;
  if (there_and_back_run(&context) != 0) return 3;
  printf("%d %d\\n", ((const int8_t *)there_and_back_output_at(&context, 0))[63],
         there_and_back_npu_totals(&context).cycles > 0);
  return 0;
}
"""
OWN_DRIVER = """
#include "npu_driver.h"
struct npu_device { npu_stats stats; };
npu_status npu_run(npu_device *device, const void *stream, size_t stream_bytes,
                   const void *constants, size_t constants_bytes, void *arena,
                   size_t arena_bytes) {
  (void)device, (void)stream, (void)stream_bytes, (void)constants, (void)constants_bytes;
  (void)arena, (void)arena_bytes;
  return NPU_FAULT;
}
const char *npu_error(const npu_device *device) { (void)device; return "door is shut"; }
const npu_stats *npu_last_stats(const npu_device *device) { return &device->stats; }
int main(void);
"""
OWN_MAIN = (
    OWN_DRIVER
    + """
#include <stdio.h>
#include <stdlib.h>
#include "model.h"
int main(void) {
  static npu_device device;
  static uint64_t arena[64];
  tilewright_context context;
  tilewright_resources resources = {(char *)arena + (64 - (size_t)arena % 64) % 64,
                                    there_and_back_ARENA_BYTES, there_and_back_weights,
                                    there_and_back_WEIGHT_BYTES, &device, NULL, NULL};
  if (there_and_back_init(&context, &resources) != 0) return 1;
  if (there_and_back_run(&context) != TILEWRIGHT_NPU_FAILED) return 2;
  printf("%s\\n", there_and_back_error(&context));
  return 0;
}
"""
)


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        (MAIN, "there_and_back: no NPU device was given\n-5 1\n"),
        (OWN_MAIN, "in: door is shut\n"),
    ],
    ids=["simulator", "own driver"],
)
@pytest.mark.parametrize("compiler", [["gcc", "-std=c99"], ["g++", "-x", "c++"]])
def test_linked_into_a_program(
    npu_artifact: Artifact, tmp_path: Path, compiler: list[str], source: str, printed: str
) -> None:
    """A driver of the program's own takes the simulator's place: that is left out."""
    (tmp_path / "main.c").write_text(source)
    board = npu_artifact.directory / "board"
    flags = ["-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{board}"]
    link = ["main.c", "-x", "none", str(board / "libmodel.a"), "-lm", "-o", "main"]
    subprocess.run([*compiler, *flags, *link], cwd=tmp_path, check=True)
    done = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == printed


def test_sanitizers_find_nothing(npu_artifact: Artifact, tmp_path: Path) -> None:
    """Runtime and simulator in a program with the address and undefined behaviour checks on."""
    shutil.copytree(npu_artifact.directory / "board", tmp_path / "board")
    (tmp_path / "board/main.c").write_text(MAIN)
    sources = [path.name for path in (tmp_path / "board").glob("*.[cS]")]
    flags = ["-std=c99", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command = ["gcc", *flags, *sources, "kernels.o", "-lm", "-lpthread", "-o", "main"]
    subprocess.run(command, cwd=tmp_path / "board", check=True)
    command = [str(tmp_path / "board/main")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "there_and_back: no NPU device was given\n-5 1\n"


def test_the_npu_step_compiles_without_a_warning(npu_artifact: Artifact, tmp_path: Path) -> None:
    for source in (npu_artifact.directory / "board/npu_step.c", RUNTIME / "host/npu_device.c"):
        for compiler in (["gcc", "-std=c99"], ["g++", "-x", "c++"]):
            flags = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
            command = [*compiler, *flags, f"-I{npu_artifact.directory}/board", "-c", str(source)]
            subprocess.run([*command, "-o", "it.o"], cwd=tmp_path, check=True)
