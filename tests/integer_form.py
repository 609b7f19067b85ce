"""A QDQ model in onnxruntime's own integer operators: the judge of `reference.py` from outside."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnxruntime
from numpy.typing import NDArray

PRODUCTS = {"Conv": "ConvInteger", "Gemm": "MatMulInteger"}


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """onnxruntime without optimisation and with exact integer kernels."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def exposing(
    model: onnx.ModelProto, values: Collection[str], fed: Collection[str] = ()
) -> onnx.ModelProto:
    """The model with `values` as its outputs, and those in `fed` taken from outside."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    types = {
        node.output[0]: _zero_type(model, node)
        for node in model.graph.node
        if node.op_type == "QuantizeLinear"
    }
    kept = [node for node in model.graph.node if not set(node.output) & set(fed)]
    exposed.graph.ClearField("node")
    exposed.graph.node.extend(kept)
    exposed.graph.ClearField("output")
    exposed.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, types[name], None) for name in values
    )
    exposed.graph.input.extend(
        onnx.helper.make_tensor_value_info(name, types[name], None) for name in fed
    )
    return exposed


def _zero_type(model: onnx.ModelProto, node: onnx.NodeProto) -> int:
    zeros = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    return zeros[node.input[2]]


def convinteger_form(model: onnx.ModelProto) -> onnx.ModelProto:
    """Each quantised Conv and Gemm as ConvInteger or MatMulInteger, Add, Cast and Mul.

    Activations and weights are moved to uint8 by adding 128 to value and zero point alike, since
    that is the pair of types onnxruntime computes exactly everywhere.
    """
    rewritten = onnx.ModelProto()
    rewritten.CopyFrom(model)
    builder = _Builder(rewritten)
    nodes = []
    for node in model.graph.node:
        nodes += builder.product(node) if node.op_type in PRODUCTS else [node]
    rewritten.graph.ClearField("node")
    rewritten.graph.node.extend(nodes)
    return rewritten


class _Builder:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.arrays = {t.name: onnx.numpy_helper.to_array(t) for t in self.graph.initializer}
        self.dequantized = {
            node.output[0]: node for node in self.graph.node if node.op_type == "DequantizeLinear"
        }

    def constant(self, name: str, array: NDArray[np.generic]) -> str:
        self.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        return name

    def product(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """The nodes that compute what `node` does, through int32."""
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        x, w, b = (self.dequantized[name] for name in node.input)
        weight = self.arrays[w.input[0]].astype(np.int32)
        if given.get("transB"):
            weight = weight.T
        tail = (-1, 1, 1) if node.op_type == "Conv" else (-1,)
        name = node.output[0]
        shift = 128 if self.arrays[x.input[2]].dtype == np.int8 else 0
        x_zero = self.arrays[x.input[2]].astype(np.int32) + shift
        scale = np.float32(self.arrays[x.input[1]]) * np.float32(self.arrays[w.input[1]])
        constants = {
            "shift": np.int32(shift),
            "x_zero": np.uint8(x_zero),
            "w": (weight + 128).astype(np.uint8),
            "w_zero": np.uint8(128),
            "bias": self.arrays[b.input[0]].reshape(tail),
            "scale": np.asarray(scale if scale.ndim == 0 else scale.reshape(tail)),
        }
        c = {
            key: self.constant(f"{name}/{key}", np.asarray(value))
            for key, value in constants.items()
        }
        kept = {k: v for k, v in given.items() if node.op_type == "Conv"}
        make = onnx.helper.make_node
        return [
            make("Cast", [x.input[0]], [f"{name}/wide"], to=onnx.TensorProto.INT32),
            make("Add", [f"{name}/wide", c["shift"]], [f"{name}/shifted"]),
            make("Cast", [f"{name}/shifted"], [f"{name}/u8"], to=onnx.TensorProto.UINT8),
            make(
                PRODUCTS[node.op_type],
                [f"{name}/u8", c["w"], c["x_zero"], c["w_zero"]],
                [f"{name}/sum"],
                **kept,
            ),
            make("Add", [f"{name}/sum", c["bias"]], [f"{name}/biased"]),
            make("Cast", [f"{name}/biased"], [f"{name}/real"], to=onnx.TensorProto.FLOAT),
            make("Mul", [f"{name}/real", c["scale"]], [name]),
        ]
