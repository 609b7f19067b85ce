"""Straight-line graphs: branches become choices, loops of known length become their iterations.

    If(c, then, else)             ->  both branches, and Where(c, then, else); one, if c is known
    Loop(n, true, state), n known ->  the body n times, each on the state the one before left
    Scan(state, sequences)        ->  likewise, a slice of each sequence an iteration

Computing both branches is right because ONNX operators have no effects. Kernels and memory are
planned for straight-line programs, so whatever control flow is left is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx.numpy_helper

from tilewright.compiler.frontend.folding import known_shapes, with_inferred_shapes
from tilewright.passes.names import derived_name
from tilewright.targets.errors import ModelError

LONGEST_LOOP = 4096
CONTROL_FLOW = ("If", "Loop", "Scan")


def flatten_control_flow(model: onnx.ModelProto) -> bool:
    """Flatten, in place, every If, Loop and Scan that can be now; whether there was any."""
    if not any(node.op_type in CONTROL_FLOW for node in model.graph.node):
        return False
    flattener = _Flattener(model)
    nodes = list(model.graph.node)
    made = [new for node in nodes for new in flattener.flattened(node)]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in made]
    model.graph.ClearField("node")
    model.graph.node.extend(copies)
    return len(copies) != len(nodes) or any(
        a.op_type != b.op_type for a, b in zip(nodes, copies, strict=True)
    )


def refuse_control_flow(model: onnx.ModelProto) -> None:
    """ModelError for the first control flow that could not be flattened."""
    for node in model.graph.node:
        if node.op_type == "If":
            raise ModelError(
                f"{node.name}: the branches of If give different or unknown shapes; "
                f"make them alike or cut the model before it"
            )
        if node.op_type in CONTROL_FLOW:
            raise ModelError(
                f"{node.name}: {node.op_type} runs as often as its data say; "
                f"export the model with a fixed number of iterations or cut it before the loop"
            )


class _Flattener:
    def __init__(self, model: onnx.ModelProto) -> None:
        inferred = with_inferred_shapes(model).graph
        self.graph = model.graph
        self.opsets = model.opset_import
        self.shapes = known_shapes(inferred)
        self.arrays = {t.name: t for t in model.graph.initializer}
        self.count = 0

    def flattened(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """The nodes that replace `node`: itself where it is no control flow or must wait."""
        try:
            return self._expanded(node)
        except (IndexError, KeyError, ValueError):  # one list is shorter than its counterpart
            raise ModelError(
                f"{node.name}: the body of this {node.op_type} does not fit its inputs "
                f"and outputs; export the model again"
            ) from None

    def _expanded(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        bodies = {a.name: a.g for a in node.attribute if a.HasField("g")}
        if node.op_type == "If":
            return self._branch(node, bodies["then_branch"], bodies["else_branch"]) or [node]
        if node.op_type == "Loop":
            return self._loop(node, bodies["body"]) or [node]
        if node.op_type == "Scan":
            return self._scan(node, bodies["body"]) or [node]
        return [node]

    def _branch(
        self, node: onnx.NodeProto, then: onnx.GraphProto, otherwise: onnx.GraphProto
    ) -> list[onnx.NodeProto] | None:
        condition = self._number(node.input[0])
        if condition is not None:
            nodes, results = self._inlined(node, then if condition else otherwise, {})
            return [*nodes, *self._renamed(node, results, node.output)]
        nodes, taken = self._inlined(node, then, {})
        others, left = self._inlined(node, otherwise, {})
        if not self._alike(nodes + others, taken, left):
            return None
        choices = [
            self._make(node, "Where", [node.input[0], a, b], [result])
            for a, b, result in zip(taken, left, node.output, strict=True)
        ]
        return nodes + others + choices

    def _alike(self, nodes: list[onnx.NodeProto], taken: list[str], left: list[str]) -> bool:
        """Whether the branches give the same known shapes; Where would broadcast others."""
        trial = onnx.ModelProto(ir_version=8, opset_import=self.opsets)
        trial.graph.CopyFrom(self.graph)
        trial.graph.ClearField("node")
        trial.graph.node.extend(
            [n for n in self.graph.node if n.op_type not in CONTROL_FLOW] + nodes
        )
        shapes = known_shapes(with_inferred_shapes(trial).graph)
        return all(
            shapes.get(a) is not None and shapes.get(a) == shapes.get(b)
            for a, b in zip(taken, left, strict=True)
        )

    def _loop(self, node: onnx.NodeProto, body: onnx.GraphProto) -> list[onnx.NodeProto] | None:
        trips = self._number(node.input[0]) if node.input[0] else None
        going = True
        if len(node.input) > 1 and node.input[1]:
            going = self._number(node.input[1]) == 1
        if trips is None or not going or not 0 < trips <= LONGEST_LOOP or not _goes_on(body):
            return None
        state = list(node.input[2:])
        nodes: list[onnx.NodeProto] = []
        slices: list[list[str]] = []
        for trip in range(int(trips)):
            counter = self._constant(node, np.asarray(trip, np.int64))
            ready = self._constant(node, np.asarray(True))
            fed = dict(zip((i.name for i in body.input), [counter, ready, *state], strict=True))
            made, results = self._inlined(node, body, fed)
            nodes += made
            state = results[1 : 1 + len(state)]
            slices.append(results[1 + len(state) :])
        finals = self._renamed(node, state, node.output[: len(state)])
        axes = [0] * len(slices[0])
        return nodes + finals + self._stacked(node, slices, node.output[len(state) :], axes)

    def _scan(self, node: onnx.NodeProto, body: onnx.GraphProto) -> list[onnx.NodeProto] | None:
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        count = int(given["num_scan_inputs"])
        states = len(node.input) - count
        sequences = list(node.input[states:])
        shapes = [self.shapes.get(name) for name in sequences]
        if any(shape is None for shape in shapes):
            return None
        axes = given.get("scan_input_axes", [0] * count)
        lengths = {shape[axis] for shape, axis in zip(shapes, axes, strict=True) if shape}
        if len(lengths) != 1 or not 0 < (length := lengths.pop()) <= LONGEST_LOOP:
            return None
        backwards = given.get("scan_input_directions", [0] * count)
        state = list(node.input[:states])
        nodes: list[onnx.NodeProto] = []
        slices: list[list[str]] = []
        for step in range(length):
            taken = []
            for name, axis, backward in zip(sequences, axes, backwards, strict=True):
                place = self._constant(node, np.asarray(length - 1 - step if backward else step))
                taken.append(self._fresh(node, "slice"))
                nodes.append(self._make(node, "Gather", [name, place], [taken[-1]], axis=axis))
            fed = dict(zip((i.name for i in body.input), [*state, *taken], strict=True))
            made, results = self._inlined(node, body, fed)
            nodes += made
            state, kept = results[:states], results[states:]
            slices.append(kept)
        finals = self._renamed(node, state, node.output[:states])
        outputs = node.output[states:]
        reverse = given.get("scan_output_directions", [0] * len(outputs))
        columns = [
            list(column)[::-1] if backward else list(column)
            for column, backward in zip(zip(*slices, strict=True), reverse, strict=True)
        ]
        rows = [list(row) for row in zip(*columns, strict=True)]
        out_axes = list(given.get("scan_output_axes", [0] * len(outputs)))
        return nodes + finals + self._stacked(node, rows, outputs, out_axes)

    def _stacked(
        self,
        node: onnx.NodeProto,
        slices: list[list[str]],
        outputs: list[str],
        axes: list[int],
    ) -> list[onnx.NodeProto]:
        """The outputs that collect one slice an iteration, along a new axis."""
        nodes = []
        for column, (output, axis) in enumerate(zip(outputs, axes, strict=True)):
            where = self._constant(node, np.asarray([axis], np.int64))
            parts = []
            for row in slices:
                parts.append(self._fresh(node, "part"))
                nodes.append(self._make(node, "Unsqueeze", [row[column], where], [parts[-1]]))
            nodes.append(self._make(node, "Concat", parts, [output], axis=axis))
        return nodes

    def _inlined(
        self, node: onnx.NodeProto, body: onnx.GraphProto, fed: Mapping[str, str]
    ) -> tuple[list[onnx.NodeProto], list[str]]:
        """Copies of the body's nodes under names of their own, and the names of its results."""
        names = dict(fed)
        for tensor in body.initializer:
            names[tensor.name] = self._constant(node, onnx.numpy_helper.to_array(tensor))
        nodes = []
        for inner in body.node:
            copied = onnx.NodeProto.FromString(inner.SerializeToString())
            for place, name in enumerate(inner.input):
                copied.input[place] = names.get(name, name)
            for place, name in enumerate(inner.output):
                if name:
                    names[name] = copied.output[place] = self._fresh(node, name)
            _rename_outer_names(copied, names)
            copied.name = derived_name(inner.name or node.name, self.count)
            nodes.append(copied)
        return nodes, [names.get(output.name, output.name) for output in body.output]

    def _renamed(
        self, node: onnx.NodeProto, values: list[str], outputs: list[str]
    ) -> list[onnx.NodeProto]:
        return [
            self._make(node, "Identity", [value], [output])
            for value, output in zip(values, outputs, strict=True)
            if output
        ]

    def _make(
        self,
        node: onnx.NodeProto,
        operator: str,
        inputs: list[str],
        outputs: list[str],
        **given: int,
    ) -> onnx.NodeProto:
        self.count += 1
        name = derived_name(node.name, self.count)
        return onnx.helper.make_node(operator, inputs, outputs, name=name, **given)

    def _fresh(self, node: onnx.NodeProto, what: str) -> str:
        self.count += 1
        return f"{node.name}/{self.count}/{what}"

    def _constant(self, node: onnx.NodeProto, array: np.ndarray) -> str:
        name = self._fresh(node, "constant")
        self.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        return name

    def _number(self, name: str) -> float | None:
        tensor = self.arrays.get(name)
        return None if tensor is None else float(onnx.numpy_helper.to_array(tensor).reshape(-1)[0])


def _goes_on(body: onnx.GraphProto) -> bool:
    """Whether the body's condition to continue is the one it was given, or a constant true."""
    wanted, given = body.output[0].name, body.input[1].name
    producers = {name: node for node in body.node for name in node.output}
    while wanted in producers and producers[wanted].op_type in ("Identity", "Cast"):
        wanted = producers[wanted].input[0]
    if wanted == given:
        return True
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in body.initializer}
    if wanted in producers and producers[wanted].op_type == "Constant":
        value = onnx.helper.get_attribute_value(producers[wanted].attribute[0])
        constants[wanted] = onnx.numpy_helper.to_array(value)
    return wanted in constants and bool(constants[wanted].all())


def _rename_outer_names(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Rename what the graphs inside `node` read from around it."""
    for attribute in node.attribute:
        graphs = [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
        for graph in graphs:
            own = {t.name for t in graph.initializer} | {i.name for i in graph.input}
            own |= {name for inner in graph.node for name in inner.output}
            visible = {old: new for old, new in names.items() if old not in own}
            for inner in graph.node:
                for place, name in enumerate(inner.input):
                    inner.input[place] = visible.get(name, name)
                _rename_outer_names(inner, visible)
            for output in graph.output:
                output.name = visible.get(output.name, output.name)
