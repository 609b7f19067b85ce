"""What compiles a model: every package, compiler and file of ours that its bytes depend on.

One table serves the lock file, which a build is held against, and the cache, whose entries are
good for one tool chain only. It is made without loading TVM.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
from collections.abc import Mapping
from importlib.metadata import entry_points, version
from pathlib import Path

from tilewright.compiler.artifact.host_machine import cpu_digest
from tilewright.compiler.artifact.manifest import PACKAGES
from tilewright.compiler.artifact.toolchain import Compiler, board_compiler, host_compiler
from tilewright.targets.description import Target
from tilewright.targets.errors import ArtifactError

_OURS = ("compiler", "passes", "schedules", "targets")
_PLUG_INS = "tilewright."

ToolChain = dict[str, str]


def tool_chain(target: Target) -> ToolChain:
    """What is installed here and compiles for `target`, each with its version or digest."""
    facts = {package: version(package) for package in PACKAGES.values()}
    for group in sorted(name for name in entry_points().groups if name.startswith(_PLUG_INS)):
        for entry in entry_points(group=group):
            if entry.dist is not None:
                facts[entry.dist.name] = entry.dist.version
    return facts | {
        "tilewright's files": own_digest(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()} {cpu_digest()}",
        "C compiler": _described(host_compiler()),
        f"C compiler for {target.cpu.triple}": _described(_board_compiler(target)),
    }


@functools.cache
def own_digest() -> str:
    """sha256 over our own files: a version alone does not tell a changed checkout."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for folder in _OURS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                digest.update(f"{path.relative_to(root)}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def write_lock(path: Path, chain: Mapping[str, str]) -> None:
    """Raises ArtifactError where the file cannot be written."""
    try:
        path.write_text(json.dumps({"tool_chain": chain}, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be written: {error.strerror}") from error


def check_lock(path: Path, chain: Mapping[str, str]) -> None:
    """Raise ArtifactError that names every difference between the locked tool chain and this."""
    locked = _read_lock(path)
    differences = [
        f"{name} is {chain.get(name, 'absent')}, locked is {locked.get(name, 'none')}"
        for name in sorted(locked.keys() | chain.keys())
        if locked.get(name) != chain.get(name)
    ]
    if differences:
        raise ArtifactError(
            f"{path}: the tool chain differs: {'; '.join(differences)}; install what is locked, "
            "or lock this one with --write-lock"
        )


def _read_lock(path: Path) -> dict[str, str]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))["tool_chain"]
        return {str(name): str(fact) for name, fact in table.items()}
    except FileNotFoundError:
        raise ArtifactError(f"{path}: no such lock file; make one with --write-lock") from None
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ArtifactError(f"{path}: is no lock file; make one with --write-lock") from None


def _board_compiler(target: Target) -> Compiler | str:
    if target.cpu.is_native:
        return host_compiler()
    return board_compiler(target.cpu.triple, target.cpu.cpu, target.cpu.c_compiler)


def _described(compiler: Compiler | str) -> str:
    if isinstance(compiler, str):
        return "absent"
    try:
        return f"{' '.join(compiler.command)}: {compiler.version()}"
    except ArtifactError as error:
        return str(error)
