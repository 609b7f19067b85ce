"""Names, parameters, outputs and refusals of the import."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest
from tvm import relax

from tests.integer_form import session
from tests.qdq_models import QdqModel
from tests.relax_in_numpy import run_relax
from tilewright.compiler.frontend import import_to_relax, load_model, prepare
from tilewright.passes.canonicalise import canonicalise
from tilewright.passes.constants import op_name
from tilewright.passes.names import joined_names, onnx_nodes_of, with_names
from tilewright.targets.errors import ModelError

MODEL = Path(__file__).parents[1] / "models" / "resnet8_cifar_int8.onnx"
make = onnx.helper.make_node


def float_model(
    nodes: list[onnx.NodeProto], outputs: list[str], shape: tuple[int, ...] = (2, 3)
) -> onnx.ModelProto:
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "graph",
        [value("the/input:0", onnx.TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_every_binding_is_named_after_its_node() -> None:
    model = prepare(load_model(MODEL))
    known = {node.name for node in model.graph.node}
    module = import_to_relax(model)
    seen = set()
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            names = onnx_nodes_of(binding.value)
            assert len(names) == 1
            assert binding.var.name == names[0]
            seen.update(names)
    assert known - seen == {node.name for node in model.graph.node if node.op_type == "Identity"}


def test_names_stay_as_the_user_wrote_them() -> None:
    name = "model/conv2d/Relu;model/norm/1.x"
    nodes = [make("Relu", ["the/input:0"], ["y"], name=name)]
    module = import_to_relax(prepare(float_model(nodes, ["y"])))
    assert module["main"].params[0].name == "the/input:0"
    binding = module["main"].body.blocks[0].bindings[0]
    assert onnx_nodes_of(binding.value) == (name,)
    assert onnx_nodes_of(with_names(binding.value, ["a;b", name])) == ("a;b", name)
    assert joined_names(binding.value, binding.value) == (name,)


def test_several_outputs_come_as_a_tuple() -> None:
    nodes = [
        make("Relu", ["the/input:0"], ["a"], name="relu"),
        make("Neg", ["a"], ["b"], name="neg"),
    ]
    module = import_to_relax(prepare(float_model(nodes, ["b", "a", "b"])))
    assert isinstance(module["main"].ret_ty, relax.TupleType)
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    outputs = run_relax(module, {"the/input:0": x})
    for ours, expected in zip(outputs, [-x.clip(0), x.clip(0), -x.clip(0)], strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_parts_of_a_split_carry_its_name() -> None:
    nodes = [make("Split", ["the/input:0"], ["a", "b", "c"], name="split", axis=1)]
    module = import_to_relax(prepare(float_model(nodes, ["a", "b", "c"])))
    for binding in module["main"].body.blocks[0].bindings[:-1]:
        assert onnx_nodes_of(binding.value) == ("split",)


def test_zero_sized_inputs_are_sizes_not_unknowns() -> None:
    nodes = [make("Relu", ["the/input:0"], ["y"], name="relu")]
    module = import_to_relax(prepare(float_model(nodes, ["y"], (0, 3))))
    assert [int(extent) for extent in module["main"].ret_ty.shape.values] == [0, 3]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            make("Det", ["the/input:0"], ["y"], name="det"),
            "det: operator Det is not supported; "
            "express it in other operators or cut the model before it",
        ),
        (
            make("FusedConv", ["the/input:0"], ["y"], name="f", domain="com.microsoft"),
            "f: operator com.microsoft.FusedConv is not supported; "
            "express it in other operators or cut the model before it",
        ),
        (
            make("NonZero", ["the/input:0"], ["y"], name="nonzero"),
            "nonzero: the shape of its result depends on the data; "
            "cut the model before it and leave the rest to the application",
        ),
    ],
)
def test_refusals_name_node_reason_and_way_out(node: onnx.NodeProto, message: str) -> None:
    with pytest.raises(ModelError) as error:
        import_to_relax(prepare(float_model([node], ["y"])))
    assert str(error.value) == message


def test_failing_converter_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    node = make("EyeLike", ["the/input:0"], ["y"], name="eye", dtype=onnx.TensorProto.INT32)
    with pytest.raises(ModelError, match=r"^eye: operator EyeLike cannot be imported: ") as error:
        import_to_relax(prepare(float_model([node], ["y"], (4, 4))))
    assert "\n" not in str(error.value)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_too_few_inputs_are_refused() -> None:
    node = make("MaxUnpool", ["the/input:0"], ["y"], name="pool", kernel_shape=[2, 2])
    with pytest.raises(ModelError, match=r"^pool: MaxUnpool has 1 inputs, it needs 2; repair"):
        prepare(float_model([node], ["y"], (1, 1, 4, 4)))


def test_padding_keeps_its_form() -> None:
    builder = QdqModel()
    x = builder.input((1, 2, 4, 4), 0.1, 0)
    widths = builder.constant(np.array([1, 2, 0, 1], np.int64))
    axes = builder.constant(np.array([2, -1], np.int64))
    builder.outputs.append(builder.node("Pad", [x, widths, "", axes]))
    model = builder.model()
    module = import_to_relax(prepare(model))
    inputs = builder.random_inputs()
    expected = session(model).run(None, inputs)[0]
    np.testing.assert_allclose(run_relax(module, inputs)[0], expected)


def test_limit_by_a_constant_is_a_clip() -> None:
    model = float_model([make("Max", ["c", "the/input:0"], ["y"], name="max")], ["y"])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0.25), "c"))
    module = canonicalise(import_to_relax(prepare(model)))
    (binding,) = module["main"].body.blocks[0].bindings
    assert op_name(binding.value) == "relax.clip"
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    expected = np.maximum(x, np.float32(0.25))
    np.testing.assert_array_equal(run_relax(module, {"the/input:0": x})[0], expected)
