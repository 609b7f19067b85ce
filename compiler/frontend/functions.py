"""Calls of functions replaced by their bodies: the model's own, and the standard's composites.

Each call is expanded by itself, so that what it becomes carries the name of the user's node.
"""

from __future__ import annotations

from collections.abc import Container

import onnx
import onnx.defs
import onnx.helper
import onnx.inliner

from tilewright.compiler.frontend.folding import with_inferred_shapes
from tilewright.compiler.frontend.opset import opset_of
from tilewright.passes.names import derived_name


def inline_functions(model: onnx.ModelProto, known: Container[str]) -> onnx.ModelProto:
    """The model without function calls; of the standard's, those in `known` stay.

    A function onnx cannot expand stays too, and is refused by name at import.
    """
    own = {(function.domain, function.name) for function in model.functions}
    calls = [node for node in model.graph.node if _is_call(node, own, known, opset_of(model))]
    if not calls:
        return model
    inliner = _Inliner(model, own)
    nodes = [
        new
        for node in model.graph.node
        for new in (inliner.expanded(node) if node in calls else [node])
    ]
    inlined = onnx.ModelProto()
    inlined.CopyFrom(model)
    inlined.ClearField("functions")
    inlined.graph.ClearField("node")
    inlined.graph.node.extend(nodes)
    return inlined


def _is_call(
    node: onnx.NodeProto, own: Container[tuple[str, str]], known: Container[str], version: int
) -> bool:
    if (node.domain, node.op_type) in own:
        return True
    return not node.domain and node.op_type not in known and _is_composite(node.op_type, version)


def _is_composite(operator: str, version: int) -> bool:
    """Whether the standard defines the operator by others."""
    try:
        schema = onnx.defs.get_schema(operator, version, "")
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


class _Inliner:
    def __init__(self, model: onnx.ModelProto, own: set[tuple[str, str]]) -> None:
        self.model, self.own = model, own
        graph = with_inferred_shapes(model).graph
        self.types = {v.name: v for v in [*graph.value_info, *graph.input, *graph.output]}
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}

    def expanded(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """The nodes `node` stands for, their own values prefixed with its name."""
        names = [name for name in node.input if name]
        graph = onnx.helper.make_graph(
            [node],
            "call",
            [self.types[name] for name in dict.fromkeys(names) if name in self.types],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
            [self.constants[name] for name in dict.fromkeys(names) if name in self.constants],
        )
        part = onnx.helper.make_model(
            graph,
            opset_imports=self.model.opset_import,
            ir_version=self.model.ir_version,
            functions=self.model.functions,
        )
        try:
            if (node.domain, node.op_type) in self.own:
                body = onnx.inliner.inline_local_functions(part).graph.node
            else:
                body = onnx.inliner.inline_selected_functions(
                    part, [("", node.op_type)], inline_schema_functions=True
                ).graph.node
        except Exception:  # onnx raises bare RuntimeError
            return [node]
        return [self._named(new, node, number) for number, new in enumerate(body)]

    def _named(self, new: onnx.NodeProto, node: onnx.NodeProto, number: int) -> onnx.NodeProto:
        outer = {*node.input, *node.output}
        copied = onnx.NodeProto.FromString(new.SerializeToString())
        copied.name = derived_name(node.name, number)
        for values in (copied.input, copied.output):
            for place, name in enumerate(values):
                if name and name not in outer:
                    values[place] = f"{node.name}/{name}"
        return copied
