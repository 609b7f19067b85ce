"""Compile a Relax graph for this machine and run its kernels one by one through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from tilewright.compiler.cpu.kernels import Kernels, compile_kernels
from tilewright.compiler.cpu.lower import lower_to_kernels
from tilewright.passes.constants import array_of

Array = NDArray[Any]
HOST = SimpleNamespace(triple="native", cpu="native", features="native", cores=2)
VIEWS = (
    "relax.reshape",
    "relax.squeeze",
    "relax.expand_dims",
    "relax.flatten",
    "relax.permute_dims",  # only where no byte moves is it left
)


def graph_of(build: Callable[..., relax.Expr], inputs: Sequence[Array]) -> tvm.IRModule:
    """A module whose `main` is `build(builder, *variables)`, typed like `inputs`."""
    builder = relax.BlockBuilder()
    variables = [
        relax.Var(f"x{number}", relax.TensorType(array.shape, str(array.dtype)))
        for number, array in enumerate(inputs)
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            output = builder.emit_output(build(builder, *variables))
        builder.emit_func_output(output)
    return builder.get()


def run_graph(
    build: Callable[..., relax.Expr],
    inputs: Sequence[Array],
    cuts: Sequence[float] = (),
    cpu: Any = HOST,
) -> Any:
    """The result of `build` on `inputs`, its kernels run in the parts that `cuts` make of 0..1."""
    return run_module(lower_to_kernels(graph_of(build, inputs), cpu), inputs, cuts)


def run_module(module: tvm.IRModule, inputs: Sequence[Array], cuts: Sequence[float] = ()) -> Any:
    kernels = compile_kernels(module, HOST)
    with tempfile.TemporaryDirectory() as directory:
        library = load(kernels, Path(directory))
        return _Run(module["main"], kernels, library, inputs, cuts).result()


def load(kernels: Kernels, directory: Path) -> ctypes.CDLL:
    """The object linked as a library of its own, with libm and nothing else."""
    (directory / "kernels.o").write_bytes(kernels.code)
    subprocess.run(
        ["gcc", "-shared", "-Wl,-z,defs", "-o", "kernels.so", "kernels.o", "-lm", "-lc"],
        cwd=directory,
        check=True,
    )
    return ctypes.CDLL(str(directory / "kernels.so"))


class _Run:
    def __init__(
        self,
        main: relax.Function,
        kernels: Kernels,
        library: ctypes.CDLL,
        inputs: Sequence[Array],
        cuts: Sequence[float],
    ) -> None:
        self.main, self.kernels, self.library, self.cuts = main, kernels, library, cuts
        dense = map(np.ascontiguousarray, inputs)
        self.values: dict[relax.Var, Any] = dict(zip(main.params, dense, strict=True))

    def result(self) -> Any:
        for block in self.main.body.blocks:
            for binding in block.bindings:
                self.values[binding.var] = self._evaluate(binding.value)
        return self._value(self.main.body.body)

    def _value(self, expr: relax.Expr) -> Any:
        array = array_of(expr)
        if array is not None:
            return np.ascontiguousarray(array)
        if isinstance(expr, relax.Tuple):
            return [self._value(field) for field in expr.fields]
        return self.values[expr]

    def _evaluate(self, value: relax.Expr) -> Any:
        if isinstance(value, relax.TupleGetItem):
            return self._value(value.tuple_value)[value.index]
        if not isinstance(value, relax.Call):
            return self._value(value)
        if value.op.name in VIEWS:
            shape = [int(extent) for extent in value.ty.shape.values]
            return self._value(value.args[0]).reshape(shape)
        assert value.op.name == "relax.call_tir", value.op.name
        return self._call(value)

    def _call(self, call: relax.Call) -> Any:
        signature = self.kernels.signatures[call.args[0].name_hint]
        several = isinstance(call.ty, relax.TupleType)
        types = call.ty.fields if several else [call.ty]
        outputs = [
            np.full([int(extent) for extent in one.shape.values], 77, str(one.dtype.dtype))
            for one in types
        ]
        arguments = [*(self._value(one) for one in call.args[1].fields), *outputs]
        expected = [(one.shape, one.dtype) for one in signature.arguments]
        assert [(array.shape, str(array.dtype)) for array in arguments] == expected
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in arguments]
        kernel = getattr(self.library, signature.symbol)
        inner = sorted({int(signature.tasks * cut) for cut in self.cuts})
        for begin, end in zip([0, *inner], [*inner, signature.tasks], strict=True):
            assert kernel(*pointers, ctypes.c_int32(begin), ctypes.c_int32(end)) == 0
        return outputs if several else outputs[0]
