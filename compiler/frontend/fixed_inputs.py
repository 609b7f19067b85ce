"""Make inputs of a model constants, where what they hold is known before it runs.

Shapes, axes and counts that a model takes as inputs decide how large its tensors are, so kernels
and memory cannot be planned without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
from numpy.typing import NDArray

from tilewright.compiler.frontend.shapes import real_inputs
from tilewright.targets.errors import ModelError

# Of each operator, the operands that must be constants: they decide shapes, or how numbers are
# quantised, or are weights that are packed beforehand.
SHAPING = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "ConvInteger": (2, 3),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "DequantizeLinear": (1, 2),
    "Expand": (1,),
    "GRU": (1, 2, 3),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "LSTM": (1, 2, 3, 7),
    "Loop": (0, 1),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1, 2),
    "Pad": (1, 3),
    "QLinearConv": (1, 2, 3, 4, 5, 6, 7, 8),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "QuantizeLinear": (1, 2),
    "RNN": (1, 2, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}


def shaping_inputs(model: onnx.ModelProto) -> list[str]:
    """The inputs of `model` that decide shapes directly."""
    named = [value.name for value in real_inputs(model.graph)]
    read = {
        node.input[place]
        for node in model.graph.node
        for place in _places(node.op_type)
        if place < len(node.input)
    }
    return [name for name in named if name in read]


def _places(operator: str) -> tuple[int, ...]:
    return (1,) if operator.startswith("Reduce") else SHAPING.get(operator, ())


def fix_inputs(model: onnx.ModelProto, values: Mapping[str, NDArray[Any]]) -> onnx.ModelProto:
    """A copy of `model` with the named inputs as initialisers; ModelError for an unknown name."""
    fixed = onnx.ModelProto.FromString(model.SerializeToString())
    known = [value.name for value in real_inputs(fixed.graph)]
    for name, value in values.items():
        if name not in known:
            raise ModelError(f"{name}: the model has no such input; its inputs: {', '.join(known)}")
        fixed.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    kept = [value for value in fixed.graph.input if value.name not in values]
    fixed.graph.ClearField("input")
    fixed.graph.input.extend(kept)
    return fixed
