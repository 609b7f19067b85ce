"""Raise a model to an operator set the importer knows well."""

from __future__ import annotations

import onnx
import onnx.version_converter

from tilewright.passes.names import derived_name

OLDEST = 13  # where Squeeze, ReduceSum and friends take their axes as inputs


def opset_of(model: onnx.ModelProto) -> int:
    """The version of the standard operator set the model was written for."""
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    return max(versions, default=1)


def raise_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model at opset 13 or later; as it was where onnx cannot convert it.

    The importer reads older operator sets too, only less of them, so a failed conversion is no
    error: what then cannot be imported is refused by name later.
    """
    if opset_of(model) >= OLDEST:
        return model
    _flatten_hardmax(model.graph)
    try:
        raised = onnx.version_converter.convert_version(model, OLDEST)
        onnx.checker.check_model(raised)
    except Exception:  # onnx raises bare RuntimeError and its own ConvertError alike
        return model
    return raised


def _flatten_hardmax(graph: onnx.GraphProto) -> None:
    """Before opset 13 Hardmax worked on its input flattened to a matrix at `axis`, 1 by default.

    onnx's converter keeps the attribute and so changes the meaning; between Flatten and Reshape
    both meanings agree.
    """
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type != "Hardmax":
            nodes.append(node)
            continue
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        x, y = node.input[0], node.output[0]
        made = [
            onnx.helper.make_node("Shape", [x], [f"{y}/shape"]),
            onnx.helper.make_node("Flatten", [x], [f"{y}/rows"], axis=axis),
            onnx.helper.make_node("Hardmax", [f"{y}/rows"], [f"{y}/hard"], axis=1),
            onnx.helper.make_node("Reshape", [f"{y}/hard", f"{y}/shape"], [y]),
        ]
        for number, replacement in enumerate(made):
            replacement.name = derived_name(node.name, number)
        nodes += made
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    graph.ClearField("node")
    graph.node.extend(copies)
