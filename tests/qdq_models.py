"""Small QDQ models, one operator at a time, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from numpy.typing import NDArray

Array = NDArray[Any]
make = onnx.helper.make_node


class QdqModel:
    """Builds a graph value by value; a value is its name. Values are quantised at the edges."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: dict[str, tuple[tuple[int, ...], str]] = {}
        self.outputs: list[str] = []

    def constant(self, array: Array) -> str:
        name = f"constant_{len(self.initializers)}"
        self.initializers.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def input(self, shape: tuple[int, ...], scale: float, zero: int, dtype: str = "int8") -> str:
        """A quantised graph input, dequantised."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = (shape, dtype)
        return self.dequantize(name, scale, zero, dtype)

    def dequantize(self, name: str, scale: Any, zero: Any, dtype: str, axis: int = 0) -> str:
        arguments = [name, self.constant(np.float32(scale)), self.constant(np.array(zero, dtype))]
        return self.node("DequantizeLinear", arguments, axis=axis)

    def weight(
        self,
        shape: tuple[int, ...],
        scale: Any,
        zero: Any = 0,
        dtype: str = "int8",
        axis: int = 0,
    ) -> str:
        limits = np.iinfo(dtype)
        values = self.generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        return self.dequantize(self.constant(values), scale, zero, dtype, axis)

    def bias(self, channels: int, scale: Any) -> str:
        values = self.generator.integers(-2000, 2000, channels).astype(np.int32)
        zero = np.zeros(np.shape(scale), np.int32)
        return self.dequantize(self.constant(values), scale, zero, "int32")

    def node(self, operator: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> Any:
        number = len(self.nodes)
        names = [f"{operator.lower()}_{number}_{place}" for place in range(outputs)]
        name = f"{operator}_{number}"
        self.nodes.append(make(operator, inputs, names, name=name, **attributes))
        return names[0] if outputs == 1 else names

    def quantize(self, value: str, scale: float, zero: int, dtype: str = "int8") -> str:
        arguments = [value, self.constant(np.float32(scale)), self.constant(np.array(zero, dtype))]
        return self.node("QuantizeLinear", arguments)

    def output(self, value: str, scale: float, zero: int, dtype: str = "int8") -> None:
        """Quantise a value and return it from the graph."""
        self.outputs.append(self.quantize(value, scale, zero, dtype))

    def model(self, opset: int = 18) -> onnx.ModelProto:
        kinds = {"int8": onnx.TensorProto.INT8, "uint8": onnx.TensorProto.UINT8}
        value = onnx.helper.make_tensor_value_info
        inputs = [value(n, kinds[dtype], shape) for n, (shape, dtype) in self.inputs.items()]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        graph = onnx.helper.make_graph(self.nodes, "qdq", inputs, outputs, self.initializers)
        opsets = [onnx.helper.make_opsetid("", opset)]
        return onnx.shape_inference.infer_shapes(
            onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
        )

    def random_inputs(self) -> dict[str, Array]:
        return {
            name: self.generator.integers(
                np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True
            )
            for name, (shape, dtype) in self.inputs.items()
        }
