"""Which tensors of a compiled model stand for which tensors of the model it came from.

An int8 tensor of a QDQ model stands for the float tensor that its DequantizeLinear gives back or
its QuantizeLinear reads, whichever the reference has. Operators fused into one end in one such
tensor; what lies between is not seen unless fusion is off.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Stand:
    """`shown`, a tensor of the compiled model, stands for `tensor` of the reference."""

    shown: str
    tensor: str
    scale: float = 1.0
    zero: int = 0
    dtype: str = "float32"
    is_quantised: bool = False

    def real(self, values: Array) -> Array:
        """The reals that stored values stand for."""
        if not self.is_quantised:
            return values.astype(np.float32)
        steps = (values.astype(np.int32) - self.zero).astype(np.float32)
        return np.asarray(steps * np.float32(self.scale), np.float32)

    @property
    def levels(self) -> tuple[float, float] | None:
        """The least and the largest real it can hold."""
        if not self.is_quantised:
            return None
        limits = np.iinfo(self.dtype)
        return ((limits.min - self.zero) * self.scale, (limits.max - self.zero) * self.scale)


def stands(shown: onnx.ModelProto, reference_tensors: Collection[str]) -> list[Stand]:
    """One for each output of `shown` that the reference has too, in the order they stand."""
    model = shown
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    quantisers = {n.output[0]: n for n in model.graph.node if n.op_type == "QuantizeLinear"}
    readers = {n.input[0]: n for n in model.graph.node if n.op_type == "DequantizeLinear"}
    found: list[Stand] = []
    taken: set[str] = set()
    for output in model.graph.output:
        name = output.name
        node = quantisers.get(name)
        if node is None:
            stand = Stand(name, name) if name in reference_tensors else None
        else:
            back = readers.get(name)
            names = [*([back.output[0]] if back is not None else []), node.input[0]]
            # What readers see: the scale it is dequantised with, should that be another.
            stand = _quantised_stand(node, back or node, names, constants, reference_tensors)
        if stand is not None and stand.tensor not in taken:
            taken.add(stand.tensor)
            found.append(stand)
    return found


def _quantised_stand(
    node: onnx.NodeProto,
    scaled: onnx.NodeProto,
    names: list[str],
    constants: dict[str, Array],
    reference_tensors: Collection[str],
) -> Stand | None:
    tensor = next((name for name in names if name in reference_tensors), None)
    scale = constants.get(scaled.input[1])
    if tensor is None or scale is None or scale.size != 1:
        return None
    zero = constants.get(scaled.input[2]) if len(scaled.input) > 2 else None
    zeros = np.zeros(1, np.uint8) if zero is None else zero
    return Stand(
        node.output[0],
        tensor,
        float(scale.reshape(-1)[0]),
        int(zeros.reshape(-1)[0]),
        str(zeros.dtype),
        True,
    )


def quantised_readers(model: onnx.ModelProto) -> dict[str, tuple[float, float]]:
    """The range that each input is quantised to, for those a QuantizeLinear reads."""
    names = {value.name for value in model.graph.input}
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    ranges = {}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] in names:
            stand = _quantised_stand(node, node, [node.input[0]], constants, names)
            if stand is not None and stand.levels is not None:
                ranges[node.input[0]] = stand.levels
    return ranges


def tensors_of(model: onnx.ModelProto) -> set[str]:
    """The inputs of a model and all that its nodes compute."""
    names = {value.name for value in model.graph.input}
    return names | {name for node in model.graph.node for name in node.output if name}
