"""Sums over a window along one axis, as products by a constant matrix of ones and zeros.

CumSum(x, axis)  ->  MatMul by a triangle, reversed and exclusive ones included
LRN(x)           ->  x / (bias + alpha / size * (1x1 Conv of x * x by a band))^beta
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper
from numpy.typing import NDArray

from tilewright.compiler.frontend.onnx_graph import Graph, Nodes, attributes_of

LONGEST_AXIS = 4096


def triangle(extent: int, *, exclusive: bool, reverse: bool) -> NDArray[Any]:
    """[from, to]: one where element `from` is part of the sum at `to`."""
    ones = np.ones((extent, extent))
    upper = np.triu(ones, 1 if exclusive else 0)
    return upper.T if reverse else upper


def band(extent: int, size: int) -> NDArray[Any]:
    """[to, from]: one where channel `from` is in the window of `size` around channel `to`."""
    distance = np.arange(extent)[None, :] - np.arange(extent)[:, None]
    return (distance >= -((size - 1) // 2)) & (distance <= size // 2)


def cumulative_sum(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    shape, axis_array = graph.shapes.get(node.input[0]), graph.array(node.input[1])
    if shape is None or axis_array is None or not shape or not graph.is_float(node.input[0]):
        return None
    axis, given = int(axis_array.reshape(-1)[0]) % len(shape), attributes_of(node)
    if not 0 < shape[axis] <= LONGEST_AXIS:
        return None
    kind, prefix = graph.real_type(node.input[0]), node.output[0]
    matrix = triangle(
        shape[axis], exclusive=bool(given.get("exclusive")), reverse=bool(given.get("reverse"))
    )
    weight = graph.constant(f"{prefix}/triangle", matrix.astype(kind))
    make = onnx.helper.make_node
    if axis == len(shape) - 1:
        return [make("MatMul", [node.input[0], weight], [prefix])]
    order = [a for a in range(len(shape)) if a != axis] + [axis]
    back = [order.index(a) for a in range(len(shape))]
    return [
        make("Transpose", [node.input[0]], [f"{prefix}/last"], perm=order),
        make("MatMul", [f"{prefix}/last", weight], [f"{prefix}/sums"]),
        make("Transpose", [f"{prefix}/sums"], [prefix], perm=back),
    ]


def response_normalisation(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    shape = graph.shapes.get(node.input[0])
    if shape is None or len(shape) != 4 or not graph.is_float(node.input[0]):
        return None
    given, prefix = attributes_of(node), node.output[0]
    kind, size = graph.real_type(node.input[0]), int(given["size"])
    factor = given.get("alpha", 1e-4) / size
    window = band(shape[1], size).astype(kind)[:, :, None, None] * kind(factor)
    weight = graph.constant(f"{prefix}/window", window.astype(kind))
    bias = graph.constant(f"{prefix}/bias", np.full(shape[1], given.get("bias", 1.0), kind))
    beta = graph.constant(f"{prefix}/beta", np.asarray(given.get("beta", 0.75), kind))
    make = onnx.helper.make_node
    return [
        make("Mul", [node.input[0]] * 2, [f"{prefix}/square"]),
        make("Conv", [f"{prefix}/square", weight, bias], [f"{prefix}/scale"]),
        make("Pow", [f"{prefix}/scale", beta], [f"{prefix}/power"]),
        make("Div", [node.input[0], f"{prefix}/power"], [prefix]),
    ]
