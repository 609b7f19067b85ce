"""Bring a float model into the form that is quantised: static, folded, biases in their operators.

    Conv, BatchNormalization                     ->  Conv with bias
    Conv, Add or Mul by a constant of channels   ->  Conv with bias
    MatMul by a constant, Add of a constant      ->  Gemm, for matrices

Every tensor that remains keeps its name, so results can be laid beside the user's own model. New
weights are computed in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
from numpy.typing import NDArray

from tilewright.compiler.frontend.folding import fold_constants, known_shapes, with_inferred_shapes
from tilewright.compiler.frontend.opset import raise_opset
from tilewright.compiler.frontend.shapes import Shape, bind_shapes
from tilewright.compiler.frontend.tidy import drop_unused, name_nodes, sort_nodes
from tilewright.compiler.onnx_parts import is_quantised
from tilewright.targets.errors import ModelError

Array = NDArray[Any]
CONVOLUTIONS = ("Conv", "ConvTranspose")
IR_VERSION = 8  # with opset 13 to 18; older ones repeat initialisers among the inputs


def prepare_float_model(
    model: onnx.ModelProto,
    shapes: Mapping[str, Shape] | None = None,
) -> onnx.ModelProto:
    """A copy of `model` ready to be quantised.

    Raises ModelError for a model that is quantised already or has unknown shapes.
    """
    if is_quantised(model):
        raise ModelError("the model is quantised already; give the float model it was made from")
    prepared = onnx.ModelProto()
    prepared.CopyFrom(model)
    bind_shapes(prepared, shapes)
    sort_nodes(prepared.graph)
    name_nodes(prepared.graph)
    prepared = raise_opset(prepared)
    drop_unused(prepared.graph)
    prepared = fold_constants(prepared)
    graph = FloatGraph(prepared)
    _fold_into_convolutions(graph)
    _make_gemms(graph)
    drop_unused(prepared.graph)
    name_nodes(prepared.graph, only_nameless=True)
    prepared.ir_version = max(prepared.ir_version, IR_VERSION)
    return with_inferred_shapes(prepared)


class FloatGraph:
    """A graph with its constants, shapes, producers and readers, kept true while it is changed."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.graph = model.graph
        inferred = with_inferred_shapes(model).graph
        self.shapes = known_shapes(inferred)
        self.types = {
            value.name: value.type.tensor_type.elem_type
            for value in [*inferred.value_info, *inferred.input, *inferred.output]
        }
        self.outputs = {value.name for value in model.graph.output}
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self.types |= {name: tensor.data_type for name, tensor in self.constants.items()}

    def array(self, name: str) -> Array | None:
        tensor = self.constants.get(name)
        return None if tensor is None else onnx.numpy_helper.to_array(tensor)

    def is_float(self, name: str) -> bool:
        return bool(self.types.get(name, 0) == onnx.TensorProto.FLOAT)

    def readers(self, name: str) -> list[onnx.NodeProto]:
        return [node for node in self.graph.node if name in node.input]

    def only_reader(self, name: str) -> onnx.NodeProto | None:
        """The node that alone reads a tensor which is no output of the model."""
        readers = self.readers(name)
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def add_constant(self, name: str, array: Array) -> str:
        tensor = onnx.numpy_helper.from_array(np.asarray(array, order="C"), name)
        self.graph.initializer.append(tensor)
        self.constants[name] = tensor
        return name


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """The node's attributes as Python values."""
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def output_axis(node: onnx.NodeProto) -> int:
    """The axis of a constant weight along which the output channels lie."""
    if node.op_type == "ConvTranspose":
        return 1
    if node.op_type == "Gemm":
        return 0 if attributes_of(node).get("transB", 0) else 1
    return 0 if node.op_type == "Conv" else 1


def _fold_into_convolutions(graph: FloatGraph) -> None:
    for node in list(graph.graph.node):
        if node.op_type not in CONVOLUTIONS or graph.array(node.input[1]) is None:
            continue
        if len(node.input) > 2 and node.input[2] and graph.array(node.input[2]) is None:
            continue
        follower = graph.only_reader(node.output[0])
        while follower is not None:
            affine = _affine(graph, follower, node)
            if affine is None:
                break
            _absorb(graph, node, follower, *affine)
            follower = graph.only_reader(node.output[0])


