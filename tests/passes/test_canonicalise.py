# ruff: noqa: N805 -- TVMScript functions take tensors, not self
"""canonicalise, fold_batch_norm, widen_conv1d, decompose: forms and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnxruntime
import pytest
import tvm
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812

from tests.qdq_models import QdqModel
from tests.relax_in_numpy import run_relax
from tilewright.compiler.frontend import import_to_relax, prepare
from tilewright.compiler.pipeline import graph_passes
from tilewright.passes.canonicalise import canonicalise, joined_bounds, split_edges
from tilewright.passes.constants import op_name
from tilewright.passes.decompose import decompose
from tilewright.passes.fold_batch_norm import fold_batch_norm
from tilewright.passes.names import onnx_nodes_of
from tilewright.passes.recognise_quantized import recognise_quantized
from tilewright.passes.widen_conv1d import widen_conv1d

make = onnx.helper.make_node


def operators(module: tvm.IRModule) -> list[str]:
    return [op_name(b.value) for block in module["main"].body.blocks for b in block.bindings]


def test_reshapes_and_identities_are_joined() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3, 4), "float32")) -> R.Tensor((24,), "float32"):
            with R.dataflow():
                a = R.permute_dims(x, axes=[0, 1, 2])
                b = R.reshape(a, (2, 3, 4))
                c = R.expand_dims(b, axis=0)
                d = R.squeeze(c, axis=[0])
                y = R.flatten(d)
                R.output(y)
            return y

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((2, 3, 4), "float32")) -> R.Tensor((24,), "float32"):
            with R.dataflow():
                y = R.reshape(x, (24,))
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(canonicalise(Before), After)


def test_limits_become_clip_or_relu() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.maximum(x, R.const(-1.0, "float32"))
                b = R.minimum(a, R.const(6.0, "float32"))
                c = R.exp(b)
                y = R.maximum(c, R.const(0.0, "float32"))
                R.output(y)
            return y

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                b = R.clip(x, -1.0, 6.0)
                c = R.exp(b)
                y = R.nn.relu(c)
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(canonicalise(Before), After)


@pytest.mark.parametrize("bounds", [(0, 6), (0, None), (None, 6), (float("nan"), 6), (-2, 2)])
def test_every_clip_the_importer_makes_is_one_clip(bounds: tuple[Any, Any]) -> None:
    limits = [None if b is None else np.asarray(b, np.float32) for b in bounds]
    names = ["" if limit is None else f"limit{i}" for i, limit in enumerate(limits)]
    model = float_model(
        [make("Clip", ["x", *names], ["y"], name="clip")],
        {"x": (1, 3, 4, 4)},
        {name: limit for name, limit in zip(names, limits, strict=True) if limit is not None},
    )
    module = canonicalise(import_to_relax(prepare(model)))
    assert operators(module) in (["relax.clip"], ["relax.nn.relu"])
    assert len(module.functions) == 1
    assert_agrees(model, module)


def test_joined_bounds_is_the_clip_of_a_clip() -> None:
    values = np.linspace(-9, 9, 200)
    for first in [(-3.0, 2.0), (4.0, 5.0)]:
        for then in [(-1.0, 1.0), (0.0, np.inf), (-8.0, -7.0)]:
            expected = np.clip(np.clip(values, *first), *then)
            np.testing.assert_array_equal(np.clip(values, *joined_bounds(first, then)), expected)


def test_split_edges() -> None:
    assert split_edges(7, tvm.tirx.IntImm("int64", 3)) == [0, 3, 6, 7]
    assert split_edges(7, [2, 4]) == [0, 2, 4, 7]


def float_model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, ...]],
    constants: dict[str, np.ndarray],
    output: str = "y",
) -> onnx.ModelProto:
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "float",
        [value(name, onnx.TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [value(output, onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)


def assert_agrees(model: onnx.ModelProto, module: tvm.IRModule) -> None:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    generator = np.random.default_rng(1)
    inputs = {
        i.name: generator.normal(0, 3, i.shape).astype(np.float32) for i in session.get_inputs()
    }
    expected = session.run(None, inputs)[0]
    np.testing.assert_allclose(run_relax(module, inputs)[0], expected, rtol=1e-5, atol=1e-5)


def numbers(*shape: int, low: float = -1) -> np.ndarray:
    generator = np.random.default_rng(sum(shape))
    return generator.uniform(low, 1, shape).astype(np.float32)


def norm_constants(channels: int, shift: bool = True) -> dict[str, np.ndarray]:
    zeros = np.zeros(channels, np.float32)
    return {
        "gamma": numbers(channels),
        "beta": numbers(channels) if shift else zeros,
        "mean": numbers(channels) if shift else zeros,
        "variance": numbers(channels, low=0.1),
    }


def norm(x: str, y: str) -> onnx.NodeProto:
    names = [x, "gamma", "beta", "mean", "variance"]
    return make("BatchNormalization", names, [y], name="norm")


def folded(model: onnx.ModelProto) -> tvm.IRModule:
    return fold_batch_norm(canonicalise(import_to_relax(prepare(model))))


def test_conv_norm_relu_ends_as_conv_bias_relu() -> None:
    nodes = [
        make("Conv", ["x", "w", "b"], ["c"], name="conv"),
        norm("c", "n"),
        make("Relu", ["n"], ["y"], name="relu"),
    ]
    constants = {"w": numbers(5, 3, 3, 3), "b": numbers(5), **norm_constants(5)}
    model = float_model(nodes, {"x": (1, 3, 8, 8)}, constants)
    module = folded(model)
    assert operators(module) == ["relax.nn.conv2d", "relax.add", "relax.nn.relu"]
    bindings = module["main"].body.blocks[0].bindings
    assert onnx_nodes_of(bindings[1].value) == ("conv", "norm")
    assert_agrees(model, module)


def test_conv_mul_add_without_bias_of_its_own() -> None:
    nodes = [
        make("Conv", ["x", "w"], ["c"], name="conv", group=2),
        make("Mul", ["c", "scale"], ["m"], name="mul"),
        make("Sub", ["m", "shift"], ["y"], name="sub"),
    ]
    constants = {"w": numbers(4, 2, 3, 3), "scale": numbers(4, 1, 1), "shift": numbers(1)}
    model = float_model(nodes, {"x": (1, 4, 8, 8)}, constants)
    assert operators(folded(model)) == ["relax.nn.conv2d", "relax.add"]
    assert_agrees(model, folded(model))


def test_scale_along_the_width_is_not_one_by_channel() -> None:
    nodes = [
        make("Conv", ["x", "w"], ["c"], name="conv"),
        make("Mul", ["c", "scale"], ["y"], name="mul"),
    ]
    constants = {"w": numbers(6, 3, 3, 3), "scale": numbers(6)}
    model = float_model(nodes, {"x": (1, 3, 8, 8)}, constants)
    assert operators(folded(model)) == ["relax.nn.conv2d", "relax.multiply"]
    assert_agrees(model, folded(model))


@pytest.mark.parametrize(
    ("pads", "shift", "expected"),
    [
        (0, True, ["relax.nn.conv2d", "relax.add"]),
        (1, False, ["relax.nn.conv2d"]),
        (1, True, ["relax.multiply", "relax.add", "relax.nn.conv2d"]),
    ],
)
def test_norm_before_conv_where_it_is_exact(pads: int, shift: bool, expected: list[str]) -> None:
    nodes = [norm("x", "n"), make("Conv", ["n", "w"], ["y"], name="conv", pads=[pads] * 4)]
    constants = {"w": numbers(5, 3, 3, 3), **norm_constants(3, shift)}
    model = float_model(nodes, {"x": (1, 3, 8, 8)}, constants)
    module = folded(model)
    found = operators(module)
    assert found == expected or (not shift and found == ["relax.nn.conv2d", "relax.add"])
    assert_agrees(model, module)


def test_conv_whose_result_is_read_twice_keeps_its_norm_apart() -> None:
    nodes = [
        make("Conv", ["x", "w"], ["c"], name="conv"),
        norm("c", "n"),
        make("Add", ["c", "n"], ["y"], name="add"),
    ]
    model = float_model(nodes, {"x": (1, 3, 8, 8)}, {"w": numbers(5, 3, 3, 3), **norm_constants(5)})
    assert "relax.multiply" in operators(folded(model))
    assert_agrees(model, folded(model))


def test_sequence_operators_become_image_operators() -> None:
    nodes = [
        make("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[2, 1], strides=[2]),
        make("Relu", ["c"], ["r"], name="relu"),
        make("MaxPool", ["r"], ["y"], name="pool", kernel_shape=[2], strides=[2]),
    ]
    model = float_model(nodes, {"x": (1, 3, 16)}, {"w": numbers(5, 3, 4), "b": numbers(5)})
    module = canonicalise(widen_conv1d(canonicalise(import_to_relax(prepare(model)))))
    assert operators(module) == [
        "relax.reshape",
        "relax.nn.conv2d",
        "relax.add",
        "relax.nn.relu",
        "relax.nn.max_pool2d",
        "relax.reshape",
    ]
    assert_agrees(model, module)


def test_quantised_sequence_convolution_is_recognised() -> None:
    builder = QdqModel()
    x, w = builder.input((1, 4, 12), 0.05, 3), builder.weight((8, 4, 3), 0.01)
    bias = builder.bias(8, np.float32(0.05) * np.float32(0.01))
    y = builder.node("Conv", [x, w, bias], pads=[1, 1])
    builder.output(builder.node("Relu", [y]), 0.3, -128)
    module = import_to_relax(prepare(builder.model()))
    for graph_pass in graph_passes():
        module = graph_pass(module)
    assert "tilewright.conv2d" in operators(module)
    assert not [name for name in operators(module) if name.startswith("relax.nn")]


def quantised(builder: QdqModel) -> tuple[tvm.IRModule, tvm.IRModule]:
    module = canonicalise(import_to_relax(prepare(builder.model())))
    before = recognise_quantized(module)
    return before, decompose(before)


def assert_same_bits(builder: QdqModel, before: tvm.IRModule, after: tvm.IRModule) -> None:
    inputs = builder.random_inputs()
    for a, b in zip(run_relax(before, inputs), run_relax(after, inputs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_dense_of_many_rows_is_a_matrix_product() -> None:
    builder = QdqModel()
    x, w = builder.input((2, 5, 16), 0.05, 3), builder.weight((16, 4), 0.02)
    builder.output(builder.node("MatMul", [x, w]), 0.3, 0)
    before, after = quantised(builder)
    assert operators(after) == ["relax.reshape", "tilewright.dense", "relax.reshape"]
    assert_same_bits(builder, before, after)


def test_smaller_operand_comes_second() -> None:
    builder = QdqModel()
    x, y = builder.input((1, 4, 1, 1), 0.05, 3), builder.input((1, 4, 5, 5), 0.03, -3)
    builder.output(builder.node("Add", [x, y]), 0.06, 0)
    before, after = quantised(builder)
    call = after["main"].body.blocks[0].bindings[0].value
    assert call.args[0].name == "x1"
    assert_same_bits(builder, before, after)


@pytest.mark.parametrize(("value", "pads"), [(0.0, True), (1.0, False)])
def test_convolution_pads_itself_where_padding_is_its_zero(value: float, pads: bool) -> None:
    builder = QdqModel()
    x, w = builder.input((1, 4, 6, 6), 0.0625, 3), builder.weight((8, 4, 3, 3), 0.01)
    widths = builder.constant(np.array([0, 0, 1, 0, 0, 0, 2, 1], np.int64))
    padded = builder.node("Pad", [x, widths, builder.constant(np.float32(value))])
    builder.output(builder.node("Conv", [padded, w]), 0.3, 0)
    before, after = quantised(builder)
    assert ("relax.nn.pad" not in operators(after)) == pads
    assert_same_bits(builder, before, after)
