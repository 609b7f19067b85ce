"""Shapes, opsets, constants and names, before the import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnxruntime
import pytest

from tilewright.compiler.frontend import load_model, prepare
from tilewright.compiler.frontend.opset import opset_of
from tilewright.compiler.frontend.rewrites import same_padding
from tilewright.passes.names import original_name
from tilewright.targets.errors import ModelError

MODELS = sorted((Path(__file__).parents[1] / "models").glob("*_int8.onnx"))
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
make = onnx.helper.make_node


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[Any]],
    outputs: list[str],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "graph",
        [value(name, FLOAT, shape) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def kinds(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def run(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return list(session.run(None, inputs))


def relu(shape: list[Any]) -> onnx.ModelProto:
    return model_of([make("Relu", ["x"], ["y"], name="relu")], {"x": shape}, ["y"])


def test_unbound_dimensions_are_listed_with_an_example() -> None:
    with pytest.raises(ModelError) as error:
        prepare(relu(["N", 3, "H", "W"]))
    assert "x [N, 3, H, W]" in str(error.value)
    assert "--shape x=1,3,224,224" in str(error.value)


@pytest.mark.parametrize(
    ("shape", "example"),
    [
        (["N", "H", "W", 3], "--shape x=1,224,224,3"),
        (["N", 3, "H", "W"], "--shape x=1,3,224,224"),
        (["N", 24, 24, 3], "--shape x=1,24,24,3"),
        (["N", "T"], "--shape x=1,1"),
    ],
)
def test_the_example_has_the_channels_where_the_file_has_them(
    shape: list[str | int], example: str
) -> None:
    with pytest.raises(ModelError) as error:
        prepare(relu(shape))
    assert str(error.value).endswith(
        f"tilewright compile model.onnx --target host -o out {example}"
    )


def test_shapes_are_bound() -> None:
    prepared = prepare(relu(["N", 3, "H", "W"]), {"x": (2, 3, 5, 6)})
    dims = prepared.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [2, 3, 5, 6]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": (1,)}, "--shape z: the model has no such input; its inputs are x"),
        ({"x": (1, 2)}, "--shape x: 2 dimensions given, the model has 4: [N, 3, H, W]"),
        ({"x": (1, 3, -1, 2)}, "--shape x: dimensions must not be negative"),
    ],
)
def test_wrong_shapes_are_refused(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ModelError) as error:
        prepare(relu(["N", 3, "H", "W"]), shapes)
    assert str(error.value) == message


def test_a_fixed_batch_can_be_replaced() -> None:
    prepared = prepare(relu([1, 4]), {"x": (3, 4)})
    assert run(prepared, {"x": np.ones((3, 4), np.float32)})[0].shape == (3, 4)


def test_shape_arithmetic_is_folded() -> None:
    nodes = [
        make("Shape", ["x"], ["shape"], name="shape"),
        make("Gather", ["shape", "zero"], ["batch"], name="gather"),
        make("Concat", ["batch", "rest"], ["target"], axis=0, name="concat"),
        make("Reshape", ["x", "target"], ["y"], name="reshape"),
    ]
    constants = {"zero": np.array([0]), "rest": np.array([-1])}
    model = model_of(nodes, {"x": ["N", 3, 4]}, ["y"], constants)
    prepared = prepare(model, {"x": (2, 3, 4)})
    assert kinds(prepared) == ["Reshape"]
    assert [node.name for node in prepared.graph.node] == ["reshape"]
    assert run(prepared, {"x": np.ones((2, 3, 4), np.float32)})[0].shape == (2, 12)


def test_quantised_weights_are_folded_but_stay_quantised() -> None:
    nodes = [
        make("QuantizeLinear", ["w", "s", "z"], ["q"], name="q"),
        make("DequantizeLinear", ["q", "s", "z"], ["d"], name="d"),
        make("MatMul", ["x", "d"], ["y"], name="m"),
    ]
    constants = {
        "w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3),
        "s": np.float32(0.01),
        "z": np.int8(0),
    }
    prepared = prepare(model_of(nodes, {"x": [2, 4]}, ["y"], constants))
    assert kinds(prepared) == ["DequantizeLinear", "MatMul"]
    weight = next(t for t in prepared.graph.initializer if t.name == "q")
    assert weight.data_type == onnx.TensorProto.INT8


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_real_models_keep_their_nodes_and_names(path: Path) -> None:
    model = load_model(path)
    before = [(n.op_type, n.name) for n in model.graph.node if n.name]
    after = [(n.op_type, n.name) for n in prepare(model).graph.node]
    assert [pair for pair in after if pair[0] != "Identity"] == before
    assert all(name for _, name in after)


def test_nodes_get_names_of_their_own() -> None:
    nodes = [
        make("Relu", ["x"], ["a"]),
        make("Relu", ["a"], ["b"], name="twin"),
        make("Relu", ["b"], ["y"], name="twin"),
    ]
    prepared = prepare(model_of(nodes, {"x": [2]}, ["y"]))
    assert [node.name for node in prepared.graph.node] == ["Relu_a", "twin", "twin_2"]


def test_unsorted_nodes_are_sorted_and_unused_ones_dropped() -> None:
    nodes = [
        make("Relu", ["a"], ["y"], name="second"),
        make("Exp", ["x"], ["nobody"], name="unused"),
        make("Neg", ["x"], ["a"], name="first"),
    ]
    model = onnx.ModelProto()
    model.CopyFrom(model_of(nodes[2:], {"x": [2]}, ["a"]))
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)
    model.graph.output[0].name = "y"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3), "unused_weight"))
    prepared = prepare(model)
    assert [node.name for node in prepared.graph.node] == ["first", "second"]
    assert not prepared.graph.initializer


def test_a_cycle_is_named() -> None:
    nodes = [make("Add", ["x", "b"], ["a"], name="one"), make("Neg", ["a"], ["b"], name="two")]
    model = relu([2])
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)
    model.graph.output[0].name = "a"
    with pytest.raises(ModelError, match=r"^one: the node reads its own result"):
        prepare(model)


def test_old_opsets_are_raised_and_mean_the_same() -> None:
    nodes = [
        make("Squeeze", ["x"], ["a"], axes=[1], name="squeeze"),
        make("Hardmax", ["a"], ["y"], name="hardmax"),
    ]
    model = model_of(nodes, {"x": [2, 1, 3, 4]}, ["y"], opset=11)
    prepared = prepare(model)
    assert opset_of(prepared) >= 13
    x = np.random.default_rng(0).normal(size=(2, 1, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(prepared, {"x": x})[0], run(model, {"x": x})[0])


def test_initialisers_among_the_inputs_are_constants() -> None:
    nodes = [make("Add", ["x", "c"], ["y"], name="add")]
    model = model_of(nodes, {"x": [2], "c": [2]}, ["y"], {"c": np.ones(2, np.float32)})
    assert [value.name for value in prepare(model).graph.input] == ["x"]


RESIZES: list[dict[str, Any]] = [
    {"mode": "nearest"},
    {"mode": "nearest", "nearest_mode": "ceil", "coordinate_transformation_mode": "asymmetric"},
    {"mode": "linear"},
    {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    {"mode": "cubic", "exclude_outside": 1},
    {"mode": "linear", "antialias": 1},
]


@pytest.mark.parametrize("scale", [0.6, 2.5])
@pytest.mark.parametrize("attributes", RESIZES, ids=str)
def test_fractional_resize_is_rewritten_exactly(attributes: dict[str, Any], scale: float) -> None:
    nodes = [make("Resize", ["x", "", "scales"], ["y"], name="resize", **attributes)]
    scales = np.array([1, 1, scale, scale], np.float32)
    model = model_of(nodes, {"x": [1, 2, 5, 7]}, ["y"], {"scales": scales}, opset=18)
    prepared = prepare(model)
    assert "Resize" not in kinds(prepared)
    assert {original_name(node.name) for node in prepared.graph.node} == {"resize"}
    x = np.random.default_rng(0).normal(size=(1, 2, 5, 7)).astype(np.float32)
    ours, expected = run(prepared, {"x": x})[0], run(model, {"x": x})[0]
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


def test_aligned_corners_of_fractional_extents_are_refused() -> None:
    attributes = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    nodes = [make("Resize", ["x", "", "scales"], ["y"], name="resize", **attributes)]
    scales = np.array([1, 1, 0.6, 0.6], np.float32)
    model = model_of(nodes, {"x": [1, 2, 5, 7]}, ["y"], {"scales": scales}, opset=18)
    with pytest.raises(ModelError, match=r"^resize: .*give sizes instead of scales$"):
        prepare(model)


SPREADING = {
    "Min": lambda x, z: np.minimum(x, z),
    "Max": lambda x, z: np.maximum(x, z),
    "ReduceMin": lambda x, z: x.min(axis=1),
    "ReduceMax": lambda x, z: x.max(axis=1),
}


@pytest.mark.parametrize("operator", SPREADING)
def test_nan_spreads_by_construction(operator: str) -> None:
    """numpy is the judge: onnxruntime's own reductions lose the NaN."""
    reduces = operator.startswith("Reduce")
    attributes = {"axes": [1], "keepdims": 0} if reduces else {}
    inputs = ["x"] if reduces else ["x", "z"]
    nodes = [make(operator, inputs, ["y"], name="n", **attributes)]
    prepared = prepare(model_of(nodes, {name: [2, 4] for name in inputs}, ["y"]))
    x = np.array([[1, np.nan, 3, np.inf], [1, 2, -np.inf, 4]], np.float32)
    feed = {"x": x, "z": x[::-1].copy()}
    expected = SPREADING[operator](**feed)
    ours = run(prepared, {name: feed[name] for name in inputs})[0]
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_automatic_padding_is_spelled_out(mode: str) -> None:
    nodes = [
        make("Conv", ["x", "w"], ["c"], name="c", auto_pad=mode, strides=[2, 3]),
        make("MaxPool", ["c"], ["y"], name="p", auto_pad=mode, kernel_shape=[2, 2]),
    ]
    weight = np.random.default_rng(1).normal(size=(4, 3, 4, 3)).astype(np.float32)
    model = model_of(nodes, {"x": [1, 3, 9, 10]}, ["y"], {"w": weight})
    prepared = prepare(model)
    names = [attribute.name for node in prepared.graph.node for attribute in node.attribute]
    assert "auto_pad" not in names
    x = np.random.default_rng(0).normal(size=(1, 3, 9, 10)).astype(np.float32)
    np.testing.assert_allclose(run(prepared, {"x": x})[0], run(model, {"x": x})[0], rtol=1e-5)


