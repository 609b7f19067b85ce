"""Sequences of tensors whose make-up is known: each element becomes a tensor of its own.

    q = SplitToSequence(x); e = SequenceErase(q, 1); y = ConcatFromSequence(e)
    ->  a, b, c = Split(x); y = Concat(a, c)

A sequence is then only a list of names at compile time. What cannot be followed stays, and is
refused by name at import.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper

from tilewright.compiler.frontend.onnx_graph import Graph, Nodes, attributes_of


def flatten_sequences(model: onnx.ModelProto) -> None:
    """Replace, in place, the operators on sequences whose elements are known."""
    if not any("Sequence" in node.op_type for node in model.graph.node):
        return
    flattening = _Flattening(Graph(model))
    for node in model.graph.node:
        copied = onnx.NodeProto.FromString(node.SerializeToString())
        flattening.nodes += flattening.replaced(copied) or [copied]
    model.graph.ClearField("node")
    read = {name for node in flattening.nodes for name in node.input}
    read |= {output.name for output in model.graph.output}
    model.graph.node.extend(
        node for node in flattening.nodes if any(name in read for name in node.output)
    )


class _Flattening:
    """`elements` holds the tensors of every sequence that is known so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: Nodes = []
        self.elements: dict[str, list[str]] = {}

    def replaced(self, node: onnx.NodeProto) -> Nodes | None:
        """The nodes in place of `node`; None to keep it."""
        if node.op_type == "SequenceConstruct":
            self.elements[node.output[0]] = list(node.input)
            return None
        if node.op_type == "SequenceEmpty":
            self.elements[node.output[0]] = []
            return None
        if node.op_type == "SplitToSequence":
            return self._split(node)
        known = self.elements.get(node.input[0]) if node.input else None
        if known is None:
            return None
        if node.op_type == "SequenceInsert":
            place = self._place(node, 2, len(known))
            if place is not None:
                self.elements[node.output[0]] = [*known[:place], node.input[1], *known[place:]]
        elif node.op_type == "SequenceErase":
            place = self._place(node, 1, len(known) - 1)
            if place is not None:
                self.elements[node.output[0]] = [*known[:place], *known[place + 1 :]]
        elif node.op_type == "SequenceAt":
            place = self._place(node, 1, len(known) - 1)
            if place is not None:
                return [onnx.helper.make_node("Identity", [known[place]], node.output)]
        elif node.op_type == "SequenceLength":
            length = self.graph.constant(f"{node.output[0]}/length", np.asarray(len(known)))
            return [onnx.helper.make_node("Identity", [length], node.output)]
        elif node.op_type == "ConcatFromSequence":
            return self._concat(node, known)
        return None

    def _place(self, node: onnx.NodeProto, operand: int, default: int) -> int | None:
        if len(node.input) <= operand or not node.input[operand]:
            return default
        value = self.graph.array(node.input[operand])
        if value is None:
            return None
        place = int(value.reshape(-1)[0])
        return place + len(self.elements[node.input[0]]) if place < 0 else place

    def _split(self, node: onnx.NodeProto) -> Nodes | None:
        shape, given = self.graph.shapes.get(node.input[0]), attributes_of(node)
        if shape is None:
            return None
        axis = given.get("axis", 0) % len(shape)
        sizes, squeeze = [1] * shape[axis], not given.get("keepdims", 1)
        if len(node.input) > 1 and node.input[1]:
            split = self.graph.array(node.input[1])
            if split is None:
                return None
            squeeze = False
            if split.ndim:
                sizes = [int(size) for size in split]
            else:
                whole, rest = divmod(shape[axis], int(split))
                sizes = [int(split)] * whole + [rest] * bool(rest)
        prefix = node.output[0]
        names = [f"{prefix}/{number}" for number in range(len(sizes))]
        self.elements[prefix] = names
        pieces = [f"{name}/kept" for name in names] if squeeze else names
        lengths = self.graph.constant(f"{prefix}/sizes", np.asarray(sizes, np.int64))
        nodes = [onnx.helper.make_node("Split", [node.input[0], lengths], pieces, axis=axis)]
        if squeeze:
            axes = self.graph.constant(f"{prefix}/axis", np.asarray([axis], np.int64))
            nodes += [
                onnx.helper.make_node("Squeeze", [piece, axes], [name])
                for piece, name in zip(pieces, names, strict=True)
            ]
        return nodes

    def _concat(self, node: onnx.NodeProto, known: list[str]) -> Nodes:
        given = attributes_of(node)
        axis, stack = given["axis"], given.get("new_axis", 0)
        if not stack:
            return [onnx.helper.make_node("Concat", known, node.output, axis=axis)]
        prefix = node.output[0]
        axes = self.graph.constant(f"{prefix}/axis", np.asarray([axis], np.int64))
        widened = [f"{prefix}/{number}" for number in range(len(known))]
        return [
            *(
                onnx.helper.make_node("Unsqueeze", [name, axes], [wide])
                for name, wide in zip(known, widened, strict=True)
            ),
            onnx.helper.make_node("Concat", widened, node.output, axis=axis),
        ]
