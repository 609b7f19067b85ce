"""Floating-point CPU kernels against onnxruntime, and QuantizeLinear to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from tvm import relax

from tests.cpu.run_kernels import run_graph
from tilewright.passes.constants import constant

Array = NDArray[Any]
PATHS = np.random.default_rng(3)


def normal(*shape: int) -> Array:
    return PATHS.standard_normal(shape).astype(np.float32)


def onnx_result(
    op: str, inputs: list[Array], constants: list[Array], result: str = "float32", **attributes: Any
) -> Array:
    """What onnxruntime gives for a graph of one node, of dtype `result`."""
    names = [f"x{i}" for i in range(len(inputs))]
    weights = [f"w{i}" for i in range(len(constants))]
    graph = helper.make_graph(
        [helper.make_node(op, [*names, *weights], ["y"], **attributes)],
        "one",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in zip(names, inputs, strict=True)
        ],
        [
            helper.make_tensor_value_info(
                "y", helper.np_dtype_to_tensor_dtype(np.dtype(result)), None
            )
        ],
        [numpy_helper.from_array(a, name) for a, name in zip(constants, weights, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, dict(zip(names, inputs, strict=True)))[0])


def nchw(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def assert_close(ours: Array, expected: Array) -> None:
    assert ours.shape == expected.shape
    scale = max(float(np.abs(expected).max()), 1e-6)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5 * scale)


CONVOLUTIONS = [
    # size, inputs, outputs, kernel, strides, pads, dilations, groups
    ((5, 7), 3, 17, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 1),
    ((9, 1), 130, 3, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((13, 11), 8, 24, (5, 3), (1, 2), (2, 0, 1, 1), (1, 1), 2),
    ((13, 11), 6, 64, (3, 3), (1, 1), (2, 2, 2, 2), (2, 2), 1),
    ((13, 11), 130, 130, (3, 3), (2, 1), (1, 1, 1, 1), (1, 1), 130),
    ((6, 6), 5, 10, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 5),
    ((1, 1), 1, 1, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution_with_bias_residual_and_relu(case: Any, layout: str) -> None:
    size, inputs, outputs, kernel, strides, pads, dilations, groups = case
    x = normal(2, *size, inputs)
    w, bias = normal(*kernel, inputs // groups, outputs), normal(outputs)
    oihw = np.ascontiguousarray(w.transpose(3, 2, 0, 1))
    expected = onnx_result(
        "Conv", [nchw(x)], [oihw, bias],
        strides=strides, pads=pads, dilations=dilations, group=groups,
    )  # fmt: skip
    other = normal(*expected.shape)
    expected = np.maximum(expected + other, 0)
    channels_last = layout == "NHWC"

    def build(builder: Any, x: Any, other: Any) -> Any:
        convolved = relax.op.nn.conv2d(
            x,
            constant(w if channels_last else oihw),
            strides=strides,
            padding=pads,
            dilation=dilations,
            groups=groups,
            data_layout=layout,
            kernel_layout="HWIO" if channels_last else "OIHW",
        )
        shaped = bias if channels_last else bias.reshape(-1, 1, 1)
        biased = builder.emit(relax.op.add(builder.emit(convolved), constant(shaped)))
        return relax.op.nn.relu(builder.emit(relax.op.add(biased, other)))

    if channels_last:
        other, expected = other.transpose(0, 2, 3, 1).copy(), expected.transpose(0, 2, 3, 1)
        ours = run_graph(build, [x, other], (0.3, 0.31))
    else:
        ours = run_graph(build, [nchw(x), other])
    assert_close(ours, expected)


TRANSPOSED = [
    # kernel, strides, pads, output padding, dilations
    ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1), (1, 1)),
    ((2, 2), (2, 2), (0, 0, 0, 0), (0, 0), (1, 1)),
    ((4, 3), (3, 1), (1, 0, 2, 1), (0, 0), (1, 2)),
    ((1, 1), (1, 1), (0, 0, 0, 0), (0, 0), (1, 1)),
]


@pytest.mark.parametrize("case", TRANSPOSED)
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolution(case: Any, groups: int) -> None:
    kernel, strides, pads, more, dilations = case
    x, w = normal(1, 6, 5, 4), normal(6, 8 // groups, *kernel)
    ours = run_graph(
        lambda _builder, x: relax.op.nn.conv2d_transpose(
            x, constant(w), strides, pads, more, dilations, groups
        ),
        [x],
    )
    expected = onnx_result(
        "ConvTranspose", [x], [w], strides=strides, pads=pads, output_padding=more,
        dilations=dilations, group=groups,
    )  # fmt: skip
    assert_close(ours, expected)


def test_convolution_with_weights_computed_at_run_time() -> None:
    x, w = normal(1, 6, 6, 5), normal(3, 3, 5, 20)
    ours = run_graph(
        lambda _builder, x, w: relax.op.nn.conv2d(
            x, w, padding=1, data_layout="NHWC", kernel_layout="HWIO"
        ),
        [x, w],
    )
    expected = onnx_result("Conv", [nchw(x), w.transpose(3, 2, 0, 1).copy()], [], pads=[1] * 4)
    assert_close(ours, expected.transpose(0, 2, 3, 1))


@pytest.mark.parametrize(
    "a_shape,b_shape",
    [((1, 1), (1, 1)), ((1, 640), (640, 128)), ((37, 19), (19, 130)), ((2, 3, 7, 5), (5, 17))],
)
@pytest.mark.parametrize("fixed", [True, False])
def test_matrix_product(a_shape: Any, b_shape: Any, fixed: bool) -> None:
    a, b = normal(*a_shape), normal(*b_shape)
    if fixed:
        ours = run_graph(lambda _builder, a: relax.op.matmul(a, constant(b)), [a], (0.6,))
    else:
        ours = run_graph(lambda _builder, a, b: relax.op.matmul(a, b), [a, b], (0.6,))
    assert_close(ours, np.asarray(a.astype(np.float64) @ b, np.float32))


@pytest.mark.parametrize("b_shape", [(2, 3, 5, 16), (3, 5, 16), (1, 1, 5, 16)])
def test_batched_matrix_product(b_shape: Any) -> None:
    a, b = normal(2, 3, 7, 5), normal(*b_shape)
    ours = run_graph(lambda _builder, a, b: relax.op.matmul(a, b), [a, b])
    assert_close(ours, a @ b)


POOLS = [
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [0, 1, 1, 0]},
    {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("attributes", POOLS)
@pytest.mark.parametrize("include", [0, 1])
def test_pool(op: str, attributes: dict[str, Any], include: int) -> None:
    x = normal(1, 9, 7, 19)
    extra = {"count_include_pad": include} if op == "AveragePool" else {}
    expected = onnx_result(op, [nchw(x)], [], **attributes, **extra)
    operation = relax.op.nn.max_pool2d if op == "MaxPool" else relax.op.nn.avg_pool2d

    def build(_builder: Any, x: Any) -> Any:
        return operation(
            x,
            attributes["kernel_shape"],
            attributes["strides"],
            attributes.get("pads", [0, 0, 0, 0]),
            ceil_mode=bool(attributes.get("ceil_mode", 0)),
            count_include_pad=bool(include),
            layout="NHWC",
        )

    assert_close(run_graph(build, [x], (0.5,)), expected.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 5, 333), (4, 3000)])
@pytest.mark.parametrize("axis", [-1, 0])
def test_softmax(shape: Any, axis: int) -> None:
    x = normal(*shape) * 5
    ours = run_graph(lambda _builder, x: relax.op.nn.softmax(x, axis), [x], (0.5,))
    assert_close(ours, onnx_result("Softmax", [x], [], axis=axis))


@pytest.mark.parametrize("shape", [(3, 7), (2, 5, 333), (1, 1, 2500)])
def test_layer_normalisation(shape: Any) -> None:
    x, gamma, beta = normal(*shape) + 3, normal(shape[-1]), normal(shape[-1])
    ours = run_graph(
        lambda _builder, x: relax.op.nn.layer_norm(x, constant(gamma), constant(beta), [-1], 1e-5),
        [x],
    )
    expected = onnx_result("LayerNormalization", [x], [gamma, beta], epsilon=1e-5)
    assert_close(ours, expected)


@pytest.mark.parametrize("axes", [[0], [1], [2], [1, 2], [0, 1, 2]])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceMax"])
def test_reduction(op: str, axes: list[int]) -> None:
    x = normal(3, 7, 41)
    name = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max"}[op]
    ours = run_graph(lambda _builder, x: getattr(relax.op, name)(x, axes), [x], (0.5,))
    expected = onnx_result(op, [x], [np.array(axes, np.int64)], keepdims=0)
    assert_close(ours, expected)


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 1, 0, 2)])
def test_transpose(order: tuple[int, ...]) -> None:
    x = normal(2, 3, 5, 17)
    ours = run_graph(lambda _builder, x: relax.op.permute_dims(x, list(order)), [x], (0.5,))
    np.testing.assert_array_equal(ours, x.transpose(order))


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "sqrt", "erf"])
def test_transcendental_function(name: str) -> None:
    special = np.array([0, -0.0, 1e-30, -1e-30, 88.0, -88.0, 87.3, -103.0], np.float32)
    x = np.concatenate([normal(1001) * 10, special])
    x = np.abs(x) if name == "sqrt" else x
    ours = run_graph(lambda _builder, x: getattr(relax.op, name)(x), [x])
    onnx_name = {"exp": "Exp", "tanh": "Tanh", "sigmoid": "Sigmoid", "sqrt": "Sqrt", "erf": "Erf"}
    expected = onnx_result(onnx_name[name], [x], [])
    np.testing.assert_allclose(ours, expected, rtol=3e-6, atol=1e-6)


def test_two_results_and_several_readers() -> None:
    x = normal(4, 30)

    def build(builder: Any, x: Any) -> Any:
        doubled = builder.emit(relax.op.exp(x))
        parts = builder.emit(relax.op.split(doubled, 3, axis=1))
        added = builder.emit(relax.op.add(parts[0], parts[2]))
        return relax.op.concat([added, builder.emit(relax.op.negative(parts[1]))], axis=1)

    first, second, third = np.split(np.exp(x), 3, axis=1)
    expected = np.concatenate([first + third, -second], axis=1)
    assert_close(run_graph(build, [x], (0.5,)), expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantize_is_onnx_quantize(dtype: str) -> None:
    scale = np.float32(0.0371)
    ties = (np.arange(-300, 300) + 0.5).astype(np.float32) * scale
    extremes = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30], np.float32)
    x = np.concatenate([normal(2000) * 3, ties, extremes])
    zero = np.array(7, dtype)
    ours = run_graph(
        lambda _builder, x: relax.op.quantize(x, constant(scale), constant(zero), out_dtype=dtype),
        [x],
    )
    expected = onnx_result("QuantizeLinear", [x], [np.array(scale), zero], dtype)
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("axis", [0, 1])
def test_dequantize_along_an_axis(axis: int) -> None:
    x = np.arange(-128, 128).astype(np.int8).reshape(16, 16)
    scale, zero = np.abs(normal(16)) + 0.01, np.arange(16).astype(np.int8)
    ours = run_graph(
        lambda _builder, x: relax.op.dequantize(x, constant(scale), constant(zero), axis), [x]
    )
    np.testing.assert_array_equal(
        ours, onnx_result("DequantizeLinear", [x], [scale, zero], axis=axis)
    )
