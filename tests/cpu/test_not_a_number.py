"""What is not a number stays so through every operator that limits or compares floats."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest
from tvm import relax

from tests.cpu.run_kernels import run_graph
from tilewright.compiler import compile_model

LONG = 1003  # whole vectors and a remainder
NAN, INFINITE = np.nan, np.inf


def values(dtype: str, seed: int) -> np.ndarray:
    """Numbers, both zeros and infinities among them, every fifth of them none."""
    drawn = np.random.default_rng(seed).choice(
        [NAN, 0.0, -0.0, 1.5, -1.5, 7.0, -7.0, INFINITE, -INFINITE], LONG
    )
    drawn[seed::5] = NAN
    return drawn.astype(dtype)


UNARY: dict[str, tuple[Callable[..., relax.Expr], Callable[..., Any]]] = {
    "relu": (relax.op.nn.relu, lambda x: np.maximum(x, 0)),
    "relu6": (lambda x: relax.op.clip(x, 0, 6), lambda x: np.clip(x, 0, 6)),
    "clip below": (
        lambda x: relax.op.clip(x, -INFINITE, 2),
        lambda x: np.clip(x, -INFINITE, np.float16(2)),
    ),
    "sign": (relax.op.sign, np.sign),
    "leaky": (
        lambda x: relax.op.nn.leakyrelu(x, 0.25),
        lambda x: np.where(x < 0, x * x.dtype.type(0.25), x),
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", UNARY)
def test_of_one_operand(name: str, dtype: str) -> None:
    build, expected = UNARY[name]
    x = values(dtype, 1)
    result = run_graph(lambda _builder, one: build(one), [x])
    np.testing.assert_array_equal(result, expected(x))


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("shape", [(LONG,), (1,)])
def test_of_two_operands(name: str, shape: tuple[int, ...]) -> None:
    a, b = values("float32", 1), values("float32", 2)[: shape[0]]
    build = getattr(relax.op, name)
    for operands in ([a, b], [b, a]):
        result = run_graph(lambda _builder, x, y: build(x, y), operands)
        np.testing.assert_array_equal(result, getattr(np, name)(*operands))


def test_behind_a_product() -> None:
    """Fused into the register tile that makes it."""
    x = np.ones((7, 24), np.float32)
    x[3, 5] = NAN
    weight = np.random.default_rng(0).normal(size=(24, 40)).astype(np.float32)
    product = run_graph(
        lambda builder, a: relax.op.nn.relu(builder.emit(relax.op.matmul(a, relax.const(weight)))),
        [x],
    )
    assert np.isnan(product[3]).all()
    assert not np.isnan(np.delete(product, 3, 0)).any()


def onnx_operator(name: str, others: list[float], **attributes: Any) -> onnx.ModelProto:
    make = onnx.helper
    constants = [f"c{number}" for number in range(len(others))]
    graph = make.make_graph(
        [make.make_node(name, ["x", *constants], ["y"], **attributes)],
        "graph",
        [make.make_tensor_value_info("x", 1, [LONG])],
        [make.make_empty_tensor_value_info("y")],
        [
            make.make_tensor(one, 1, [], [value])
            for one, value in zip(constants, others, strict=True)
        ],
    )
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)


def sigmoid_like(x: np.ndarray, slope: float, shift: float) -> np.ndarray:
    return np.clip(np.float32(slope) * x + np.float32(shift), 0, 1)


OPERATORS: dict[str, tuple[onnx.ModelProto, Callable[..., Any]]] = {
    "Relu": (onnx_operator("Relu", []), lambda x: np.maximum(x, 0)),
    "Clip": (onnx_operator("Clip", [-1.0, 6.0]), lambda x: np.clip(x, -1, 6)),
    "Max": (onnx_operator("Max", [1.0]), lambda x: np.maximum(x, 1)),
    "Min": (onnx_operator("Min", [1.0, 0.5]), lambda x: np.minimum(x, 0.5)),
    "HardSigmoid": (onnx_operator("HardSigmoid", []), lambda x: sigmoid_like(x, 0.2, 0.5)),
    "Softsign": (onnx_operator("Softsign", []), lambda x: x / (1 + np.abs(x))),
    "ReduceMax": (onnx_operator("ReduceMax", [], keepdims=1), lambda x: x.max(keepdims=True)),
    "ReduceMin": (onnx_operator("ReduceMin", [], keepdims=1), lambda x: x.min(keepdims=True)),
    "Elu": (
        onnx_operator("Elu", []),
        lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    ),
    "PRelu": (onnx_operator("PRelu", [0.5]), lambda x: np.where(x < 0, x / 2, x)),
}


@functools.cache
def finite_too() -> np.ndarray:
    x = values("float32", 3)
    x[np.isinf(x)] = 3.0
    return x


@pytest.mark.parametrize("name", OPERATORS)
def test_of_onnx(name: str) -> None:
    model, expected = OPERATORS[name]
    result = compile_model(model, "host").run({"x": finite_too()})["y"]
    np.testing.assert_allclose(result, expected(finite_too()), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("axis", [[1], [0], [0, 1], None])
@pytest.mark.parametrize("keepdims", [True, False])
def test_reductions_of_infinities(axis: list[int] | None, keepdims: bool) -> None:
    for name, value in (("max", -INFINITE), ("min", INFINITE)):
        x = np.full((3, 70), value, np.float32)
        x[1, 69] = 2.0
        build = getattr(relax.op, name)
        result = run_graph(lambda _builder, a, b=build: b(a, axis, keepdims), [x])
        wanted = getattr(x, name)(axis=None if axis is None else tuple(axis), keepdims=keepdims)
        np.testing.assert_array_equal(result, wanted)


def test_pool_of_infinities() -> None:
    x = np.full((1, 4, 4, 8), -INFINITE, np.float32)
    x[0, 0, 0] = 1.0
    result = run_graph(
        lambda _builder, a: relax.op.nn.max_pool2d(
            a, (2, 2), (2, 2), padding=(1, 1), layout="NHWC"
        ),
        [x],
    )
    wanted = np.full((1, 3, 3, 8), -INFINITE, np.float32)
    wanted[0, 0, 0] = 1.0
    np.testing.assert_array_equal(result, wanted)
