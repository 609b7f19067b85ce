"""What rewrites ask about an ONNX graph, and where they add constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from numpy.typing import NDArray

from tilewright.compiler.frontend.folding import known_shapes, with_inferred_shapes

Nodes = list[onnx.NodeProto]


class Graph:
    """Shapes, types and constants of a graph, and a place to add constants."""

    def __init__(self, model: onnx.ModelProto) -> None:
        inferred = with_inferred_shapes(model).graph
        self.model = model
        self.shapes = known_shapes(inferred)
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._types = {
            value.name: value.type.tensor_type.elem_type
            for value in [*inferred.value_info, *inferred.input, *inferred.output]
        }

    def array(self, name: str) -> NDArray[Any] | None:
        tensor = self._tensors.get(name)
        return None if tensor is None else onnx.numpy_helper.to_array(tensor)

    def is_float(self, name: str) -> bool:
        tensor = self._tensors.get(name)
        kind = self._types.get(name, tensor.data_type if tensor else 0)
        return kind in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)

    def real_type(self, name: str) -> type[np.floating[Any]]:
        """numpy's type of a value known to be float or double."""
        return np.float32 if self.element_type(name) == onnx.TensorProto.FLOAT else np.float64

    def element_type(self, name: str) -> int:
        tensor = self._tensors.get(name)
        return int(self._types.get(name, tensor.data_type if tensor else 0))

    def constant(self, name: str, array: NDArray[Any]) -> str:
        tensor = onnx.numpy_helper.from_array(np.asarray(array, order="C"), name)
        self.model.graph.initializer.append(tensor)
        self._tensors[name] = tensor
        return name


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """The node's attributes as Python values."""
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
