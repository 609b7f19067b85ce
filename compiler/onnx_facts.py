"""Facts about ONNX nodes that the report states: operator types and multiply-accumulates."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import onnx

from tilewright.passes.names import SEPARATOR

CONVOLUTIONS = ("Conv", "ConvInteger", "QLinearConv")
PRODUCTS = ("MatMul", "MatMulInteger", "QLinearMatMul", "Gemm")


@dataclass(frozen=True)
class NodeFacts:
    """`macs` is None where the node multiplies and accumulates nothing, or shapes are unknown."""

    op_type: str
    macs: int | None


def node_facts(model: onnx.ModelProto) -> dict[str, NodeFacts]:
    """Facts of every node of the main graph, by the user's name for it.

    Nodes that one of the user's nodes was spelled out in count together.
    """
    shapes = _shapes(model)
    facts: dict[str, NodeFacts] = {}
    for node in model.graph.node:
        name = node.name.split(SEPARATOR)[0]
        macs, before = _macs(node, shapes), facts.get(name)
        if before is None:
            facts[name] = NodeFacts(node.op_type, macs)
        elif macs is not None:
            facts[name] = NodeFacts(before.op_type, macs + (before.macs or 0))
    return facts


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    graph = onnx.shape_inference.infer_shapes(model).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for info in (*graph.input, *graph.output, *graph.value_info):
        dims = info.type.tensor_type.shape.dim
        if all(dim.HasField("dim_value") for dim in dims):
            shapes[info.name] = tuple(dim.dim_value for dim in dims)
    return shapes


def _macs(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]]) -> int | None:
    output = shapes.get(node.output[0])
    if output is None:
        return None
    if node.op_type in CONVOLUTIONS:
        weight = shapes.get(node.input[3 if node.op_type == "QLinearConv" else 1])
        return prod(output) * prod(weight[1:]) if weight else None
    if node.op_type == "ConvTranspose":
        source, weight = shapes.get(node.input[0]), shapes.get(node.input[1])
        return prod(source) * prod(weight[1:]) if source and weight else None
    if node.op_type in PRODUCTS:
        left = shapes.get(node.input[0])
        if not left:
            return None
        transposed = node.op_type == "Gemm" and any(
            attribute.name == "transA" and attribute.i for attribute in node.attribute
        )
        return prod(output) * left[0 if transposed else -1]
    return None
