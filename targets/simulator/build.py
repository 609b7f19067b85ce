"""Compile the simulator (or other C) for this machine once, and keep it in the user's cache."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilewright.targets.errors import TilewrightError

_FOLDER = Path(__file__).resolve().parent
SOURCES = tuple(sorted(_FOLDER.glob("*.c")))
HEADERS = tuple(sorted(_FOLDER.glob("*.h")))

# Contracting float operations would change results; the rest is speed on this very machine.
_FLAGS = ("-std=c99", "-O3", "-march=native", "-ffp-contract=off", "-fPIC", "-shared")
# Some compilers name the machine otherwise, or not at all.
_PLAIN_FLAGS = tuple(flag for flag in _FLAGS if flag != "-march=native")


@functools.cache
def simulator_library() -> ctypes.CDLL:
    """The simulator; raises what `compiled_library` does."""
    return compiled_library("simulator", SOURCES, HEADERS)


def compiled_library(
    name: str, sources: Sequence[Path], headers: Sequence[Path] = ()
) -> ctypes.CDLL:
    """The library, compiled if the cache has none of these sources, flags and machine.

    Raises TilewrightError when there is no C compiler, it fails, or the cache cannot be written.
    """
    path = _cache_folder() / f"{name}-{_fingerprint(name, [*sources, *headers])}.so"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _compile(name, sources, path)
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise TilewrightError(
            f"{name}: {path.parent} holds compiled code and cannot be used "
            f"({error.strerror or error}); set XDG_CACHE_HOME to a writeable folder"
        ) from None


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tilewright"


def _fingerprint(name: str, files: Sequence[Path]) -> str:
    digest = hashlib.sha256(" ".join([_compiler(name), *_FLAGS, *_machine()]).encode())
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:24]


def _machine() -> tuple[str, str]:
    """What "native" stands for: a cache may be shared by machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        flags = platform.processor()
    return platform.machine(), flags


def _compiler(name: str) -> str:
    named = os.environ.get("CC")
    for command in [named] if named else ["cc", "gcc", "clang"]:
        found = shutil.which(command)
        if found:
            return found
    missing = f"CC={named} is not there" if named else "no C compiler (cc, gcc or clang) was found"
    raise TilewrightError(f"{name}: {missing}; install one, for instance with apt install gcc")


def _compile(name: str, sources: Sequence[Path], path: Path) -> None:
    """Write beside and rename, so that a second process never sees half a library."""
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        built = Path(scratch) / path.name
        result = None
        for flags in (_FLAGS, _PLAIN_FLAGS):
            command = [_compiler(name), *flags, *map(str, sources), "-o", str(built)]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode == 0:
                built.replace(path)
                return
        first_line = next(iter(result.stderr.splitlines()), "") if result else ""
        raise TilewrightError(f"{name}: {_compiler(name)} failed: {first_line}")
