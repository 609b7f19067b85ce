"""Rewrites of single operators that the importer takes in part only.

IsInf(x, one sign)            ->  IsInf(x) and x on that side of zero
y, mean, inverse = LayerNorm  ->  y = LayerNorm; mean and inverse from ReduceMean
Pow(float, other type)        ->  Pow(float, Cast)
ReduceMax of bool             ->  Cast, ReduceMax, Cast
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
from onnx import TensorProto

from tilewright.compiler.frontend.onnx_graph import Graph, Nodes, attributes_of
from tilewright.compiler.frontend.opset import opset_of

make = onnx.helper.make_node


def one_sided_infinity(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    given, prefix, x = attributes_of(node), node.output[0], node.input[0]
    above, below = bool(given.get("detect_positive", 1)), bool(given.get("detect_negative", 1))
    if above == below or not graph.is_float(x):
        return None
    zero = graph.constant(f"{prefix}/zero", np.asarray(0, graph.real_type(x)))
    return [
        make("IsInf", [x], [f"{prefix}/either"]),
        make("Greater" if above else "Less", [x, zero], [f"{prefix}/side"]),
        make("And", [f"{prefix}/either", f"{prefix}/side"], [prefix]),
    ]


def layer_normalisation(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    shape, given = graph.shapes.get(node.input[0]), attributes_of(node)
    wanted = [*node.output[1:], "", ""][:2]
    if not any(wanted) or shape is None or not graph.is_float(node.input[0]):
        return None
    prefix, x, kind = f"{node.output[0]}/moments", node.input[0], graph.real_type(node.input[0])
    first = given.get("axis", -1) % len(shape)
    axes = np.arange(first, len(shape), dtype=np.int64)

    def average(value: str, result: str) -> onnx.NodeProto:
        if opset_of(graph.model) < 18:  # where axes were attributes
            return make("ReduceMean", [value], [result], axes=[int(axis) for axis in axes])
        return make("ReduceMean", [value, graph.constant(f"{prefix}/axes", axes)], [result])

    epsilon = graph.constant(f"{prefix}/epsilon", np.asarray(given.get("epsilon", 1e-5), kind))
    mean = wanted[0] or f"{prefix}/mean"
    return [
        make("LayerNormalization", node.input, node.output[:1], **given),
        average(x, mean),
        make("Sub", [x, mean], [f"{prefix}/centred"]),
        make("Mul", [f"{prefix}/centred"] * 2, [f"{prefix}/square"]),
        average(f"{prefix}/square", f"{prefix}/variance"),
        make("Add", [f"{prefix}/variance", epsilon], [f"{prefix}/positive"]),
        make("Sqrt", [f"{prefix}/positive"], [f"{prefix}/deviation"]),
        make("Reciprocal", [f"{prefix}/deviation"], [wanted[1] or f"{prefix}/inverse"]),
    ]


def integer_convolution(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    """Padding is by the zero point, which is zero once it is subtracted."""
    prefix, rank = node.output[0], len(graph.shapes.get(node.input[1], ()))
    zeros = [*node.input[2:], "", ""][:2]
    nodes: Nodes = []
    for what, operand, zero in zip(("image", "weight"), node.input, zeros, strict=False):
        wide = f"{prefix}/{what}"
        nodes.append(make("Cast", [operand], [wide], to=TensorProto.INT32))
        if zero:
            value = graph.array(zero)
            if value is None or not rank:
                return None
            spread = value.astype(np.int32)
            if spread.size > 1:  # a zero point for each output channel
                spread = spread.reshape(-1, *[1] * (rank - 1))
            offset = graph.constant(f"{wide}/zero", spread)
            nodes.append(make("Sub", [wide, offset], [f"{wide}/centred"]))
    operands = [f"{prefix}/{what}" + "/centred" * bool(zero)
                for what, zero in zip(("image", "weight"), zeros, strict=True)]  # fmt: skip
    return [*nodes, make("Conv", operands, node.output, **attributes_of(node))]


def power(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    base, exponent = (graph.element_type(name) for name in node.input)
    if base == exponent or not graph.is_float(node.input[0]):
        return None
    cast = f"{node.output[0]}/exponent"
    return [
        make("Cast", [node.input[1]], [cast], to=base),
        make("Pow", [node.input[0], cast], node.output),
    ]


def boolean_extremum(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    if graph.element_type(node.input[0]) != TensorProto.BOOL:
        return None
    prefix, given = node.output[0], attributes_of(node)
    numbers = [f"{prefix}/numbers", *node.input[1:]]
    return [
        make("Cast", [node.input[0]], numbers[:1], to=TensorProto.INT32),
        make(node.op_type, numbers, [f"{prefix}/reduced"], **given),
        make("Cast", [f"{prefix}/reduced"], [prefix], to=TensorProto.BOOL),
    ]
