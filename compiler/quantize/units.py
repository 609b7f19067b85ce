"""What of a float graph becomes int8: operators with what is fused into them, and their tensors.

A unit is computed on int8 as a whole: convolution, bias and ReLU; a sum and its ReLU; an
expression of one tensor such as x * sigmoid(x), which becomes a table. Only its inputs and its
output are quantised, not the tensors inside. Operators that move values (reshape, transpose, max
pool, ...) give their output the scale of their input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx

from tilewright.compiler.quantize.float_model import FloatGraph, attributes_of

LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")
BINARY = ("Add", "Sub", "Mul")
AVERAGES = ("AveragePool", "GlobalAveragePool", "ReduceMean")
TABLES = frozenset(
    {"Abs", "Atan", "Clip", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu"}
    | {"Log", "Neg", "Pow", "Reciprocal", "Relu", "Sigmoid", "Sqrt", "Tanh", "Div", "Add", "Sub"}
    | {"Mul", "Softplus", "Selu", "Mish", "Softsign"}
)
MOVEMENTS = frozenset(
    {"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Split", "Identity"}
    | {"DepthToSpace", "SpaceToDepth", "MaxPool", "GlobalMaxPool", "Expand", "Tile", "Gather"}
    | {"Dropout", "ReduceMax", "Pad"}
)


@dataclass
class Unit:
    """One quantised operator: `name` is the node that does the work, `nodes` all of it."""

    name: str
    kind: str  # "linear", "binary", "average", "softmax", "table", "concat"
    nodes: list[str]
    inputs: list[str]
    output: str
    weight: str = ""  # the constant weight of a linear unit
    bias: str = ""  # its constant bias, in the operator or added after it
    activation: str = ""  # op_type of the fused activation


@dataclass
class Units:
    """The units in the order they are computed, and `leader` of every tensor that is moved."""

    units: list[Unit] = field(default_factory=list)
    leaders: dict[str, str] = field(default_factory=dict)

    def leader(self, tensor: str) -> str:
        """The tensor whose scale this one shares: where its values were computed."""
        while self.leaders.get(tensor, tensor) != tensor:
            tensor = self.leaders[tensor]
        return tensor

    def named(self, name: str) -> Unit | None:
        return next((unit for unit in self.units if name == unit.name or name in unit.nodes), None)

    def tensors(self) -> Iterator[str]:
        """Every tensor that is the input or output of some unit, leaders only, once each."""
        names = (t for unit in self.units for t in (*unit.inputs, unit.output))
        yield from dict.fromkeys(self.leader(name) for name in names)


def find_units(graph: FloatGraph) -> Units:
    """The units of a prepared float graph."""
    return _Search(graph).run()


class _Search:
    def __init__(self, graph: FloatGraph) -> None:
        self.graph = graph
        self.found = Units()
        self.taken: set[str] = set()
        self.roots: dict[str, str] = {}  # tensor inside a table -> the tensor it is a function of
        self.table_nodes: dict[str, list[str]] = {}

    def run(self) -> Units:
        for node in self.graph.graph.node:
            if node.name in self.taken or not self.graph.is_float(node.output[0]):
                continue
            if node.op_type in MOVEMENTS:
                self._movement(node)
            else:
                self._unit(node)
        self._tables()
        order = {node.name: place for place, node in enumerate(self.graph.graph.node)}
        self.found.units.sort(key=lambda unit: order[unit.name])
        self._join_concats()
        return self.found

    def _movement(self, node: onnx.NodeProto) -> None:
        source = node.input[0]
        if not self.graph.is_float(source) or source in self.graph.constants:
            return
        if node.op_type == "Pad" and not self._pads_zeros(node):
            return
        for output in node.output:
            if output:
                self.found.leaders[output] = source

    def _pads_zeros(self, node: onnx.NodeProto) -> bool:
        if attributes_of(node).get("mode", b"constant") != b"constant":
            return True
        if len(node.input) < 3 or not node.input[2]:
            return True
        value = self.graph.array(node.input[2])
        return value is not None and not np.any(value)

    def _unit(self, node: onnx.NodeProto) -> None:
        activations = self._activations(node)
        if node.op_type in LINEAR:
            self._linear(node, activations)
        elif self._is_table(node, activations):
            root = self._root(activations[0])
            self.roots[node.output[0]] = root
            inside = [n for name in activations for n in self.table_nodes.get(name, [])]
            self.table_nodes[node.output[0]] = [*dict.fromkeys(inside), node.name]
        elif node.op_type in BINARY and all(self.graph.is_float(n) for n in node.input):
            self._append(node, "binary", list(node.input), fuses=True)
        elif node.op_type in AVERAGES and len(activations) == 1:
            self._append(node, "average", activations, fuses=True)
        elif node.op_type == "Softmax":
            self._append(node, "softmax", activations, fuses=False)
        elif node.op_type == "Concat" and len(activations) == len(node.input):
            self._append(node, "concat", activations, fuses=False)

    def _activations(self, node: onnx.NodeProto) -> list[str]:
        """The floats a node reads that are no constants."""
        return [
            name
            for name in node.input
            if name and name not in self.graph.constants and self.graph.is_float(name)
        ]

    def _root(self, tensor: str) -> str:
        return self.roots.get(tensor, tensor)

    def _is_table(self, node: onnx.NodeProto, activations: list[str]) -> bool:
        """Whether the node computes each element from one element of one tensor."""
        if node.op_type not in TABLES or not activations:
            return False
        if len({self._root(name) for name in activations}) != 1:
            return False
        constants = [self.graph.array(name) for name in node.input if name not in activations]
        return all(constant is None or constant.size == 1 for constant in constants)

    def _linear(self, node: onnx.NodeProto, activations: list[str]) -> None:
        weight = node.input[1] if node.input[1] in self.graph.constants else ""
        if not weight and (node.op_type != "MatMul" or len(activations) != 2):
            return
        if node.op_type == "Gemm" and not _is_plain_gemm(node):
            return
        bias = node.input[2] if len(node.input) > 2 else ""
        if bias and bias not in self.graph.constants:
            return
        if bias and node.op_type == "Gemm" and self._channels_of(bias) is None:
            return
        inputs = activations if not weight else activations[:1]
        self._append(node, "linear", inputs, fuses=True, weight=weight, bias=bias)

    def _channels_of(self, bias: str) -> int | None:
        values = self.graph.array(bias)
        return None if values is None or values.ndim != 1 else int(values.size)

    def _append(
        self,
        node: onnx.NodeProto,
        kind: str,
        inputs: list[str],
        *,
        fuses: bool,
        weight: str = "",
        bias: str = "",
    ) -> None:
        unit = Unit(node.name, kind, [node.name], inputs, node.output[0], weight, bias)
        self.taken.add(node.name)
        if kind == "linear" and weight and not bias:
            self._fuse_bias(unit, node)
        if fuses:
            self._fuse_activation(unit)
        self.found.units.append(unit)

    def _fuse_bias(self, unit: Unit, node: onnx.NodeProto) -> None:
        """An Add of one constant a column after a MatMul, which Gemm could not take."""
        follower = self.graph.only_reader(unit.output)
        if node.op_type != "MatMul" or follower is None or follower.op_type != "Add":
            return
        other = follower.input[1 if follower.input[0] == unit.output else 0]
        bias, weight = self.graph.array(other), self.graph.array(unit.weight)
        if bias is None or weight is None or weight.ndim != 2 or bias.ndim != 1:
            return
        if bias.size == weight.shape[1]:
            unit.bias = other
            self._extend(unit, follower)

    def _fuse_activation(self, unit: Unit) -> None:
        follower = self.graph.only_reader(unit.output)
        if follower is None or follower.op_type not in ("Relu", "Clip"):
            return
        bounds = follower.input[1:]
        if all(not name or name in self.graph.constants for name in bounds):
            unit.activation = follower.op_type
            self._extend(unit, follower)

    def _extend(self, unit: Unit, follower: onnx.NodeProto) -> None:
        unit.nodes.append(follower.name)
        unit.output = follower.output[0]
        self.taken.add(follower.name)

    def _tables(self) -> None:
        """A unit for every result of a table that something outside of it reads."""
        for output, root in self.roots.items():
            readers = self.graph.readers(output)
            inside = readers and all(self.roots.get(reader.output[0]) == root for reader in readers)
            if inside and output not in self.graph.outputs:
                continue
            nodes = self.table_nodes[output]
            self.found.units.append(Unit(nodes[-1], "table", nodes, [root], output))

    def _join_concats(self) -> None:
        """A part read by one concatenation alone is computed on the result's scale."""
        for unit in self.found.units:
            if unit.kind != "concat":
                continue
            for part in unit.inputs:
                leader = self.found.leader(part)
                alone = self.graph.only_reader(part) is not None
                if leader == part and alone and part in {u.output for u in self.found.units}:
                    self.found.leaders[part] = unit.output


def _is_plain_gemm(node: onnx.NodeProto) -> bool:
    given = attributes_of(node)
    return (
        given.get("alpha", 1.0) == 1.0 and given.get("beta", 1.0) == 1.0 and not given.get("transA")
    )
