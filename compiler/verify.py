"""Hold an artifact against onnxruntime: its outputs, and the first operator that goes astray.

Operators are compared on the artifact's own inputs to them: onnxruntime runs only the nodes between
tensors that can be seen in the arena, so a difference belongs to those nodes and to none before.

A float model agrees within 1e-4. onnxruntime runs a quantised model's convolutions in float32, so
values that lie within 1e-4 of a tie may go one step the other way; what grows out of that along a
network is limited by its mean (docs/artifact.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from tilewright.compiler.artifact.arguments import random_inputs
from tilewright.compiler.artifact.load import Artifact
from tilewright.targets.errors import VerificationError

Array = NDArray[Any]
Arrays = Mapping[str, Array]

FLOAT_LIMIT = 1e-4  # of the largest magnitude, or of 1
QUANTISED_MEAN_LIMIT = 0.01  # of the expected values' range
QUANTISED_OPERATOR_LIMIT = 1  # steps, where one node stands between two tensors


@dataclass(frozen=True)
class Agreement:
    """How far one tensor is from onnxruntime's; `limit` is the most `distance` may be."""

    tensor: str
    nodes: tuple[str, ...]  # what computes it from the nearest tensors that were compared
    distance: float
    limit: float
    differing: int
    elements: int

    @property
    def holds(self) -> bool:
        return self.distance <= self.limit

    def __str__(self) -> str:
        return (
            f"{self.tensor}: {self.differing} of {self.elements} elements differ, "
            f"{self.distance:.3g} where {self.limit:.3g} is allowed"
        )


def verify(artifact: Artifact, model: onnx.ModelProto, seeds: Sequence[int] = (0, 1, 2)) -> None:
    """Raises VerificationError that names the first operator that differs."""
    for seed in seeds:
        inputs = random_inputs(artifact.manifest, seed)
        for agreement in (
            *compare_operators(artifact, model, inputs),
            *compare_outputs(artifact, model, inputs),
        ):
            if not agreement.holds:
                nodes = agreement.nodes
                where = f"{nodes[0]} to {nodes[-1]}" if len(nodes) > 1 else "".join(nodes)
                raise VerificationError(
                    f"{where or 'the model'} disagrees with onnxruntime on inputs of seed {seed}: "
                    f"{agreement}"
                )


def compare_outputs(
    artifact: Artifact, model: onnx.ModelProto, inputs: Arrays
) -> list[Agreement]:
    """The whole network, end to end."""
    found = artifact.run(inputs)
    expected = run_onnxruntime(model, inputs, list(found))
    quantised = is_quantised(model)
    return [
        _agreement(name, (), found[name], expected[name], quantised=quantised)
        for name in found
    ]


def compare_operators(
    artifact: Artifact, model: onnx.ModelProto, inputs: Arrays
) -> Iterator[Agreement]:
    """Each tensor the artifact can show, in the order they are computed."""
    known = dict(inputs)
    quantised = is_quantised(model)
    for tensor in artifact.manifest["intermediates"]:
        found = _intermediate(artifact, inputs, tensor)
        name = tensor["name"]
        part = part_that_computes(model, name, known)
        expected = run_onnxruntime(part, {i.name: known[i.name] for i in part.graph.input}, [name])
        nodes = tuple(
            node.name or node.output[0]
            for node in part.graph.node
            if node.op_type not in ("QuantizeLinear", "DequantizeLinear")
        )
        yield _agreement(name, nodes, found, expected[name], quantised=quantised)
        known[name] = found


def part_that_computes(
    model: onnx.ModelProto, tensor: str, known: Arrays
) -> onnx.ModelProto:
    """The nodes between `tensor` and the nearest tensors whose values are known."""
    producers = {output: node for node in model.graph.node for output in node.output}
    needed, inputs, waiting = set[str](), set[str](), [tensor]
    while waiting:
        name = waiting.pop()
        if name in known and name != tensor:
            inputs.add(name)
        elif name in producers and producers[name].output[0] not in needed:
            needed.add(producers[name].output[0])
            waiting.extend(producers[name].input)
    nodes = [node for node in model.graph.node if node.output[0] in needed]
    read = {name for node in nodes for name in node.input}
    graph = onnx.helper.make_graph(
        nodes,
        "part",
        [_value_info(name, known[name]) for name in sorted(inputs)],
        [onnx.ValueInfoProto(name=tensor)],
        [constant for constant in model.graph.initializer if constant.name in read],
    )
    part = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    part.ir_version = model.ir_version
    part.functions.extend(model.functions)
    return part


def run_onnxruntime(
    model: onnx.ModelProto, inputs: Arrays, outputs: Sequence[str]
) -> dict[str, Array]:
    """The model as it is written: no optimisation, no saturating int8 kernels, no messages."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    values = session.run(list(outputs), dict(inputs))
    return {name: np.asarray(value) for name, value in zip(outputs, values, strict=True)}


def is_quantised(model: onnx.ModelProto) -> bool:
    """Whether some node computes with quantised values."""
    return any("Quantize" in node.op_type or "QLinear" in node.op_type for node in model.graph.node)


def _intermediate(artifact: Artifact, inputs: Arrays, tensor: Mapping[str, Any]) -> Array:
    """Its value: run up to the step that writes it, before its memory is reused."""
    for name, array in inputs.items():
        artifact.input(name)[...] = array
    artifact.run_until(tensor["steps"])
    view = artifact.tensor(tensor["offset"], tensor["shape"], tensor["dtype"])
    return view.transpose(tensor["axes"]).copy()


def _agreement(
    name: str, nodes: tuple[str, ...], found: Array, expected: Array, *, quantised: bool
) -> Agreement:
    """`found` may have other axes of length one than `expected`, never another order."""
    wanted = expected.astype(np.float64).reshape(found.shape)
    difference = _difference(found.astype(np.float64), wanted)
    distance, limit = _judge(difference, wanted, expected.dtype, len(nodes), quantised)
    return Agreement(name, nodes, distance, limit, int(np.count_nonzero(difference)), found.size)


def _difference(found: Array, wanted: Array) -> Array:
    """Equal infinities and two NaN agree; a NaN against a number is as far away as can be."""
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    with np.errstate(invalid="ignore"):
        difference = np.abs(found - wanted)
    return np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))


def _judge(
    difference: Array, wanted: Array, dtype: np.dtype[Any], nodes: int, quantised: bool
) -> tuple[float, float]:
    """The distance that counts, and how large it may be."""
    if not difference.size:
        return 0.0, 0.0
    largest = float(difference.max())
    if dtype.kind == "b":
        return largest, 0.0
    if quantised and dtype.kind in "iu" and nodes == 1:
        return largest, float(QUANTISED_OPERATOR_LIMIT)
    finite = wanted[np.isfinite(wanted)]
    if quantised:
        extent = float(np.ptp(finite)) if finite.size else 0.0
        # At least one step: a constant output has no range.
        return float(difference.mean()), max(QUANTISED_MEAN_LIMIT * extent, 1e-6)
    if dtype.kind in "iu":
        return largest, 0.0
    return largest, FLOAT_LIMIT * max(1.0, float(np.abs(finite).max(initial=0)))


def _value_info(name: str, array: Array) -> onnx.ValueInfoProto:
    element = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, element, array.shape)
