"""The reference against onnxruntime: its integer operators to the bit, plain QDQ to a tie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.integer_form import convinteger_form, exposing, session
from tests.reference import run_reference

MODELS = sorted((Path(__file__).parent / "models").glob("*_int8.onnx"))
# Exact rationals and float64 here, float32 in onnxruntime: equal up to the rounding of a tie.
ROUNDED_OTHERWISE = ("AveragePool", "ReduceMean", "Softmax")


def random_inputs(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    inputs = {}
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type == onnx.TensorProto.INT8:
            inputs[value.name] = generator.integers(-128, 128, shape).astype(np.int8)
        else:
            scale = _input_scale(model)
            inputs[value.name] = (generator.normal(size=shape) * 60 * scale).astype(np.float32)
    return inputs


def _input_scale(model: onnx.ModelProto) -> float:
    first = next(node for node in model.graph.node if node.op_type == "QuantizeLinear")
    arrays = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    return float(arrays[first.input[1]])


def quantised_by(model: onnx.ModelProto, operators: tuple[str, ...]) -> list[str]:
    """The quantised values that come straight from one of `operators`."""
    producers = {node.output[0]: node for node in model.graph.node}
    return [
        node.output[0]
        for node in model.graph.node
        if node.op_type == "QuantizeLinear"
        and node.input[0] in producers
        and producers[node.input[0]].op_type in operators
    ]


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_equals_integer_operators_of_onnxruntime(path: Path) -> None:
    model = onnx.load(path)
    fed = quantised_by(model, ROUNDED_OTHERWISE)
    names = [n.output[0] for n in model.graph.node if n.op_type == "QuantizeLinear"]
    compared = [name for name in names if name not in fed]
    judge = session(exposing(convinteger_form(model), compared, fed))
    for seed in range(3):
        inputs = random_inputs(model, seed)
        ours = run_reference(model, inputs, every_value=True)
        theirs = judge.run(compared, inputs | {name: ours[name] for name in fed})
        for name, value in zip(compared, theirs, strict=True):
            np.testing.assert_array_equal(ours[name], value, err_msg=name)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_is_within_one_step_of_plain_qdq(path: Path) -> None:
    """Each operator on the reference's own inputs, so that no difference can grow."""
    model = onnx.load(path)
    names = [n.output[0] for n in model.graph.node if n.op_type == "QuantizeLinear"]
    elements = differing = 0
    inputs = random_inputs(model, 7)
    ours = run_reference(model, inputs, every_value=True)
    for part, outputs, fed in operators_apart(model, names):
        graph_inputs = {i.name: (inputs | ours)[i.name] for i in part.graph.input}
        assert set(fed) <= set(graph_inputs)
        for name, value in zip(outputs, session(part).run(outputs, graph_inputs), strict=True):
            steps = np.abs(ours[name].astype(int) - value.astype(int))
            assert steps.max() <= 1, name
            elements += steps.size
            differing += int(steps.sum())
    assert differing <= max(2, elements * 1e-4)


def operators_apart(model: onnx.ModelProto, names: list[str]):
    """Two halves of the model: every other quantised value computed, the rest fed, and back."""
    for parity in (0, 1):
        computed = names[parity::2]
        fed = [name for name in names if name not in computed]
        yield exposing(model, computed, fed), computed, fed
