"""Even out the ranges of channels between two operators, where the network stays the same.

    conv1, relu, conv2   ->   conv1 / s, relu, conv2 * s      by channel, s > 0

ReLU and max pooling commute with a positive factor, so whatever conv1's channel c loses, conv2's
weights for it gain. A channel that is much narrower than its neighbours would have few of the
tensor's 256 values to itself; s = sqrt(range of the activations / range of conv2's weights) gives
it more, as far as conv2's weights allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
from numpy.typing import NDArray

from tilewright.compiler.quantize.float_model import FloatGraph, attributes_of, output_axis
from tilewright.compiler.quantize.observe import Observations
from tilewright.compiler.quantize.units import Unit, Units

Vector = NDArray[np.float64]
LARGEST_FACTOR = 64.0
HOMOGENEOUS = ("", "Relu")
COMMUTING = ("MaxPool", "GlobalMaxPool")


@dataclass(frozen=True)
class Pair:
    """`first`'s output, moved or not, is read by `second` alone."""

    first: Unit
    second: Unit
    tensors: tuple[str, ...]  # all that carry the channels from one to the other


def equalise(
    model: onnx.ModelProto, units: Units, observations: Observations
) -> tuple[onnx.ModelProto, dict[str, list[float]]]:
    """A copy with equalised weights, and what each tensor's channels were divided by."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = FloatGraph(changed)
    factors: dict[str, list[float]] = {}
    for pair in find_pairs(graph, units):
        seen = observations.get(units.leader(pair.first.output))
        if seen is None or seen.channel_high is None or seen.channel_low is None:
            continue
        ranges = np.maximum(np.abs(seen.channel_low), np.abs(seen.channel_high))
        weight = np.asarray(graph.array(pair.second.weight), np.float64)
        s = channel_factors(ranges, _column_ranges(graph, pair.second, weight))
        if np.allclose(s, 1.0):
            continue
        _divide_outputs(graph, pair.first, s)
        _multiply_inputs(graph, pair.second, s)
        factors |= {tensor: [float(value) for value in s] for tensor in pair.tensors}
    return changed, factors


def channel_factors(activations: Vector, weights: Vector) -> Vector:
    """s of every channel, powers of two, so that dividing and multiplying by it is exact."""
    alive = (activations > 0) & (weights > 0)
    s = np.ones(len(activations))
    if not alive.any():
        return s
    raw = np.sqrt(activations[alive] / weights[alive])
    raw /= np.exp(np.log(raw).mean())
    s[alive] = 2.0 ** np.rint(np.log2(np.clip(raw, 1 / LARGEST_FACTOR, LARGEST_FACTOR)))
    return s


def find_pairs(graph: FloatGraph, units: Units) -> list[Pair]:
    """Every two linear units that can be equalised."""
    nodes = {node.name: node for node in graph.graph.node}
    readers = {unit.inputs[0]: unit for unit in units.units if unit.kind == "linear"}
    pairs = []
    for first in units.units:
        if first.kind != "linear" or not first.weight or first.activation not in HOMOGENEOUS:
            continue
        if nodes[first.name].op_type not in ("Conv", "Gemm") or _is_shared(graph, first):
            continue
        tensors = [first.output]
        follower = graph.only_reader(first.output)
        while follower is not None and follower.op_type in COMMUTING:
            tensors.append(follower.output[0])
            follower = graph.only_reader(follower.output[0])
        second = readers.get(tensors[-1])
        if second is None or follower is None or second.name != follower.name:
            continue
        if second.weight and not _is_shared(graph, second) and _takes_factors(graph, follower):
            pairs.append(Pair(first, second, tuple(tensors)))
    return pairs


def _is_shared(graph: FloatGraph, unit: Unit) -> bool:
    names = [name for name in (unit.weight, unit.bias) if name]
    return any(len(graph.readers(name)) > 1 for name in names)


def _takes_factors(graph: FloatGraph, node: onnx.NodeProto) -> bool:
    """Whether the node's weight has one place for each input channel: dense, or depthwise."""
    weight = graph.array(node.input[1])
    if weight is None or node.op_type not in ("Conv", "Gemm"):
        return False
    groups = attributes_of(node).get("group", 1)
    return bool(groups == 1 or (weight.shape[1] == 1 and weight.shape[0] == groups))


def _column_ranges(graph: FloatGraph, unit: Unit, weight: Vector) -> Vector:
    """The largest weight of every input channel."""
    axis = _input_axis(graph, unit)
    rows = np.moveaxis(np.abs(weight), axis, 0).reshape(weight.shape[axis], -1)
    return np.asarray(rows.max(axis=1))


def _input_axis(graph: FloatGraph, unit: Unit) -> int:
    node = _node(graph, unit)
    if node.op_type == "Gemm":
        return 1 - output_axis(node)
    return 0 if attributes_of(node).get("group", 1) > 1 else 1


def _divide_outputs(graph: FloatGraph, unit: Unit, s: Vector) -> None:
    _rescale(graph, unit.weight, 1 / s, output_axis(_node(graph, unit)))
    if unit.bias:
        _rescale(graph, unit.bias, 1 / s, 0)


def _multiply_inputs(graph: FloatGraph, unit: Unit, s: Vector) -> None:
    _rescale(graph, unit.weight, s, _input_axis(graph, unit))


def _rescale(graph: FloatGraph, name: str, factors: Vector, axis: int) -> None:
    tensor = graph.constants[name]
    values: NDArray[Any] = onnx.numpy_helper.to_array(tensor)
    shape = [1] * values.ndim
    shape[axis] = len(factors)
    scaled = (values.astype(np.float64) * factors.reshape(shape)).astype(values.dtype)
    tensor.CopyFrom(onnx.numpy_helper.from_array(scaled, name))


def _node(graph: FloatGraph, unit: Unit) -> onnx.NodeProto:
    return next(node for node in graph.graph.node if node.name == unit.name)
