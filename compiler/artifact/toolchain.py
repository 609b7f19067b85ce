"""Find C compilers and run them so that the same input gives the same bytes."""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.targets.errors import ArtifactError

# LLVM's name of a machine and the prefixes its GNU tools are known by.
_PREFIXES = {
    "aarch64-linux": ("aarch64-linux-gnu",),
    "riscv64-linux": ("riscv64-linux-gnu",),
    "x86_64-linux": ("x86_64-linux-gnu",),
    "arm-linux": ("arm-linux-gnueabihf", "arm-linux-gnueabi"),
    "arm-none": ("arm-none-eabi",),
    "riscv32-none": ("riscv64-unknown-elf", "riscv32-unknown-elf"),
}


class CompilerError(ArtifactError):
    """What a compiler said; `Compiler` adds which it was."""


@dataclass(frozen=True)
class Compiler:
    """A C compiler as a command, flags included, such as `("arm-none-eabi-gcc", "-mthumb")`."""

    command: tuple[str, ...]

    @property
    def name(self) -> str:
        """As a user would type it."""
        return shlex.join(self.command)

    def version(self) -> str:
        """The first line of `--version`, for the manifest."""
        try:
            return _run((*self.command, "--version"), Path.cwd()).partition("\n")[0].strip()
        except CompilerError as error:
            raise ArtifactError(f"{self.name} --version failed: {error}") from error

    def run(self, arguments: Sequence[str], folder: Path) -> None:
        """Run in `folder`: with relative file names no path of this machine reaches the output."""
        try:
            _run((*self.command, *arguments), folder)
        except CompilerError as error:
            raise ArtifactError(f"{self.name} failed: {error}") from error

    def accepts(self, flag: str) -> bool:
        try:
            _run((*self.command, flag, "-E", "-x", "c", os.devnull), Path.cwd())
        except CompilerError:
            return False
        return True


def host_compiler() -> Compiler:
    """$CC, or else cc, gcc or clang."""
    asked = shlex.split(os.environ.get("CC", ""))
    candidates = [asked] if asked else [["cc"], ["gcc"], ["clang"]]
    found = _first_found(candidates)
    if found is None:
        raise ArtifactError(
            f"no C compiler: {' or '.join(command[0] for command in candidates)} is not on PATH; "
            "install gcc, or name a compiler in the environment variable CC"
        )
    return found


def board_compiler(triple: str, cpu: str, asked: str | None) -> Compiler | str:
    """The compiler for a board, or what is missing.

    `asked` is the description's own choice, with the flags it wants.
    """
    if asked:
        found = _first_found([shlex.split(asked)]) or _zig(triple, cpu)
        return found or f"{shlex.split(asked)[0]} (cpu.c_compiler of the target) is not on PATH"
    if is_this_machine(triple):
        return host_compiler()
    names = [f"{prefix}-gcc" for prefix in gnu_prefixes(triple)]
    found = _first_found([[name, *_machine_flags(triple, cpu)] for name in names])
    return (
        found
        or _zig(triple, cpu)
        or f"no C compiler for {triple}: {' or '.join(names)} is not on PATH; "
        "install it, the Python package ziglang, or name one in [cpu] c_compiler"
    )


def _zig(triple: str, cpu: str) -> Compiler | None:
    """The C compiler of the Python package ziglang, where that is installed: it knows all boards.

    Zig's own checks for undefined behaviour, on by default, need a library on the board.
    """
    if importlib.util.find_spec("ziglang") is None:
        return None
    machine = triple.partition("-")[0]
    name = "thumb" if machine.startswith("thumb") else machine
    floats = "hf" if triple.endswith("hf") else ""
    if "linux" in triple:
        system = f"linux-musl{'eabi' + floats if name.startswith(('arm', 'thumb')) else ''}"
    else:
        system = f"freestanding{'-eabi' + floats if name == 'thumb' else '-none'}"
    # Zig's generic RISC-V core has no floating point; its baseline has what Linux asks for.
    mcpu = cpu.replace("generic-", "baseline_").replace("-", "_")
    command = (sys.executable, "-m", "ziglang", "cc", "-target", f"{name}-{system}")
    return Compiler((*command, f"-mcpu={mcpu}", "-fno-sanitize=undefined"))


def _machine_flags(triple: str, cpu: str) -> list[str]:
    """What GCC must be told to give code that links with LLVM's.

    Its Arm compiler for bare metal serves every core and calling convention.
    """
    if not triple.startswith(("thumb", "arm")) or "linux" in triple:
        return []
    floats = "hard" if triple.endswith("hf") else "soft"
    return [f"-mcpu={cpu}", "-mthumb", f"-mfloat-abi={floats}"]


def is_this_machine(triple: str) -> bool:
    machine, _, rest = triple.partition("-")
    return machine == platform.machine() and platform.system().lower() in rest


def gnu_prefixes(triple: str) -> tuple[str, ...]:
    """`aarch64-unknown-linux-gnu` -> that itself and `aarch64-linux-gnu`, and so on."""
    machine = triple.partition("-")[0]
    family = "arm" if machine.startswith(("thumb", "arm")) else machine
    system = "linux" if "linux" in triple else "none"
    known = _PREFIXES.get(f"{family}-{system}", ())
    return tuple(dict.fromkeys((triple, *known)))


def _first_found(commands: Sequence[Sequence[str]]) -> Compiler | None:
    for command in commands:
        if shutil.which(command[0]):
            return Compiler(tuple(command))
    return None


def _run(command: tuple[str, ...], folder: Path) -> str:
    """Its standard output. English messages, and none of the caller's flags or time stamps."""
    environment = dict(os.environ, LC_ALL="C", SOURCE_DATE_EPOCH="0", ZERO_AR_DATE="1")
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise CompilerError(f"it cannot be started: {error.strerror}") from error
    if done.returncode != 0:
        raise CompilerError(_essence(done.stderr))
    return done.stdout


def _essence(errors: str) -> str:
    """The line that tells most: the first that says error or undefined, else the last."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    telling = [
        line
        for line in lines
        if any(word in line for word in ("error:", "undefined", "No space left", "cannot"))
    ]
    return (telling or lines[-1:] or ["it said nothing"])[0]
