"""Unrolled recurrent layers against onnxruntime's own kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

from tests.integer_form import session
from tilewright.compiler.frontend import import_to_relax, prepare
from tilewright.passes.names import onnx_nodes_of

STEPS, BATCH, INPUT, HIDDEN = 4, 3, 5, 2
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def layer(
    kind: str,
    *,
    directions: int = 1,
    bias: bool = True,
    lengths: bool = False,
    states: bool = False,
    peepholes: bool = False,
    **attributes: Any,
) -> onnx.ModelProto:
    generator = np.random.default_rng(3)
    rows = GATES[kind] * HIDDEN

    def numbers(*shape: int) -> np.ndarray:
        return generator.normal(0, 0.6, shape).astype(np.float32)

    constants = {"w": numbers(directions, rows, INPUT), "r": numbers(directions, rows, HIDDEN)}
    names = ["x", "w", "r", "b" if bias else "", "lengths" if lengths else ""]
    if bias:
        constants["b"] = numbers(directions, 2 * rows)
    if lengths:
        constants["lengths"] = np.array([4, 2, 3], np.int32)
    if states:
        constants["h0"] = numbers(directions, BATCH, HIDDEN)
        names.append("h0")
        if kind == "LSTM":
            constants["c0"] = numbers(directions, BATCH, HIDDEN)
            names.append("c0")
    if peepholes:
        constants["p"] = numbers(directions, 3 * HIDDEN)
        names += [""] * (7 - len(names)) + ["p"]
    if directions == 2:
        attributes["direction"] = "bidirectional"
    outputs = ["y", "y_h", "y_c"] if kind == "LSTM" else ["y", "y_h"]
    node = onnx.helper.make_node(
        kind, names, outputs, name="layer", hidden_size=HIDDEN, **attributes
    )
    shape = [STEPS, BATCH, INPUT]
    graph = onnx.helper.make_graph(
        [node],
        "recurrent",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    return onnx.shape_inference.infer_shapes(
        onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    )


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("LSTM", {}),
    ("LSTM", {"directions": 2, "states": True}),
    ("LSTM", {"peepholes": True, "direction": "reverse"}),
    ("LSTM", {"clip": 0.3, "input_forget": 1, "bias": False}),
    ("LSTM", {"lengths": True, "states": True}),
    ("LSTM", {"activations": ["HardSigmoid", "Relu", "Tanh"], "activation_alpha": [0.3]}),
    ("GRU", {}),
    ("GRU", {"linear_before_reset": 1, "directions": 2}),
    ("GRU", {"lengths": True, "direction": "reverse"}),
    ("RNN", {"states": True}),
    ("RNN", {"activations": ["Relu", "Tanh"], "directions": 2}),
]


@pytest.mark.parametrize(("kind", "options"), VARIANTS, ids=str)
def test_unrolled_layer_equals_onnxruntime(kind: str, options: dict[str, Any]) -> None:
    model = layer(kind, **options)
    prepared = prepare(model)
    assert kind not in [node.op_type for node in prepared.graph.node]
    x = np.random.default_rng(0).normal(size=(STEPS, BATCH, INPUT)).astype(np.float32)
    found, expected = session(prepared).run(None, {"x": x}), session(model).run(None, {"x": x})
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_every_part_is_named_after_the_layer() -> None:
    module = import_to_relax(prepare(layer("LSTM")))
    for block in module["main"].body.blocks:
        for binding in block.bindings[:-1]:
            assert onnx_nodes_of(binding.value) == ("layer",)