def _affine(
    graph: FloatGraph, follower: onnx.NodeProto, node: onnx.NodeProto
) -> tuple[Array, Array] | None:
    """(scale, shift) of every channel when `follower` is that; None when it is not."""
    source, kind = node.output[0], follower.op_type
    channels = _channels(graph, node)
    if kind == "BatchNormalization":
        if len(follower.output) > 1 or follower.input[0] != source:
            return None
        arrays = [graph.array(name) for name in follower.input[1:5]]
        if any(array is None for array in arrays):
            return None
        gamma, beta, mean, variance = (np.asarray(array, np.float64) for array in arrays)
        scale = gamma / np.sqrt(variance + attributes_of(follower).get("epsilon", 1e-5))
        return scale, beta - mean * scale
    if kind not in ("Add", "Mul") or list(follower.input).count(source) != 1:
        return None
    other = follower.input[1 if follower.input[0] == source else 0]
    values = _by_channel(graph, other, channels, len(graph.shapes.get(source, ())))
    if values is None:
        return None
    neutral = np.full(channels, 1.0 if kind == "Add" else 0.0)
    return (neutral, values) if kind == "Add" else (values, neutral)


def _channels(graph: FloatGraph, node: onnx.NodeProto) -> int:
    weight = graph.array(node.input[1])
    assert weight is not None
    if node.op_type == "ConvTranspose":
        return int(weight.shape[1] * attributes_of(node).get("group", 1))
    return int(weight.shape[0])


def _by_channel(graph: FloatGraph, name: str, channels: int, rank: int) -> Array | None:
    value = graph.array(name)
    if value is None or value.dtype != np.float32 or value.ndim > rank or rank < 3:
        return None
    if value.size == 1:
        return np.full(channels, float(value.reshape(-1)[0]))
    aligned = (1,) * (rank - value.ndim) + value.shape
    if aligned != (1, channels) + (1,) * (rank - 2):
        return None
    return value.reshape(-1).astype(np.float64)


def _absorb(
    graph: FloatGraph, node: onnx.NodeProto, follower: onnx.NodeProto, scale: Array, shift: Array
) -> None:
    weight = np.asarray(graph.array(node.input[1]), np.float64)
    bias = np.zeros(len(scale))
    if len(node.input) > 2 and node.input[2]:
        bias = np.asarray(graph.array(node.input[2]), np.float64)
    if node.op_type == "ConvTranspose":
        groups = attributes_of(node).get("group", 1)
        by_group = np.repeat(scale.reshape(groups, -1), weight.shape[0] // groups, axis=0)
        weight = weight * by_group.reshape(*weight.shape[:2], *(1,) * (weight.ndim - 2))
    else:
        weight = weight * scale.reshape(-1, *(1,) * (weight.ndim - 1))
    output = follower.output[0]
    inputs = [
        node.input[0],
        graph.add_constant(f"{output}/weight", weight.astype(np.float32)),
        graph.add_constant(f"{output}/bias", (bias * scale + shift).astype(np.float32)),
    ]
    del node.input[:]
    node.input.extend(inputs)
    node.output[0] = output
    graph.graph.node.remove(follower)


def _make_gemms(graph: FloatGraph) -> None:
    """Products of matrices with their bias as Gemm, which has a bias of its own."""
    for node in list(graph.graph.node):
        if node.op_type != "MatMul" or len(graph.shapes.get(node.input[0], ())) != 2:
            continue
        weight = graph.array(node.input[1])
        follower = graph.only_reader(node.output[0])
        if weight is None or weight.ndim != 2 or follower is None or follower.op_type != "Add":
            continue
        source = node.output[0]
        other = follower.input[1 if follower.input[0] == source else 0]
        bias = graph.array(other)
        if bias is None or bias.size != weight.shape[1] or bias.shape[-1] != weight.shape[1]:
            continue
        node.op_type = "Gemm"
        node.input.append(graph.add_constant(f"{follower.output[0]}/bias", bias.reshape(-1)))
        node.output[0] = follower.output[0]
        graph.graph.node.remove(follower)