def test_same_padding() -> None:
    assert same_padding(9, 4, 2, 1) == 3
    assert same_padding(10, 3, 3, 1) == 2
    assert same_padding(8, 1, 2, 1) == 0


def test_functions_are_expanded() -> None:
    nodes = [make("Celu", ["x"], ["y"], name="celu", alpha=1.5)]
    model = model_of(nodes, {"x": [5]}, ["y"])
    prepared = prepare(model)
    assert "Celu" not in kinds(prepared)
    assert {original_name(node.name) for node in prepared.graph.node} == {"celu"}
    x = np.linspace(-2, 2, 5, dtype=np.float32)
    np.testing.assert_allclose(run(prepared, {"x": x})[0], run(model, {"x": x})[0], rtol=1e-6)


def test_functions_of_the_model_are_expanded_under_the_name_of_their_call() -> None:
    body = [make("Neg", ["a"], ["t"]), make("Add", ["t", "b"], ["r"])]
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]
    function = onnx.helper.make_function("own", "Difference", ["a", "b"], ["r"], body, opsets[:1])
    nodes = [
        make("Difference", ["x", "z"], ["m"], name="first", domain="own"),
        make("Difference", ["m", "z"], ["y"], name="second", domain="own"),
    ]
    value = onnx.helper.make_tensor_value_info
    inputs = [value(name, FLOAT, [3]) for name in ("x", "z")]
    graph = onnx.helper.make_graph(nodes, "graph", inputs, [value("y", FLOAT, [3])])
    model = onnx.helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)
    prepared = prepare(model)
    assert [original_name(n.name) for n in prepared.graph.node] == ["first"] * 2 + ["second"] * 2
    feed = {"x": np.float32([1, 2, 3]), "z": np.float32([5, 7, 11])}
    np.testing.assert_array_equal(run(prepared, feed)[0], feed["x"])
