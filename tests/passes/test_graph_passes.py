"""The graph passes one after another on real models: same numbers, no permutes, names kept."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from tvm import relax

from tests.reference import run_reference
from tests.relax_in_numpy import run_relax
from tests.test_reference import random_inputs
from tilewright.compiler.frontend import import_to_relax, load_model, prepare
from tilewright.compiler.pipeline import graph_passes
from tilewright.passes.constants import op_name
from tilewright.passes.names import onnx_nodes_of
from tilewright.passes.reasons import reasons_of

FOLDER = Path(__file__).parents[1] / "models"
INT8 = sorted(FOLDER.glob("*_int8.onnx"))
FROM_NHWC = [*INT8, FOLDER / "gesture_cnn_fp32.onnx"]
NODE_OF = {
    "tilewright.conv2d": "Conv",
    "tilewright.dense": "Gemm",
    "tilewright.add": "Add",
    "tilewright.softmax": "Softmax",
    "tilewright.max_pool2d": "MaxPool",
}


def passed(path: Path) -> tvm.IRModule:
    module = import_to_relax(prepare(load_model(path)))
    for graph_pass in graph_passes():
        module = graph_pass(module)
        relax.analysis.well_formed(module)
    return module


def operators(module: tvm.IRModule) -> Counter[str]:
    return Counter(
        op_name(binding.value) for block in module["main"].body.blocks for binding in block.bindings
    )


@pytest.mark.parametrize("path", INT8, ids=lambda path: path.stem)
def test_quantised_graph_equals_reference(path: Path) -> None:
    module, model = passed(path), onnx.load(path)
    for seed in range(2):
        inputs = random_inputs(model, seed)
        expected = run_reference(model, inputs).values()
        for ours, value in zip(run_relax(module, inputs), expected, strict=True):
            np.testing.assert_array_equal(ours, value)


def test_float_graph_agrees_with_onnxruntime() -> None:
    path = FOLDER / "gesture_cnn_fp32.onnx"
    inputs = random_image()
    expected = onnxruntime.InferenceSession(path).run(None, inputs)
    np.testing.assert_allclose(run_relax(passed(path), inputs)[0], expected[0], atol=1e-5)


def random_image() -> dict[str, np.ndarray]:
    image = np.random.default_rng(3).normal(size=(1, 84, 84, 1)).astype(np.float32)
    return {"input": image}


@pytest.mark.parametrize("path", FROM_NHWC, ids=lambda path: path.stem)
def test_graph_from_nhwc_ends_without_permutes(path: Path) -> None:
    assert "relax.permute_dims" not in operators(passed(path))


@pytest.mark.parametrize("path", INT8, ids=lambda path: path.stem)
def test_every_quantised_group_is_recognised(path: Path) -> None:
    module, nodes = passed(path), Counter(node.op_type for node in onnx.load(path).graph.node)
    found = operators(module)
    for operator, node in NODE_OF.items():
        assert found[operator] == nodes[node], operator
    assert not any(name.startswith("relax.nn.") for name in found)
    assert reasons_of(module["main"]) == {}


@pytest.mark.parametrize("path", INT8[:3], ids=lambda path: path.stem)
def test_every_compute_node_is_named_by_one_operator(path: Path) -> None:
    named = Counter(
        name
        for block in passed(path)["main"].body.blocks
        for binding in block.bindings
        for name in onnx_nodes_of(binding.value)
    )
    for node in onnx.load(path).graph.node:
        if node.op_type in NODE_OF.values():
            assert named[node.name] == 1, node.name
