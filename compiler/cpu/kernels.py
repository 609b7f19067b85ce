"""All CPU kernels of a model as one relocatable object of plain C functions.

Each kernel is `int32_t symbol(void *buffer0, ..., void *bufferN, int32_t begin, int32_t end)`: the
buffers in the order of its PrimFunc (inputs, then outputs), and the tasks to run, any part of
0..tasks. It allocates nothing, keeps no state and needs nothing but libm, so one object serves the
artifact on the host and on the board. Buffers must not overlap: a task may be computed twice.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import tirx
from tvm.tirx import transform as tir

from tilewright.compiler.cpu.machine import llvm_target, resolve
from tilewright.compiler.cpu.plain_function import (
    lower_to_statements,
    task_count,
    to_plain_function,
)
from tilewright.schedules.cpu.facts import Cpu


@dataclass(frozen=True)
class KernelArgument:
    """A buffer of a kernel: dense and row-major."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class KernelSignature:
    """How to call a kernel; its last argument is its output."""

    symbol: str
    tasks: int
    arguments: tuple[KernelArgument, ...]
    workspace_bytes: int = 0


@dataclass(frozen=True)
class Kernels:
    """`signatures` is keyed by the name of the PrimFunc that `call_tir` calls."""

    triple: str
    cpu: str
    features: str
    code: bytes
    signatures: dict[str, KernelSignature]


def compile_kernels(module: tvm.IRModule, cpu: Cpu, prefix: str = "tilewright_") -> Kernels:
    """Compile every PrimFunc of `module` (as `lower_to_kernels` leaves it) for `cpu`.

    Raises TargetError for a CPU that LLVM does not know. The same input gives the same bytes.
    """
    facts = resolve(cpu)
    target = llvm_target(facts)
    functions = {
        variable.name_hint: function
        for variable, function in module.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }
    names = sorted(functions)
    bound = tir.BindTarget(target.with_host(target))(
        tvm.IRModule({name: functions[name] for name in names})
    )
    lowered = lower_to_statements(bound)
    plain = tvm.IRModule(
        {name: to_plain_function(lowered[name], prefix + name, target) for name in names}
    )
    signatures = {
        name: KernelSignature(prefix + name, task_count(lowered[name]), _arguments(functions[name]))
        for name in names
    }
    return Kernels(facts.triple, facts.cpu, facts.features, _object_code(plain, target), signatures)


def _arguments(function: tirx.PrimFunc) -> tuple[KernelArgument, ...]:
    return tuple(
        KernelArgument(tuple(int(extent) for extent in buffer.shape), str(buffer.dtype))
        for buffer in function.params
    )


def _object_code(plain: tvm.IRModule, target: tvm.target.Target) -> bytes:
    plain = tvm.ir.transform.Sequential([tir.LowerTVMBuiltin(), tir.LowerIntrin()])(plain)
    built = tvm.get_global_func("target.build.llvm")(plain, target)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kernels.o"
        built.write_to_file(str(path), "o")
        return path.read_bytes()
