"""The report names every copy: its bytes, why no view could stand for it, and who needed it."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tilewright.compiler import compile_model


def model(nodes: list[onnx.NodeProto], shape: list[int]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_transposed_result_is_one_copy_on_the_cpu() -> None:
    node = helper.make_node("Transpose", ["x"], ["y"], name="turn", perm=[1, 0])
    artifact = compile_model(model([node], [3, 5]), "host")
    assert artifact.report["notes"] == [
        {
            "kind": "copy",
            "name": "turn",
            "bytes": 3 * 5 * 4,
            "cause": "results are dense",
            "consumer": "the graph's result",
        }
    ]


def test_a_concat_that_its_parts_are_written_into_is_no_copy() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="a"),
        helper.make_node("Sigmoid", ["x"], ["b"], name="b"),
        helper.make_node("Concat", ["a", "b"], ["y"], name="joined", axis=0),
    ]
    artifact = compile_model(model(nodes, [2, 3]), "host")
    assert artifact.report["notes"] == []
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    expected = np.concatenate([np.maximum(x, 0), 1 / (1 + np.exp(-x))])
    assert np.abs(artifact.run({"x": x})["y"] - expected).max() < 1e-6
