"""Operators without a template of their own: TVM's legalisation, our schedules, numpy's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tvm import relax

from tests.cpu.run_kernels import HOST, graph_of, run_graph
from tilewright.compiler.cpu.lower import lower_to_kernels
from tilewright.passes.constants import constant
from tilewright.targets.errors import ModelError

Array = NDArray[Any]
RNG = np.random.default_rng(5)
X = RNG.standard_normal((4, 5, 6)).astype(np.float32)
Y = RNG.standard_normal((4, 5, 6)).astype(np.float32)
INDICES = np.array([3, -1, 0, 99, -99], np.int64)
HELD = [3, 3, 0, 3, 0]

CASES: dict[str, tuple[Callable[..., Any], list[Array], Array]] = {
    "take": (lambda _b, x, i: relax.op.take(x, i, 0), [X, INDICES], X[HELD]),
    "concat": (lambda _b, x, y: relax.op.concat([x, y], 2), [X, Y], np.concatenate([X, Y], 2)),
    "slice": (
        lambda _b, x: relax.op.strided_slice(x, [1, 2], [1, 0], [4, 6], [2, 3]),
        [X],
        X[:, 1:4:2, 0:6:3],
    ),
    "pad": (
        lambda _b, x: relax.op.nn.pad(x, [0, 0, 1, 2, 3, 4]),
        [X],
        np.pad(X, ((0, 0), (1, 2), (3, 4))),
    ),
    "where": (
        lambda _b, x, y: relax.op.where(relax.op.greater(x, y), x, y),
        [X, Y],
        np.maximum(X, Y),
    ),
    "argmax": (lambda _b, x: relax.op.argmax(x, 1), [X], X.argmax(1)),
    "resize": (
        lambda _b, x: relax.op.image.resize2d(
            x,
            (10, 12),
            layout="NHWC",
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
        ),
        [X[None, :, :, :]],
        X[None][:, np.arange(10) * 4 // 10][:, :, np.arange(12) * 5 // 12],
    ),
    "silu": (lambda _b, x: relax.op.nn.silu(x), [X], X / (1 + np.exp(-X))),
    "scatter": (
        lambda _b, x, i, u: relax.op.scatter_elements(x, i, u, 1),
        [X[0], np.array([[0], [3], [1], [4], [2]]), Y[0, :, :1]],
        np.array([[Y[0, r, 0] if c == k else X[0, r, c] for c in range(6)]
                  for r, k in enumerate([0, 3, 1, 4, 2])]),
    ),
    "scalar": (lambda _b, x: relax.op.sum(x), [X], X.sum()),
    "int64": (lambda _b, x: relax.op.add(x, x), [INDICES], INDICES * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator(name: str) -> None:
    build, inputs, expected = CASES[name]
    ours = run_graph(build, inputs, (0.4,))
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)
    assert ours.shape == np.shape(expected)


def test_attention() -> None:
    """Two products, a scaled softmax, a transpose."""
    q, k, v = (RNG.standard_normal((1, 2, 17, 8)).astype(np.float32) for _ in range(3))

    def attention(_builder: Any, q: Any, k: Any, v: Any) -> Any:
        scores = relax.op.matmul(q, relax.op.permute_dims(k, [0, 1, 3, 2]))
        scaled = relax.op.multiply(scores, constant(np.float32(0.3)))
        return relax.op.matmul(relax.op.nn.softmax(scaled), v)

    ours = run_graph(attention, [q, k, v])
    scores = np.exp(q @ k.transpose(0, 1, 3, 2) * np.float32(0.3))
    expected = scores / scores.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_operator_without_a_kernel() -> None:
    with pytest.raises(ModelError, match=r"relax\.topk: the CPU has no kernel"):
        lower_to_kernels(graph_of(lambda _b, x: relax.op.topk(x, 3)[0], [X]), HOST)
