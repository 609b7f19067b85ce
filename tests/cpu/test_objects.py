"""The object code: for every machine, free of TVM, and the same bytes each time."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.cpu.run_kernels import HOST, graph_of
from tilewright.compiler.cpu.kernels import KernelArgument, compile_kernels
from tilewright.compiler.cpu.lower import lower_to_kernels
from tilewright.compiler.cpu.machine import resolve
from tilewright.passes.constants import constant
from tilewright.targets.errors import TargetError

LIBM = {"expf", "exp", "tanhf", "erff", "powf", "logf", "sqrtf", "fminf", "fmaxf", "nearbyintf"}


def machine(triple: str, cpu: str, features: str = "") -> Any:
    return SimpleNamespace(triple=triple, cpu=cpu, features=features, cores=1)


MACHINES = {
    "aarch64": machine("aarch64-linux-gnu", "cortex-a72", "+neon"),
    "riscv64": machine("riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c"),
    "thumb": machine("thumbv8.1m.main-none-eabihf", "cortex-m55", "+mve.fp,+fp.dp"),
    "x86-64": machine("x86_64-linux-gnu", "x86-64"),
}


def small_network() -> tvm.IRModule:
    """Convolution, softmax and quantisation: what a fallback is usually made of."""
    w = np.ones((3, 3, 3, 8), np.float32)

    def build(builder: Any, x: Any) -> Any:
        convolved = builder.emit(
            relax.op.nn.conv2d(x, constant(w), padding=1, data_layout="NHWC", kernel_layout="HWIO")
        )
        shares = builder.emit(relax.op.nn.softmax(builder.emit(relax.op.nn.relu(convolved))))
        scale, zero = constant(np.float32(1 / 256)), constant(np.int8(-128))
        return relax.op.quantize(shares, scale, zero, out_dtype="int8")

    return graph_of(build, [np.zeros((1, 6, 6, 3), np.float32)])


def symbols(code: bytes, directory: Path) -> dict[str, str]:
    """Each symbol of an object and its kind, as nm prints it."""
    path = directory / "kernels.o"
    path.write_bytes(code)
    lines = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1]: line.split()[-2] for line in lines.splitlines()}


def test_object_needs_nothing_but_libm(tmp_path: Path) -> None:
    module = lower_to_kernels(small_network(), HOST)
    kernels = compile_kernels(module, HOST, prefix="net_")
    found = symbols(kernels.code, tmp_path)
    undefined = {name for name, kind in found.items() if kind == "U"}
    assert undefined <= LIBM
    defined = {name for name, kind in found.items() if kind == "T"}
    assert defined == {signature.symbol for signature in kernels.signatures.values()}
    assert all(name.startswith("net_") for name in defined)


@pytest.mark.parametrize("name", MACHINES)
def test_object_for_another_machine(name: str, tmp_path: Path) -> None:
    module = lower_to_kernels(small_network(), MACHINES[name])
    kernels = compile_kernels(module, MACHINES[name])
    assert kernels.code[:4] == b"\x7fELF"
    assert kernels.triple == MACHINES[name].triple
    bits = 1 if name == "thumb" else 2
    assert kernels.code[4] == bits
    assert not re.search(rb"TVM(Backend|FFI|API)\w+", kernels.code)


@pytest.mark.parametrize("name", MACHINES)
def test_kernels_for_another_machine_also_build_here(name: str) -> None:
    """A board's artifact runs on the host too: one lowering, two objects, one calling sequence."""
    module = lower_to_kernels(small_network(), MACHINES[name])
    here, there = compile_kernels(module, HOST), compile_kernels(module, MACHINES[name])
    assert here.signatures == there.signatures


def test_same_bytes_each_time() -> None:
    first, second = (
        compile_kernels(lower_to_kernels(small_network(), HOST), HOST).code for _ in range(2)
    )
    assert first == second


def test_signature_tells_arguments_and_tasks() -> None:
    module = lower_to_kernels(
        graph_of(lambda _builder, x: relax.op.nn.relu(x), [np.zeros((3, 50), np.float32)]), HOST
    )
    (signature,) = compile_kernels(module, HOST).signatures.values()
    assert signature.arguments == (KernelArgument((3, 50), "float32"),) * 2
    assert signature.tasks >= 1


def test_equal_layers_share_one_kernel() -> None:
    w = np.ones((8, 8), np.float32)

    def build(builder: Any, x: Any) -> Any:
        for scale in (1, 2, 3):
            x = builder.emit(
                relax.op.nn.relu(builder.emit(relax.op.matmul(x, constant(w * scale))))
            )
        return x

    module = lower_to_kernels(graph_of(build, [np.zeros((5, 8), np.float32)]), HOST)
    assert len(compile_kernels(module, HOST).signatures) == 1


@pytest.mark.parametrize(
    "cpu,message",
    [
        (machine("aarch64-linux-gnu", "cortex-z9"), "cpu cortex-z9: LLVM does not know it"),
        (machine("vax-none-none", ""), "triple vax-none-none: no kernels for vax"),
    ],
)
def test_unknown_machine(cpu: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        resolve(cpu)


def test_this_machine_is_known() -> None:
    facts = resolve(HOST)
    assert "native" not in (facts.triple, facts.cpu, facts.features)


@pytest.mark.parametrize(
    "name,bits,registers", [("aarch64", 128, 32), ("riscv64", 0, 16), ("thumb", 128, 8)]
)
def test_vectors_of_a_machine(name: str, bits: int, registers: int) -> None:
    facts = resolve(MACHINES[name])
    assert (facts.vector_bits, facts.vector_registers) == (bits, registers)
