"""exp, sigmoid and tanh as vector arithmetic: how far from the truth, and at the edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tvm import relax

from tests.cpu.run_kernels import run_graph

Array = NDArray[Any]
RNG = np.random.default_rng(11)
X = np.concatenate(
    [RNG.uniform(-104, 89, 50_000), RNG.normal(size=50_000) * 3, RNG.normal(size=20_000) * 1e-3]
).astype(np.float32)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def steps_apart(ours: Array, truth: Array) -> Array:
    """How many float32 values lie between the two, both of one sign."""
    return np.abs(ours.view(np.int32).astype(np.int64) - truth.view(np.int32))


@pytest.mark.parametrize(
    "name,truth,bound", [("exp", np.exp, 1), ("sigmoid", sigmoid, 3), ("tanh", np.tanh, 2)]
)
def test_accuracy(name: str, truth: Callable[[Array], Array], bound: int) -> None:
    ours = run_graph(lambda _builder, x: getattr(relax.op, name)(x), [X])
    with np.errstate(over="ignore"):
        expected = truth(X.astype(np.float64)).astype(np.float32)
    normal = np.abs(expected) >= np.finfo(np.float32).tiny if name == "sigmoid" else slice(None)
    assert steps_apart(ours[normal], expected[normal]).max() <= bound


@pytest.mark.parametrize(
    "name,x,expected",
    [
        ("exp", [np.inf, -np.inf, 0, 88.73, -104.5, 200], [np.inf, 0, 1, np.inf, 0, np.inf]),
        ("sigmoid", [np.inf, -np.inf, 0, 200, -200], [1, 0, 0.5, 1, 0]),
        ("tanh", [np.inf, -np.inf, 0, 200, -200], [1, -1, 0, 1, -1]),
    ],
)  # fmt: skip
def test_edges(name: str, x: list[float], expected: list[float]) -> None:
    inputs = np.array([*x, np.nan] * 20, np.float32)  # more than a vector
    ours = run_graph(lambda _builder, x: getattr(relax.op, name)(x), [inputs])
    np.testing.assert_array_equal(ours, np.array([*expected, np.nan] * 20, np.float32))


def test_a_value_used_twice_by_another_function() -> None:
    def build(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        once = builder.emit(relax.op.tanh(x))
        return relax.op.sigmoid(relax.op.multiply(once, relax.op.exp(once)))

    inputs = np.linspace(-3, 3, 64, dtype=np.float32)
    ours = run_graph(build, [inputs])
    once = np.tanh(inputs.astype(np.float64))
    np.testing.assert_allclose(ours, sigmoid(once * np.exp(once)), rtol=1e-6)
