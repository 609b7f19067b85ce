"""QLinear operators to the bit of onnxruntime, and what of them is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

from tests.integer_form import session
from tests.relax_in_numpy import run_relax
from tilewright.compiler.frontend import import_to_relax, prepare
from tilewright.compiler.pipeline import graph_passes
from tilewright.passes.constants import op_name
from tilewright.targets.errors import ModelError

UINT8, INT8 = onnx.TensorProto.UINT8, onnx.TensorProto.INT8
GENERATOR = np.random.default_rng(5)


def model_of(
    operator: str,
    inputs: list[Any],
    domain: str = "",
    kind: int = UINT8,
    shape: tuple[int, ...] = (1, 4, 9, 8),
    **attributes: Any,
) -> onnx.ModelProto:
    """One node; arrays among `inputs` are constants, strings graph inputs, None left out."""
    names, initializers = [], []
    for place, given in enumerate(inputs):
        name = f"c{place}" if isinstance(given, np.ndarray | np.generic) else (given or "")
        if name.startswith("c"):
            initializers.append(onnx.numpy_helper.from_array(np.asarray(given), name))
        names.append(name)
    node = onnx.helper.make_node(operator, names, ["y"], name="n", domain=domain, **attributes)
    value = onnx.helper.make_tensor_value_info
    fed = [value(name, kind, shape) for name in dict.fromkeys(names) if name.startswith("x")]
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    graph = onnx.helper.make_graph([node], "g", fed, [value("y", kind, None)], initializers)
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def weights(*shape: int, dtype: str = "int8") -> np.ndarray:
    limits = np.iinfo(dtype)
    return GENERATOR.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def bias(channels: int) -> np.ndarray:
    return GENERATOR.integers(-3000, 3000, channels).astype(np.int32)


def scalar(value: float, dtype: str = "float32") -> np.ndarray:
    return np.array(value, dtype)


SCALES = np.linspace(0.004, 0.02, 6).astype(np.float32)
X, Y = (scalar(0.05), scalar(120, "uint8")), (scalar(0.7), scalar(99, "uint8"))
W = (scalar(0.01), scalar(0, "int8"))
CHANNELS = (SCALES, np.zeros(6, np.int8))

MODELS: dict[str, tuple[onnx.ModelProto, str]] = {
    "conv": (model_of("QLinearConv", ["x", *X, weights(6, 4, 3, 3), *W, *Y, bias(6)]), "conv2d"),
    "conv by channel": (
        model_of("QLinearConv", ["x", *X, weights(6, 4, 3, 3), *CHANNELS, *Y], strides=[2, 1]),
        "conv2d",
    ),
    "conv padded": (
        model_of(
            "QLinearConv",
            ["x", *X, weights(6, 2, 3, 2), *W, *Y],
            group=2,
            auto_pad="SAME_UPPER",
            strides=[2, 2],
        ),
        "conv2d",
    ),
    "matmul": (
        model_of("QLinearMatMul", ["x", *X, weights(8, 6), *W, *Y]),
        "dense",
    ),
    "matmul at run time": (
        model_of("QLinearMatMul", ["x", *X, "x", *X, *Y], shape=(2, 5, 5)),
        "matmul",
    ),
    "gemm": (
        model_of(
            "QGemm",
            ["x", *X, weights(6, 8), *CHANNELS, bias(6), *Y],
            domain="com.microsoft",
            shape=(5, 8),
            transB=1,
        ),
        "dense",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_equals_onnxruntime_to_the_bit(name: str) -> None:
    model, operator = MODELS[name]
    module = import_to_relax(prepare(model))
    for graph_pass in graph_passes():
        module = graph_pass(module)
    found = [op_name(b.value) for block in module["main"].body.blocks for b in block.bindings]
    assert found.count(f"tilewright.{operator}") == 1
    judge = session(model)
    for _ in range(3):
        inputs = {i.name: weights(*i.shape, dtype="uint8") for i in judge.get_inputs()}
        expected = judge.run(None, inputs)[0]
        assert len(np.unique(expected)) > 20
        np.testing.assert_array_equal(run_relax(module, inputs)[0], expected)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            model_of("QLinearConv", ["x", *X, weights(6, 4, 3, 3), *W, "x_scale", Y[1]]),
            "n: its scale is computed at run time; make it a constant of the model",
        ),
        (
            model_of(
                "QLinearConv",
                ["x", *X, weights(6, 4, 3, 3), SCALES, np.arange(6, dtype=np.int8), *Y],
            ),
            "n: zero points that differ between channels are not supported; "
            "quantise its weights symmetrically",
        ),
    ],
)
def test_refusals(model: onnx.ModelProto, message: str) -> None:
    with pytest.raises(ModelError) as error:
        import_to_relax(prepare(model))
    assert str(error.value) == message
