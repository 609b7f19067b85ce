"""From a CPU description to LLVM's words: `native` resolved, vector width and registers known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import tvm
from tvm.target import codegen

from tilewright.schedules.cpu.facts import Cpu, CpuFacts
from tilewright.targets.errors import TargetError


@dataclass(frozen=True)
class _Vectors:
    """A feature of LLVM's that brings vectors, and the registers it brings."""

    feature: str
    bits: int
    registers: int


# The widest first; the first that the CPU has counts.
_VECTORS = {
    "x86_64": (
        _Vectors("avx512bw", 512, 32),
        _Vectors("avx2", 256, 16),
        _Vectors("avx", 256, 16),
        _Vectors("sse2", 128, 16),
    ),
    "aarch64": (_Vectors("neon", 128, 32),),
    "arm": (_Vectors("neon", 128, 16), _Vectors("mve", 128, 8)),
    # LLVM's RISC-V vectors have no fixed width: what is promised by +zvl128b is used.
    "riscv": (_Vectors("zvl256b", 256, 32), _Vectors("zvl128b", 128, 32)),
}


def resolve(cpu: Cpu) -> CpuFacts:
    """The facts of `cpu`; raises TargetError for a triple or CPU that LLVM does not know."""
    triple, name, features = cpu.triple, cpu.cpu, cpu.features
    if triple == "native":
        triple = codegen.llvm_get_system_triple()
    if name == "native":
        name = codegen.llvm_get_system_cpu()
    if features == "native":
        features = ""  # the name of this machine's CPU implies them
    family = _family(triple)
    known = _known_features(triple, name, features)
    vectors = next((entry for entry in _VECTORS.get(family, ()) if entry.feature in known), None)
    return CpuFacts(
        triple=triple,
        cpu=name,
        features=features,
        cores=cpu.cores,
        vector_bits=vectors.bits if vectors else 0,
        vector_registers=vectors.registers if vectors else 16,
        multiplies_pairs=family == "x86_64" and vectors is not None,
    )


def common_facts(cpu: Cpu) -> CpuFacts:
    """The facts of `cpu` that also hold here: one lowering serves the board and this machine.

    Only instructions named outright can be missing on the other side; LLVM spells out the rest.
    """
    facts = resolve(cpu)
    if not facts.multiplies_pairs or (cpu.triple, cpu.cpu) == ("native", "native"):
        return facts
    here = resolve(_Native(cpu.cores))
    both = here.multiplies_pairs and here.vector_bits >= facts.vector_bits
    return replace(facts, multiplies_pairs=both)


@dataclass(frozen=True)
class _Native:
    """This machine, as a target would describe it."""

    cores: int
    triple: str = "native"
    cpu: str = "native"
    features: str = "native"


def llvm_target(cpu: CpuFacts) -> tvm.target.Target:
    """TVM's target for LLVM. Features are split as LLVM wants them, one a list entry."""
    triple = _with_vendor(cpu.triple)
    target: dict[str, object] = {"kind": "llvm", "mtriple": triple, "num-cores": cpu.cores}
    if cpu.cpu:
        target["mcpu"] = cpu.cpu
    target["vector-width"] = cpu.vector_bits or 32  # else TVM guesses, and says so on stderr
    features = [feature for feature in cpu.features.split(",") if feature]
    if features:
        target["mattr"] = features
    if "eabihf" in cpu.triple:
        target["mfloat-abi"] = "hard"
    if _family(cpu.triple) == "riscv":
        target["mabi"] = _riscv_abi(cpu.triple, features)
    return tvm.target.Target(target)


def _with_vendor(triple: str) -> str:
    """`thumbv7em-none-eabihf` -> `thumbv7em-unknown-none-eabihf`.

    LLVM takes the short form for a vendor called none and loses the calling convention: float64
    on a core without it then calls libgcc with its arguments in the wrong registers.
    """
    parts = triple.split("-")
    return "-".join((parts[0], "unknown", *parts[1:])) if parts[1:2] == ["none"] else triple


def _riscv_abi(triple: str, features: list[str]) -> str:
    """The calling convention that C compilers choose for these features; LLVM assumes none."""
    integers = "lp64" if triple.startswith("riscv64") else "ilp32"
    return integers + ("d" if "+d" in features else "f" if "+f" in features else "")


def _family(triple: str) -> str:
    architecture = triple.split("-")[0]
    if architecture in ("x86_64", "amd64"):
        return "x86_64"
    if architecture.startswith(("aarch64", "arm64")):
        return "aarch64"
    if architecture.startswith(("arm", "thumb")):
        return "arm"
    if architecture.startswith("riscv"):
        return "riscv"
    # LLVM itself would crash on an architecture it was not built with.
    raise TargetError(
        f"triple {triple}: no kernels for {architecture}; choose x86_64, aarch64, arm, thumb, "
        "riscv32 or riscv64"
    )


def _known_features(triple: str, name: str, features: str) -> set[str]:
    try:
        if name and not codegen.llvm_is_valid_cpu(name, triple):
            raise TargetError(
                f"cpu {name}: LLVM does not know it for {triple}; "
                f"choose one that `llc -mtriple={triple} -mcpu=help` lists"
            )
        facts = CpuFacts(triple=triple, cpu=name, features=features)
        return {str(feature) for feature in codegen.llvm_get_cpu_features(llvm_target(facts))}
    except (ValueError, RuntimeError) as error:
        fact = str(error).splitlines()[-1] if str(error) else "no reason given"
        raise TargetError(
            f"triple {triple}: LLVM refuses it ({fact}); correct [cpu] triple, cpu or features"
        ) from error
