"""Parts of an ONNX model, and onnxruntime to run them as they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = Mapping[str, Array]

_QUANTISERS = ("QuantizeLinear", "DequantizeLinear")


def run_onnxruntime(
    model: onnx.ModelProto, inputs: Arrays, outputs: Sequence[str]
) -> dict[str, Array]:
    """No optimisation, no saturating int8 kernels, no messages."""
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


def compute_nodes(model: onnx.ModelProto) -> tuple[str, ...]:
    """Names of the nodes, those that only quantise left out where there are others.

    Unnamed nodes go by their output.
    """
    nodes = list(model.graph.node)
    computing = [node for node in nodes if node.op_type not in _QUANTISERS]
    return tuple(node.name or node.output[0] for node in computing or nodes)


def roundings(part: onnx.ModelProto) -> int:
    """How often a value is quantised on its way from the part's inputs to its output."""
    constant = {tensor.name for tensor in part.graph.initializer}
    return sum(
        (node.op_type == "QuantizeLinear" or node.op_type.startswith("QLinear"))
        and not all(name in constant for name in node.input)
        for node in part.graph.node
    )


def show_inner_tensors(model: onnx.ModelProto, *, floats: bool = False) -> onnx.ModelProto:
    """The model with its inner tensors as outputs, before its own, in the order they are computed.

    Of a quantised model those in quantised form, and with `floats` the others too, which keeps
    operators apart that would be fused; of another model the floats.
    """
    quantised = is_quantised(model)
    shown = onnx.shape_inference.infer_shapes(model)
    types = {info.name: info for info in shown.graph.value_info}
    constant = {tensor.name for tensor in model.graph.initializer}
    outputs = [
        types[name]
        for node in model.graph.node
        for name in node.output
        if name in types
        and not all(read in constant for read in node.input)
        and _is_worth_showing(types[name].type.tensor_type.elem_type, quantised, floats)
    ]
    own = list(model.graph.output)
    del shown.graph.output[:]
    shown.graph.output.extend([*outputs, *own])
    return shown


def part_that_computes(model: onnx.ModelProto, tensor: str, known: Arrays) -> onnx.ModelProto:
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


def _is_worth_showing(element: int, quantised: bool, floats: bool) -> bool:
    if floats and element == int(onnx.TensorProto.FLOAT):
        return True
    if quantised:
        return element in (int(onnx.TensorProto.INT8), int(onnx.TensorProto.UINT8))
    return element == int(onnx.TensorProto.FLOAT)


def _value_info(name: str, array: Array) -> onnx.ValueInfoProto:
    element = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, element, array.shape)
