"""Operators rewritten in ONNX itself, where the importer would give a wrong value or refuse.

A rewrite takes the node and what is known of the graph and returns the nodes that replace it, or
None to leave it. Their names derive from the replaced node's, so reports still name the user's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from tilewright.compiler.frontend.band_matrices import cumulative_sum, response_normalisation
from tilewright.compiler.frontend.onnx_graph import Graph, Nodes, attributes_of
from tilewright.compiler.frontend.pool_indices import pool_with_indices
from tilewright.compiler.frontend.recurrent import unroll_recurrence
from tilewright.compiler.frontend.resize import resize_by_matrices
from tilewright.compiler.frontend.small_rewrites import (
    boolean_extremum,
    integer_convolution,
    layer_normalisation,
    one_sided_infinity,
    power,
)
from tilewright.passes.names import derived_name


def rewrite_operators(model: onnx.ModelProto) -> None:
    """Replace, in place, every node a rewrite applies to."""
    graph = Graph(model)
    nodes: Nodes = []
    for node in model.graph.node:
        rewrite = REWRITES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        replacement = rewrite(node, graph) if rewrite else None
        for number, new in enumerate([node] if replacement is None else replacement):
            copied = onnx.NodeProto.FromString(new.SerializeToString())
            copied.name = derived_name(node.name, number)
            nodes.append(copied)
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)


def _reduced_extremum(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    """ReduceMax and ReduceMin of floats: NaN where any reduced element is NaN."""
    if not graph.is_float(node.input[0]):
        return boolean_extremum(node, graph)
    kind = graph.element_type(node.input[0])
    prefix, result = node.output[0], f"{node.output[0]}/finite"
    reduced = onnx.NodeProto.FromString(node.SerializeToString())
    reduced.output[0] = result
    flags = onnx.NodeProto.FromString(node.SerializeToString())
    flags.op_type = "ReduceMax"
    flags.input[0], flags.output[0] = f"{prefix}/flags", f"{prefix}/any"
    real = np.float32 if kind == onnx.TensorProto.FLOAT else np.float64
    nan = graph.constant(f"{prefix}/nan_value", np.asarray(np.nan, real))
    zero = graph.constant(f"{prefix}/zero", np.asarray(0, real))
    return [
        reduced,
        onnx.helper.make_node("IsNaN", [node.input[0]], [f"{prefix}/nan"]),
        onnx.helper.make_node("Cast", [f"{prefix}/nan"], [f"{prefix}/flags"], to=kind),
        flags,
        onnx.helper.make_node("Greater", [f"{prefix}/any", zero], [f"{prefix}/take"]),
        onnx.helper.make_node("Where", [f"{prefix}/take", nan, result], [prefix]),
    ]


def _dropout(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    """Dropout at inference keeps everything: the mask, where wanted, is true."""
    training = graph.array(node.input[2]) if len(node.input) > 2 else None
    if len(node.output) < 2 or not node.output[1] or (training is not None and training.any()):
        return None
    shape = graph.shapes.get(node.input[0])
    if shape is None:
        return None
    mask = graph.constant(f"{node.output[1]}/true", np.ones(shape, np.bool_))
    return [
        onnx.helper.make_node("Identity", [node.input[0]], [node.output[0]]),
        onnx.helper.make_node("Identity", [mask], [node.output[1]]),
    ]


def _hyperbolic(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    """Cosh by exponentials: kernels have no function of their own for it."""
    if not graph.is_float(node.input[0]):
        return None
    prefix, kind = node.output[0], graph.real_type(node.input[0])
    half = graph.constant(f"{prefix}/half", np.asarray(0.5, kind))
    make = onnx.helper.make_node
    return [
        make("Neg", [node.input[0]], [f"{prefix}/negative"]),
        make("Exp", [node.input[0]], [f"{prefix}/rising"]),
        make("Exp", [f"{prefix}/negative"], [f"{prefix}/falling"]),
        make("Add", [f"{prefix}/rising", f"{prefix}/falling"], [f"{prefix}/sum"]),
        make("Mul", [f"{prefix}/sum", half], [prefix]),
    ]


def _one_hot(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    """OneHot by comparison with every class, negative indices counted from the end."""
    depth, values = graph.array(node.input[1]), graph.array(node.input[2])
    shape = graph.shapes.get(node.input[0])
    if depth is None or values is None or shape is None:
        return None
    classes, rank = int(depth.reshape(-1)[0]), len(shape) + 1
    axis = int(attributes_of(node).get("axis", -1)) % rank
    prefix = node.output[0]
    wide = [1] * rank
    wide[axis] = classes
    expanded = [*shape[:axis], 1, *shape[axis:]]
    positions = np.arange(classes, dtype=np.int64).reshape(wide)
    constants = {
        "positions": positions,
        "negatives": positions - classes,
        "shape": np.asarray(expanded, np.int64),
        "off": values[:1].reshape(()),
        "on": values[1:].reshape(()),
    }
    named = {key: graph.constant(f"{prefix}/{key}", value) for key, value in constants.items()}
    make, cast = onnx.helper.make_node, f"{prefix}/index"
    return [
        make("Cast", [node.input[0]], [f"{prefix}/int64"], to=onnx.TensorProto.INT64),
        make("Reshape", [f"{prefix}/int64", named["shape"]], [cast]),
        make("Equal", [cast, named["positions"]], [f"{prefix}/forward"]),
        make("Equal", [cast, named["negatives"]], [f"{prefix}/backward"]),
        make("Or", [f"{prefix}/forward", f"{prefix}/backward"], [f"{prefix}/hot"]),
        make("Where", [f"{prefix}/hot", named["on"], named["off"]], [prefix]),
    ]


def _conv_transpose(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    """ConvTranspose with output_shape: the padding that gives it, spelled out."""
    given = attributes_of(node)
    image, weight = graph.shapes.get(node.input[0]), graph.shapes.get(node.input[1])
    if "output_shape" not in given or image is None or weight is None:
        return None
    wanted = [int(extent) for extent in given.pop("output_shape")][-(len(image) - 2) :]
    count = len(wanted)
    strides, dilations = given.get("strides", [1] * count), given.get("dilations", [1] * count)
    extra = list(given.get("output_padding", [0] * count))
    upper = given.pop("auto_pad", b"NOTSET") == b"SAME_UPPER"
    before, after = [], []
    for axis in range(count):
        reach = (weight[2 + axis] - 1) * dilations[axis] + 1
        total = strides[axis] * (image[2 + axis] - 1) + extra[axis] + reach - wanted[axis]
        if total < 0:
            extra[axis] -= total
            total = 0
        small, large = total // 2, total - total // 2
        before.append(small if upper else large)
        after.append(large if upper else small)
    given |= {"pads": before + after, "output_padding": extra}
    return [onnx.helper.make_node("ConvTranspose", node.input, node.output, **given)]


def _explicit_pads(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    """auto_pad of convolutions and pools as numbers; the importer would add a Pad instead."""
    given = attributes_of(node)
    mode = given.pop("auto_pad", b"NOTSET")
    image = graph.shapes.get(node.input[0])
    kernel = given.get("kernel_shape")
    if kernel is None:
        weight = graph.shapes.get(node.input[3 if node.op_type == "QLinearConv" else 1])
        kernel = None if weight is None else weight[2:]
    if mode not in (b"SAME_UPPER", b"SAME_LOWER") or image is None or kernel is None:
        return None
    ones = [1] * len(kernel)
    windows = zip(
        image[2:], kernel, given.get("strides", ones), given.get("dilations", ones), strict=True
    )
    totals = [same_padding(*window) for window in windows]
    small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
    given["pads"] = small + large if mode == b"SAME_UPPER" else large + small
    return [onnx.helper.make_node(node.op_type, node.input, node.output, **given)]


def _max_pool(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    return pool_with_indices(node, graph) or _explicit_pads(node, graph)


def _lp_normalisation(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    """x / (norm of x along the axis), and zero where that norm is."""
    if not graph.is_float(node.input[0]):
        return None
    given, prefix = attributes_of(node), node.output[0]
    kind = graph.real_type(node.input[0])
    axes = graph.constant(f"{prefix}/axes", np.asarray([given.get("axis", -1)], np.int64))
    zero = graph.constant(f"{prefix}/zero", np.asarray(0, kind))
    one = graph.constant(f"{prefix}/one", np.asarray(1, kind))
    make, norm = onnx.helper.make_node, f"{prefix}/norm"
    if given.get("p", 2) == 1:
        reduced = [
            make("Abs", [node.input[0]], [f"{prefix}/abs"]),
            make("ReduceSum", [f"{prefix}/abs", axes], [norm], keepdims=1),
        ]
    else:
        reduced = [
            make("Mul", [node.input[0]] * 2, [f"{prefix}/square"]),
            make("ReduceSum", [f"{prefix}/square", axes], [f"{prefix}/sum"], keepdims=1),
            make("Sqrt", [f"{prefix}/sum"], [norm]),
        ]
    return [
        *reduced,
        make("Equal", [norm, zero], [f"{prefix}/empty"]),
        make("Where", [f"{prefix}/empty", one, norm], [f"{prefix}/divisor"]),
        make("Div", [node.input[0], f"{prefix}/divisor"], [prefix]),
    ]


def _blocked_dequantize(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    """DequantizeLinear by blocks: every element with the scale of its block, spelled out."""
    given, shape = attributes_of(node), graph.shapes.get(node.input[0])
    scale = graph.array(node.input[1])
    if not given.get("block_size") or scale is None or shape is None:
        return None
    axis, size, prefix = given.get("axis", 1) % len(shape), given["block_size"], node.output[0]

    def spread(blocks: np.ndarray) -> np.ndarray:
        return np.repeat(blocks, size, axis).take(range(shape[axis]), axis)

    kind = onnx.helper.np_dtype_to_tensor_dtype(scale.dtype)
    make, steps = onnx.helper.make_node, f"{prefix}/steps"
    nodes = [make("Cast", [node.input[0]], [steps], to=kind)]
    if len(node.input) > 2 and node.input[2]:
        zero = graph.array(node.input[2])
        if zero is None:
            return None
        zeros = graph.constant(f"{prefix}/zeros", spread(zero.astype(scale.dtype)))
        nodes.append(make("Sub", [steps, zeros], [f"{prefix}/shifted"]))
        steps = f"{prefix}/shifted"
    scales = graph.constant(f"{prefix}/scales", spread(scale))
    return [*nodes, make("Mul", [steps, scales], [prefix])]


def same_padding(extent: int, kernel: int, stride: int, dilation: int) -> int:
    """Padding along one axis that gives ceil(extent / stride) windows."""
    outputs = -(-extent // stride)
    return max(0, (outputs - 1) * stride + (kernel - 1) * dilation + 1 - extent)


def _resize(node: onnx.NodeProto, graph: Graph) -> Nodes | None:
    return resize_by_matrices(node, graph.model, graph.shapes, graph.array, graph.constant)


REWRITES: dict[str, Callable[[onnx.NodeProto, Graph], Nodes | None]] = {
    **dict.fromkeys(("GRU", "LSTM", "RNN"), unroll_recurrence),
    "AveragePool": _explicit_pads,
    "Conv": _explicit_pads,
    "ConvInteger": integer_convolution,
    "ConvTranspose": _conv_transpose,
    "Cosh": _hyperbolic,
    "CumSum": cumulative_sum,
    "DequantizeLinear": _blocked_dequantize,
    "Dropout": _dropout,
    "IsInf": one_sided_infinity,
    "LayerNormalization": layer_normalisation,
    "LRN": response_normalisation,
    "LpNormalization": _lp_normalisation,
    "MaxPool": _max_pool,
    "OneHot": _one_hot,
    "Pow": power,
    "QLinearConv": _explicit_pads,
    "ReduceMax": _reduced_extremum,
    "ReduceMin": _reduced_extremum,
    "Resize": _resize,
}
