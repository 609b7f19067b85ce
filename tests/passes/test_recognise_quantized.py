"""Each kind of quantised operator: recognised, and equal to onnxruntime but for ties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import tvm

from tests.integer_form import session
from tests.qdq_models import QdqModel
from tests.relax_in_numpy import run_relax
from tilewright.compiler.frontend import import_to_relax, prepare
from tilewright.passes.canonicalise import canonicalise
from tilewright.passes.constants import op_name
from tilewright.passes.names import onnx_nodes_of
from tilewright.passes.reasons import reasons_of
from tilewright.passes.recognise_quantized import recognise_quantized

IMAGE = (1, 4, 7, 6)
Build = Callable[[QdqModel], None]


def recognised(model: onnx.ModelProto) -> tvm.IRModule:
    return recognise_quantized(canonicalise(import_to_relax(prepare(model))))


def values_of(module: tvm.IRModule) -> list[Any]:
    return [b.value for block in module["main"].body.blocks for b in block.bindings]


def operators(module: tvm.IRModule) -> list[str]:
    return [op_name(value) for value in values_of(module)]


def conv(
    builder: QdqModel,
    *,
    x: str | None = None,
    weight_scale: Any = 0.01,
    weight_zero: int = 0,
    weight_dtype: str = "int8",
    bias: bool = True,
    groups: int = 1,
    dtype: str = "int8",
    **attributes: Any,
) -> str:
    x = x or builder.input(IMAGE, 0.05, 3, dtype)
    w = builder.weight((8, 4 // groups, 3, 3), weight_scale, weight_zero, weight_dtype)
    scale = np.float32(0.05) * np.float32(weight_scale)
    inputs = [x, w, builder.bias(8, scale)] if bias else [x, w]
    return builder.node("Conv", inputs, group=groups, **attributes)


def per_channel() -> np.ndarray:
    return np.linspace(0.002, 0.02, 8).astype(np.float32)


def convolutions() -> dict[str, Build]:
    def plain(b: QdqModel) -> None:
        b.output(conv(b, pads=[1, 0, 2, 1], strides=[2, 1]), 0.4, -3)

    def channels(b: QdqModel) -> None:
        zeros = np.zeros(8, np.int8)
        b.output(conv(b, weight_scale=per_channel(), weight_zero=zeros), 0.4, -3)

    def grouped(b: QdqModel) -> None:
        b.output(conv(b, groups=2, dilations=[2, 2]), 0.4, -3)

    def depthwise(b: QdqModel) -> None:
        b.output(conv(b, groups=4, bias=False), 0.3, 9)

    def unsigned(b: QdqModel) -> None:
        b.output(conv(b, dtype="uint8"), 0.4, 128, "uint8")

    def weight_zero(b: QdqModel) -> None:
        b.output(conv(b, weight_zero=121, weight_dtype="uint8"), 0.4, -3)

    def relu(b: QdqModel) -> None:
        b.output(b.node("Relu", [conv(b)]), 0.2, -128)

    def clip(b: QdqModel) -> None:
        low, high = b.constant(np.float32(-1.5)), b.constant(np.float32(6))
        b.output(b.node("Clip", [conv(b), low, high]), 0.1, -20)

    return {name: build for name, build in locals().items() if callable(build)}


def products() -> dict[str, Build]:
    def gemm(b: QdqModel) -> None:
        x, w = b.input((5, 16), 0.04, -7), b.weight((9, 16), 0.02)
        bias = b.bias(9, np.float32(0.04) * np.float32(0.02))
        b.output(b.node("Gemm", [x, w, bias], transB=1), 0.3, 2)

    def matmul(b: QdqModel) -> None:
        scales = np.linspace(0.01, 0.03, 9).astype(np.float32)
        x = b.input((2, 5, 16), 0.04, -7)
        w = b.weight((16, 9), scales, np.zeros(9, np.int8), axis=1)
        bias = b.bias(9, np.float32(0.04) * scales)
        b.output(b.node("Add", [b.node("MatMul", [x, w]), bias]), 0.3, 2)

    return {name: build for name, build in locals().items() if callable(build)}


def run_time_matmul(b: QdqModel) -> None:
    a, c = b.input((2, 5, 16), 0.04, -7), b.input((2, 16, 6), 0.03, 5)
    b.output(b.node("MatMul", [a, c]), 0.2, 0)


def binary(operator: str) -> Build:
    def build(b: QdqModel) -> None:
        x, y = b.input(IMAGE, 0.05, 3), b.input((1, 4, 1, 1), 0.07, -11)
        b.output(b.node(operator, [x, y]), 0.06, 4)

    return build


def average(**attributes: Any) -> Build:
    def build(b: QdqModel) -> None:
        x = b.input(IMAGE, 0.05, 3)
        b.output(b.node("AveragePool", [x], kernel_shape=[3, 2], **attributes), 0.0317, 4)

    return build


def whole_image(operator: str, **attributes: Any) -> Build:
    def build(b: QdqModel) -> None:
        x = b.input(IMAGE, 0.05, 3)
        if operator == "ReduceMean":
            axes = b.constant(np.array([2, 3], np.int64))
            b.output(b.node(operator, [x, axes], **attributes), 0.03, 4)
        else:
            b.output(b.node(operator, [x]), 0.05, 3)

    return build


def softmax(b: QdqModel) -> None:
    b.output(b.node("Softmax", [b.input((3, 10), 0.1, 20)], axis=-1), 1 / 256, -128)


CASES: dict[str, tuple[Build, str]] = {
    **{f"conv {name}": (build, "conv2d") for name, build in convolutions().items()},
    **{f"dense {name}": (build, "dense") for name, build in products().items()},
    "matmul": (run_time_matmul, "matmul"),
    "add": (binary("Add"), "add"),
    "subtract": (binary("Sub"), "subtract"),
    "multiply": (binary("Mul"), "multiply"),
    "average": (average(), "avg_pool2d"),
    "average padded": (average(pads=[1, 1, 1, 0]), "avg_pool2d"),
    "average counting pads": (average(pads=[1, 1, 1, 0], count_include_pad=1), "avg_pool2d"),
    "average ceil": (average(strides=[2, 2], ceil_mode=1), "avg_pool2d"),
    "global average": (whole_image("GlobalAveragePool"), "avg_pool2d"),
    "mean": (whole_image("ReduceMean", keepdims=0), "avg_pool2d"),
    "global max": (whole_image("GlobalMaxPool"), "max_pool2d"),
    "softmax": (softmax, "softmax"),
}


@pytest.mark.parametrize("name", CASES)
def test_operator_is_recognised_and_right(name: str) -> None:
    build, operator = CASES[name]
    builder = QdqModel()
    build(builder)
    module = recognised(builder.model())
    assert set(operators(module)) <= {f"tilewright.{operator}", "relax.reshape"}
    assert reasons_of(module["main"]) == {}
    assert_equal_but_for_ties(builder, module)


def assert_equal_but_for_ties(builder: QdqModel, module: tvm.IRModule) -> None:
    judge = session(builder.model())
    for _ in range(3):
        inputs = builder.random_inputs()
        for ours, theirs in zip(run_relax(module, inputs), judge.run(None, inputs), strict=True):
            assert ours.dtype == theirs.dtype
            steps = np.abs(ours.astype(int) - theirs.astype(int))
            assert steps.max() <= 1
            assert steps.sum() <= max(1, 0.01 * steps.size)


ACTIVATIONS: dict[str, dict[str, Any]] = {
    "Sigmoid": {},
    "Tanh": {},
    "HardSwish": {},
    "HardSigmoid": {"alpha": 0.25, "beta": 0.4},
    "LeakyRelu": {"alpha": 0.1},
    "Elu": {"alpha": 0.7},
    "Relu": {},
    "Softplus": {},
    "Erf": {},
    "Exp": {},
}


@pytest.mark.parametrize("operator", ACTIVATIONS)
def test_activation_becomes_one_table(operator: str) -> None:
    builder = QdqModel()
    x = builder.input((1, 256), 0.04, -5)
    builder.output(builder.node(operator, [x], **ACTIVATIONS[operator]), 0.03, -50)
    module = recognised(builder.model(opset=20))
    assert operators(module) == ["tilewright.lookup"]
    assert_equal_but_for_ties(builder, module)


@pytest.mark.parametrize("operator", ["Floor", "Ceil", "Round"])
def test_a_table_jumps_where_float32_does(operator: str) -> None:
    builder = QdqModel()
    x = builder.input((1, 256), 0.1, 1)
    builder.output(builder.node(operator, [x]), 0.11, -50)
    module = recognised(builder.model())
    assert operators(module) == ["tilewright.lookup"]
    assert_equal_but_for_ties(builder, module)


def silu(b: QdqModel, x: str) -> str:
    return str(b.node("Mul", [x, b.node("Sigmoid", [x])]))


def gelu(b: QdqModel, x: str) -> str:
    half, one = b.constant(np.float32(0.5)), b.constant(np.float32(1))
    root = b.constant(np.float32(np.sqrt(2)))
    error = b.node("Add", [b.node("Erf", [b.node("Div", [x, root])]), one])
    return str(b.node("Mul", [b.node("Mul", [x, error]), half]))


@pytest.mark.parametrize("expression", [silu, gelu], ids=["silu", "gelu"])
def test_expression_of_one_tensor_becomes_one_table(
    expression: Callable[[QdqModel, str], str],
) -> None:
    builder = QdqModel()
    builder.output(expression(builder, builder.input((1, 256), 0.04, -5)), 0.03, -100)
    module = recognised(builder.model())
    assert operators(module) == ["tilewright.lookup"]
    compute = [n.name for n in builder.nodes if not n.op_type.endswith("Linear")]
    assert set(compute) <= set(onnx_nodes_of(values_of(module)[0]))
    assert_equal_but_for_ties(builder, module)


def test_concat_brings_each_input_to_its_scale() -> None:
    builder = QdqModel()
    parts = [builder.input(IMAGE, 0.05, 3), builder.input(IMAGE, 0.03, 3)]
    builder.output(builder.node("Concat", parts, axis=1), 0.05, 3)
    module = recognised(builder.model())
    assert operators(module) == ["tilewright.lookup", "relax.concat"]
    assert_equal_but_for_ties(builder, module)


def test_concat_of_convolutions_quantises_each() -> None:
    builder = QdqModel()
    x = builder.input(IMAGE, 0.05, 3)
    parts = [conv(builder, x=x), builder.node("Relu", [conv(builder, x=x)])]
    builder.output(builder.node("Concat", parts, axis=1), 0.3, 0)
    module = recognised(builder.model())
    assert operators(module) == ["tilewright.conv2d", "tilewright.conv2d", "relax.concat"]
    assert_equal_but_for_ties(builder, module)


def test_moves_are_done_on_int8() -> None:
    builder = QdqModel()
    x = builder.input(IMAGE, 0.05, 3)
    widths = builder.constant(np.array([0, 0, 1, 0, 0, 0, 1, 2], np.int64))
    x = builder.node("Pad", [x, widths])
    x = builder.node("Transpose", [x], perm=[0, 2, 3, 1])
    sizes = builder.constant(np.array([3, 6], np.int64))
    first, second = builder.node("Split", [x, sizes], outputs=2, axis=1)
    builder.output(first, 0.05, 3)
    x = builder.node("Reshape", [second, builder.constant(np.array([6, -1], np.int64))])
    builder.output(x, 0.02, 0)
    module = recognised(builder.model())
    assert not {"relax.dequantize", "relax.quantize"} & set(operators(module))
    assert operators(module).count("tilewright.lookup") == 1
    assert "relax.nn.pad" in operators(module)
    assert_equal_but_for_ties(builder, module)


def test_max_pool_needs_no_quantisation_after_it() -> None:
    builder = QdqModel()
    x = builder.input(IMAGE, 0.05, 3)
    pooled = builder.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    builder.output(conv(builder, x=pooled), 0.3, 0)
    module = recognised(builder.model())
    assert operators(module) == ["tilewright.max_pool2d", "tilewright.conv2d"]
    assert_equal_but_for_ties(builder, module)


def test_dequantised_value_serves_several_operators() -> None:
    builder = QdqModel()
    x = builder.input((1, 8, 5, 4), 0.05, 3)
    w = builder.weight((8, 8, 1, 1), 0.01)
    y = builder.quantize(builder.node("Conv", [x, w]), 0.1, 0)
    y = builder.dequantize(y, 0.1, 0, "int8")
    builder.output(builder.node("Add", [x, y]), 0.1, 0)
    module = recognised(builder.model())
    assert operators(module) == ["tilewright.conv2d", "tilewright.add"]
    assert_equal_but_for_ties(builder, module)


def reason_for(build: Build, node: str) -> str:
    builder = QdqModel()
    build(builder)
    reasons = reasons_of(recognised(builder.model())["main"])
    return next(text for name, text in reasons.items() if name.startswith(node))


def test_bias_on_another_scale_is_left_with_its_reason() -> None:
    def build(b: QdqModel) -> None:
        x, w = b.input(IMAGE, 0.05, 3), b.weight((8, 4, 3, 3), 0.01)
        b.output(b.node("Conv", [x, w, b.bias(8, 0.001)]), 0.4, 0)

    assert reason_for(build, "Conv") == "its bias scale is not input scale times weight scale"


def test_float_bias_is_left_with_its_reason() -> None:
    def build(b: QdqModel) -> None:
        x, w = b.input(IMAGE, 0.05, 3), b.weight((8, 4, 3, 3), 0.01)
        b.output(b.node("Conv", [x, w, b.constant(np.ones(8, np.float32))]), 0.4, 0)

    assert reason_for(build, "Conv").startswith("its bias is float")


def test_weight_zero_points_by_channel_are_left_with_their_reason() -> None:
    def build(b: QdqModel) -> None:
        zeros = np.arange(8, dtype=np.int8)
        b.output(conv(b, weight_scale=per_channel(), weight_zero=zeros), 0.4, 0)

    assert "zero points that differ between channels" in reason_for(build, "Conv")


def test_result_that_is_not_quantised_is_left_with_its_reason() -> None:
    def build(b: QdqModel) -> None:
        b.outputs.append(conv(b))

    assert reason_for(build, "Conv") == "its result is not quantised (no QuantizeLinear after it)"


def test_float_result_read_twice_is_left_with_its_reason() -> None:
    def build(b: QdqModel) -> None:
        y = conv(b)
        b.outputs.append(y)
        b.output(y, 0.4, 0)

    assert reason_for(build, "Conv") == "its float result is also read by another node"


def test_float_model_is_left_alone() -> None:
    builder = QdqModel()
    x = builder.dequantize("x0", 0.1, 0, "int8")
    builder.inputs["x0"] = (IMAGE, "int8")
    y = builder.node("Relu", [builder.node("Sin", [x])])
    builder.outputs.append(builder.node("Add", [y, y]))
    before = canonicalise(import_to_relax(prepare(builder.model())))
    after = recognise_quantized(before)
    assert [op_name(v) for v in values_of(after)] == [op_name(v) for v in values_of(before)]
