"""What a host library needs of the machine it runs on, and whether this machine has it."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.compiler.program import Objects
from tilewright.targets.errors import ArtifactError

# LLVM's names of the vector extensions our kernels are compiled for, and Linux's names of them.
_LINUX_NAMES = {
    "avx": "avx",
    "avx2": "avx2",
    "avx512bw": "avx512bw",
    "avx512dq": "avx512dq",
    "avx512f": "avx512f",
    "avx512vl": "avx512vl",
    "avx512vnni": "avx512_vnni",
    "avxvnni": "avx_vnni",
    "dotprod": "asimddp",
    "f16c": "f16c",
    "fma": "fma",
    "fullfp16": "asimdhp",
    "i8mm": "i8mm",
    "sve": "sve",
}
_BASELINES = ("", "generic", "x86-64")


def describe_machine(objects: Objects, *, native: bool) -> dict[str, Any]:
    """For the manifest: system, machine and the CPU flags the code may use.

    Code for a named CPU, and `native` C code, may use all that this machine has; kernels for a
    baseline what was asked for.
    """
    wanted = set(_LINUX_NAMES)
    if objects.cpu in _BASELINES and not native:
        wanted &= {part[1:] for part in objects.features.split(",") if part.startswith("+")}
    flags = {_LINUX_NAMES[name] for name in wanted} & _cpu_flags()
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "cpu_flags": sorted(flags),
    }


def check_machine(host: Mapping[str, Any], artifact: Path) -> None:
    """Raise ArtifactError where this machine cannot run the library `host` describes."""
    built_for, here = (host["system"], host["machine"]), (platform.system(), platform.machine())
    if built_for != here:
        raise ArtifactError(
            f"{artifact}: its host library is for {' '.join(built_for)}, this is {' '.join(here)}; "
            "compile the model again on this machine"
        )
    lacking = sorted(set(host["cpu_flags"]) - _cpu_flags())
    if lacking:
        raise ArtifactError(
            f"{artifact}: its host library needs a CPU with {', '.join(lacking)}; "
            "compile the model again on this machine"
        )


def cpu_digest() -> str:
    """Tells CPUs apart for which native code may differ."""
    flags = " ".join(sorted(_cpu_flags()))
    return hashlib.sha256(flags.encode()).hexdigest()[:16]


def _cpu_flags() -> set[str]:
    """What this CPU has, in Linux's words; nothing on systems that do not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return set()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return set(value.split())
    return set()
