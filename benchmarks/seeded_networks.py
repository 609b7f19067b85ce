"""Networks of known shape whose weights come from a seed: the shapes cost what the real ones cost.

Batch norms are folded, as inference exports have them.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RESNET18_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
MOBILENETV2_STAGES = (  # expansion, channels, blocks, first stride
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class _Network:
    """Appends nodes; every method takes and returns a value's name. Weights are He-scaled."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._generator = np.random.default_rng(0)

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        output = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], output, **attributes))
        return output

    def weight(self, *shape: int) -> str:
        fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 100
        values = self._generator.standard_normal(shape) * np.sqrt(2 / fan_in)
        self.weights.append(
            numpy_helper.from_array(values.astype(np.float32), f"weight_{len(self.weights)}")
        )
        return self.weights[-1].name

    def conv(
        self, x: str, channels: tuple[int, int], kernel: int, stride: int = 1, groups: int = 1
    ) -> str:
        """`channels` are those that come in and those that go out."""
        weight = self.weight(channels[1], channels[0] // groups, kernel, kernel)
        return self.node(
            "Conv",
            x,
            weight,
            self.weight(channels[1]),
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[kernel // 2] * 4,
            group=groups,
        )

    def relu6(self, x: str) -> str:
        for name, bound in (("zero", 0.0), ("six", 6.0)):
            if all(weight.name != name for weight in self.weights):
                self.weights.append(numpy_helper.from_array(np.float32(bound), name))
        return self.node("Clip", x, "zero", "six")

    def classifier(self, x: str, features: int) -> onnx.ModelProto:
        pooled = self.node("Flatten", self.node("GlobalAveragePool", x))
        logits = self.node("Gemm", pooled, self.weight(1000, features), self.weight(1000), transB=1)
        graph = helper.make_graph(
            self.nodes,
            "seeded",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 224, 224))],
            [helper.make_tensor_value_info(logits, TensorProto.FLOAT, (1, 1000))],
            self.weights,
        )
        opset = [helper.make_opsetid("", 13)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        onnx.checker.check_model(model)
        return model


def resnet18() -> onnx.ModelProto:
    network = _Network()
    x = network.node("Relu", network.conv("x", (3, 64), 7, 2))
    x = network.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    before = 64
    for width, first_stride in RESNET18_STAGES:
        for stride in (first_stride, 1):
            inner = network.node("Relu", network.conv(x, (before, width), 3, stride))
            inner = network.conv(inner, (width, width), 3)
            if stride != 1 or before != width:
                x = network.conv(x, (before, width), 1, stride)
            x = network.node("Relu", network.node("Add", inner, x))
            before = width
    return network.classifier(x, before)


def mobilenetv2() -> onnx.ModelProto:
    network = _Network()
    x, before = network.relu6(network.conv("x", (3, 32), 3, 2)), 32
    for expansion, width, blocks, first_stride in MOBILENETV2_STAGES:
        for block in range(blocks):
            stride, wide = (first_stride if block == 0 else 1), before * expansion
            inner = x
            if expansion != 1:
                inner = network.relu6(network.conv(inner, (before, wide), 1))
            inner = network.relu6(network.conv(inner, (wide, wide), 3, stride, groups=wide))
            inner = network.conv(inner, (wide, width), 1)
            x = network.node("Add", inner, x) if stride == 1 and before == width else inner
            before = width
    x = network.relu6(network.conv(x, (before, 1280), 1))
    return network.classifier(x, 1280)
