"""Multiply-accumulates as a user would count them, however a node is spelled out."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.compiler import compile_model
from tilewright.compiler.frontend import prepare
from tilewright.compiler.onnx_facts import node_facts


def model(node: onnx.NodeProto, shape: list[int], weights: dict[str, tuple[int, ...]]):
    rng = np.random.default_rng(0)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
        [
            numpy_helper.from_array(rng.standard_normal(extents).astype(np.float32), name)
            for name, extents in weights.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_recurrent_layer_counts_once_however_many_kernels_it_takes() -> None:
    steps, inputs, hidden = 3, 5, 7
    weights = {"W": (1, 4 * hidden, inputs), "R": (1, 4 * hidden, hidden)}
    node = helper.make_node("LSTM", ["x", "W", "R"], ["y"], name="lstm", hidden_size=hidden)
    report = compile_model(model(node, [steps, 1, inputs], weights), "host").report
    # The first step multiplies no state: it starts at zero.
    expected = steps * 4 * hidden * inputs + (steps - 1) * 4 * hidden * hidden
    assert report["totals"]["macs"] == expected
    assert len(report["operators"]) > 1


def test_a_transposed_convolution_multiplies_each_input_by_each_tap() -> None:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], name="up", strides=[2, 2])
    prepared = prepare(model(node, [1, 3, 4, 5], {"w": (3, 6, 2, 2)}))
    assert node_facts(prepared)["up"].macs == 3 * 4 * 5 * 6 * 2 * 2
