"""Put the compiled parts together: steps with their arguments' places, ports, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax

from tilewright.compiler.cpu.kernels import Kernels
from tilewright.compiler.npu.backend import EmittedRegion
from tilewright.compiler.program import (
    KernelCall,
    NpuCall,
    Objects,
    Port,
    Program,
    Reference,
)
from tilewright.compiler.report import ReportBuilder
from tilewright.compiler.weights import Weights
from tilewright.passes.constants import array_of
from tilewright.passes.names import onnx_nodes_of
from tilewright.passes.partition import bindings_of
from tilewright.passes.placement_reasons import PlacementReasons
from tilewright.passes.views import Copy
from tilewright.targets.description import Target


@dataclass(frozen=True)
class Parts:
    """All that compilation has produced; `module` is what RunCodegen left."""

    name: str
    model: onnx.ModelProto
    module: tvm.IRModule
    target: Target
    host: Kernels
    board: Kernels | None
    regions: Mapping[str, EmittedRegion]
    reasons: PlacementReasons
    weights: Weights
    copies: Mapping[str, Copy]


def assemble(parts: Parts, fallback: bool) -> Program:
    """The program; PlacementError where an operator is on the CPU against the user's demand."""
    assembly = _Assembly(parts)
    assembly.walk()
    assembly.report.check_demands(fallback)
    main = parts.module["main"]
    graph = parts.model.graph
    weights = parts.weights.blob()
    arena_bytes = int(main.attrs["arena_bytes"])
    return Program(
        name=parts.name,
        inputs=assembly.ports([param.name for param in main.params], main.params),
        outputs=assembly.ports([info.name for info in graph.output], [main.body.body]),
        steps=tuple(assembly.steps),
        arena_bytes=arena_bytes,
        weights=weights,
        host=_objects(parts.host),
        board=_objects(parts.board) if parts.board else None,
        operators=tuple(assembly.report.operators),
        totals=assembly.report.totals(
            arena_bytes, int(main.attrs["arena_bound_bytes"]), len(weights)
        ),
        target_toml=parts.target.source,
        notes=tuple(assembly.report.notes),
        timeline=tuple(assembly.report.timeline.spans),
    )


def _objects(kernels: Kernels) -> Objects:
    return Objects(kernels.triple, kernels.cpu, kernels.features, kernels.code)


@dataclass
class _Assembly:
    parts: Parts
    steps: list[KernelCall | NpuCall] = field(default_factory=list)
    places: dict[relax.Var, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.report = ReportBuilder(
            self.parts.target,
            self.parts.reasons,
            self.parts.model,
            self.parts.regions,
            self.parts.copies,
        )

    def walk(self) -> None:
        """Turn every binding that computes something into a step."""
        main = self.parts.module["main"]
        rows = [[int(offset) for offset in row] for row in main.attrs["arena_offsets"]]
        for param, row in zip(main.params, rows, strict=False):
            self.places[param] = row
        for binding, row in zip(bindings_of(main), rows[len(main.params) :], strict=True):
            self.places[binding.var] = row
            name = getattr(getattr(binding.value, "op", None), "name", "")
            if name == "relax.call_tir":
                self._kernel_call(binding.value, row)
            elif name == "relax.call_dps_packed":
                self._npu_call(binding.value)

    def ports(self, names: Sequence[str], values: Sequence[relax.Expr]) -> tuple[Port, ...]:
        """Inputs or outputs where the plan put `values`, tuples among them taken apart."""
        parts = [
            part
            for value in values
            for part in (value.fields if isinstance(value, relax.Tuple) else [value])
        ]
        places = [
            (kind, offset)
            for part in parts
            for kind, offset in zip(tensor_types(part), self.places[part], strict=True)
        ]
        return tuple(
            Port(
                name, tuple(int(extent) for extent in kind.shape.values), str(kind.dtype.dtype), at
            )
            for name, (kind, at) in zip(names, places, strict=True)
        )

    def _kernel_call(self, call: relax.Call, outputs: list[int]) -> None:
        kernel = call.args[0].name_hint
        signature = self.parts.host.signatures[kernel]
        arguments = [self._reference(argument) for argument in call.args[1].fields]
        arguments += [Reference("arena", offset) for offset in outputs]
        row = self.report.add_cpu(onnx_nodes_of(call), kernel, _facts(call))
        self.steps.append(KernelCall((row,), signature.symbol, tuple(arguments), signature.tasks))

    def _npu_call(self, call: relax.Call) -> None:
        symbol = str(call.args[0].global_symbol)
        arena_bytes = int(self.parts.module["main"].attrs["arena_bytes"])
        rows = self.report.add_region(symbol, self.parts.weights.blob(), arena_bytes)
        self.steps.append(NpuCall(tuple(rows), symbol, self.parts.regions[symbol].stream))

    def _reference(self, argument: relax.Expr) -> Reference:
        array = array_of(argument)
        if array is not None:
            data = np.ascontiguousarray(array).tobytes()
            return Reference("weights", self.parts.weights.add(data))
        return Reference("arena", self.places[argument][0])


def tensor_types(expr: relax.Expr) -> list[relax.TensorType]:
    """The type of a tensor, or those of a tuple's tensors."""
    return list(expr.ty.fields) if isinstance(expr.ty, relax.TupleType) else [expr.ty]


def _facts(call: relax.Call) -> dict[str, Any]:
    """Bytes a kernel reads and writes."""
    return {
        "types": [kind for moved in (*call.args[1].fields, call) for kind in tensor_types(moved)]
    }
