"""Real digits and the small networks trained on them, for tests of quantisation."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
from numpy.typing import NDArray

MODELS = Path(__file__).parent / "models"
Samples = list[dict[str, NDArray[Any]]]


@cache
def digit_arrays() -> dict[str, NDArray[Any]]:
    """`calibration` and `test`, float32 Nx1x28x28 of 0..1, and `labels`."""
    with np.load(MODELS / "digits.npz") as stored:
        images = {
            name: (stored[name].astype(np.float32) / 255)[:, None]
            for name in ("calibration", "test")
        }
        return images | {"labels": stored["labels"].astype(np.int64)}


def digit_network(name: str) -> onnx.ModelProto:
    """`resnet`, `mobilenetv2`."""
    return onnx.load(MODELS / f"{name}_digits_fp32.onnx")


def samples(images: NDArray[Any], entry: str = "image") -> Samples:
    return [{entry: image[None]} for image in images]


def with_uneven_channels(model: onnx.ModelProto, widest: int = 5) -> onnx.ModelProto:
    """The same function, its inner batch norms scaled by 2**-widest..2**widest by channel.

    Whatever a batch norm before a ReLU multiplies, the convolution after it divides.
    """
    uneven = onnx.ModelProto()
    uneven.CopyFrom(model)
    tensors = {tensor.name: tensor for tensor in uneven.graph.initializer}
    generator = np.random.default_rng(0)
    for norm, conv in _norm_relu_conv(uneven):
        channels = tensors[norm.input[1]].dims[0]
        factors = 2.0 ** generator.integers(-widest, widest + 1, channels)
        for name in norm.input[1:3]:
            _multiply(tensors[name], factors)
        _multiply(tensors[conv.input[1]], 1 / factors.reshape(1, -1, 1, 1))
    return uneven


def _norm_relu_conv(model: onnx.ModelProto) -> list[tuple[onnx.NodeProto, onnx.NodeProto]]:
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    found = []
    for norm in model.graph.node:
        if norm.op_type != "BatchNormalization":
            continue
        relus = readers.get(norm.output[0], [])
        convs = readers.get(relus[0].output[0], []) if relus else []
        if [node.op_type for node in (*relus, *convs)] == ["Relu", "Conv"]:
            found.append((norm, convs[0]))
    return found


def _multiply(tensor: onnx.TensorProto, factors: NDArray[Any]) -> None:
    values = onnx.numpy_helper.to_array(tensor) * factors
    tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float32), tensor.name))
