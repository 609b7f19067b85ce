"""Link a model into firmware with a cross compiler and run it in QEMU."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.compiler.artifact import Artifact
from tilewright.targets.description import BOARDS

HERE = Path(__file__).parent
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Machine:
    """What QEMU stands in for, and the tools that make programs for it."""

    cpu: str  # [cpu] of a description
    compiler: tuple[str, ...]
    link: tuple[str, ...]
    emulator: tuple[str, ...]
    npu: str  # the bundled board whose NPU stands beside it where one is asked for
    sources: tuple[str, ...] = ("firmware.c",)

    @property
    def missing(self) -> str:
        """The tools that are not installed, or nothing."""
        tools = (self.compiler[0], self.emulator[0])
        return " and ".join(tool for tool in tools if shutil.which(tool) is None)


def _bare(memory: str) -> tuple[str, ...]:
    scripts = (part for name in (memory, "firmware.ld") for part in ("-T", str(HERE / name)))
    return ("-nostartfiles", *scripts, "--specs=rdimon.specs")


def _qemu_system(board: str) -> tuple[str, ...]:
    return (
        *("qemu-system-arm", "-M", board, "-nographic", "-monitor", "none", "-serial", "none"),
        *("-semihosting-config", "enable=on,target=native", "-kernel", "firmware"),
    )


MACHINES = {
    "aarch64": Machine(
        cpu="""
            triple = "aarch64-linux-gnu"
            cpu = "cortex-a72"
            features = "+neon"
            cores = 4
            clock_mhz = 1500
            vector_bits = 128
            flops_per_cycle = 8
            int8_macs_per_cycle = 8
            dram_gb_per_s = 5
        """,
        compiler=("aarch64-linux-gnu-gcc",),
        link=("-static", "-pthread"),
        emulator=("qemu-aarch64", "-cpu", "cortex-a72", "./firmware"),
        npu="edge-128",
    ),
    "riscv64": Machine(
        cpu="""
            triple = "riscv64-linux-gnu"
            cpu = "generic-rv64"
            features = "+m,+a,+f,+d,+c"
            cores = 4
            clock_mhz = 1500
            vector_bits = 0
            flops_per_cycle = 2
            int8_macs_per_cycle = 1
            dram_gb_per_s = 3
        """,
        compiler=("riscv64-linux-gnu-gcc",),
        link=("-static", "-pthread"),
        emulator=("qemu-riscv64", "./firmware"),
        npu="edge-128",
    ),
    "cortex-m55": Machine(
        cpu="""
            triple = "thumbv8.1m.main-none-eabihf"
            cpu = "cortex-m55"
            features = "+mve.fp"
            cores = 1
            clock_mhz = 400
            vector_bits = 128
            flops_per_cycle = 4
            int8_macs_per_cycle = 8
            dram_gb_per_s = 1.6
        """,
        compiler=("arm-none-eabi-gcc", "-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"),
        link=_bare("mps3.ld"),
        emulator=_qemu_system("mps3-an547"),
        npu="mcu-16",
        sources=("firmware.c", "mps_startup.c"),
    ),
    "cortex-m4": Machine(
        cpu="""
            triple = "thumbv7em-none-eabihf"
            cpu = "cortex-m4"
            features = "+vfp4d16sp"
            cores = 1
            clock_mhz = 168
            vector_bits = 0
            flops_per_cycle = 1
            int8_macs_per_cycle = 1
            dram_gb_per_s = 0.6
        """,
        compiler=("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard"),
        link=_bare("mps2.ld"),
        emulator=_qemu_system("mps2-an386"),
        npu="mcu-16",
        sources=("firmware.c", "mps_startup.c"),
    ),
    "cortex-m3": Machine(
        cpu="""
            triple = "thumbv7m-none-eabi"
            cpu = "cortex-m3"
            cores = 1
            clock_mhz = 100
            vector_bits = 0
            flops_per_cycle = 0.1
            int8_macs_per_cycle = 0.5
            dram_gb_per_s = 0.4
        """,
        compiler=("arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb", "-mfloat-abi=soft"),
        link=_bare("mps2.ld"),
        emulator=_qemu_system("mps2-an385"),
        npu="mcu-16",
        sources=("firmware.c", "mps_startup.c"),
    ),
}
_FLAGS = ("-std=gnu99", "-O2", "-Wall", "-Wextra", "-Werror", "-Wl,--fatal-warnings")


def describe_board(machine: str, with_npu: bool) -> str:
    """A description: the machine's CPU alone, or beside its NPU."""
    npu = MACHINES[machine].npu if with_npu else None
    text = "" if npu is None else (BOARDS / f"{npu}.toml").read_text(encoding="utf-8")
    tables = re.split(r"(?m)^(?=\[)", text)
    kept = [table for table in tables if table.startswith("[npu")]
    cpu = "\n".join(line.strip() for line in MACHINES[machine].cpu.splitlines())
    return f'name = "{machine}-{npu or "cpu"}"\n{"".join(kept)}\n[cpu]\n{cpu}'


def link_firmware(
    artifact: Artifact, machine: Machine, folder: Path, library: str = "libmodel.a"
) -> Path:
    """The firmware's ELF file; a warning of compiler or linker is a failure."""
    board = artifact.directory / "board"
    uses_npu = ["-DMODEL_USES_NPU"] if artifact.manifest["npu_workspace_bytes"] else []
    command = [
        *(*machine.compiler, *_FLAGS, f"-DMODEL={artifact.manifest['c_name']}", *uses_npu),
        *(f"-I{board}", *(str(HERE / source) for source in machine.sources)),
        *(str(board / library), *machine.link, "-Wl,--gc-sections", "-lm"),
        *("-o", "firmware"),
    ]
    run(command, folder)
    return folder / "firmware"


@dataclass(frozen=True)
class Run:
    outputs: Arrays
    cycles: int  # that the simulated NPU counted on the board
    stack_bytes: int  # of the whole firmware; 0 on boards that cannot tell


def run_firmware(artifact: Artifact, machine: Machine, folder: Path, inputs: Arrays) -> Run:
    ports = artifact.manifest["inputs"]
    (folder / "inputs.bin").write_bytes(b"".join(inputs[port["name"]].tobytes() for port in ports))
    (folder / "outputs.bin").unlink(missing_ok=True)
    printed = run(list(machine.emulator), folder)
    found = (folder / "outputs.bin").read_bytes()
    outputs = {}
    for port in artifact.manifest["outputs"]:
        flat = np.frombuffer(found[: port["bytes"]], port["dtype"])
        outputs[port["name"]] = flat.reshape(port["shape"])
        found = found[port["bytes"] :]
    assert not found
    words = printed.split()
    return Run(outputs, int(words[0]), int(words[2]))


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout
