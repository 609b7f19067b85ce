"""Operators and control flow rewritten in ONNX mean what they meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.integer_form import session
from tilewright.compiler.frontend import prepare
from tilewright.compiler.frontend.band_matrices import band, triangle
from tilewright.passes.names import original_name
from tilewright.targets.errors import ModelError

FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
make = onnx.helper.make_node
value = onnx.helper.make_tensor_value_info


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Any],
    outputs: list[str],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 21,
) -> onnx.ModelProto:
    graph = onnx.helper.make_graph(
        nodes,
        "graph",
        [value(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [onnx.helper.make_opsetid("", opset)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def assert_same(model: onnx.ModelProto, inputs: dict[str, np.ndarray], node: str) -> list[str]:
    """The prepared model gives what onnxruntime makes of the given one; its operators."""
    prepared = prepare(model)
    expected = session(model).run(None, inputs)
    found = session(prepared).run(None, inputs)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert {original_name(n.name) for n in prepared.graph.node} >= {node}
    return [n.op_type for n in prepared.graph.node]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@given(st.integers(1, 9), st.booleans(), st.booleans())
def test_triangle_sums_what_cumsum_sums(extent: int, exclusive: bool, reverse: bool) -> None:
    x = np.arange(1, extent + 1)
    ordered = x[::-1] if reverse else x
    sums = np.cumsum(ordered) - (ordered if exclusive else 0)
    expected = sums[::-1] if reverse else sums
    matrix = triangle(extent, exclusive=exclusive, reverse=reverse)
    np.testing.assert_array_equal(x @ matrix, expected)


@given(st.integers(1, 9), st.integers(1, 9))
def test_band_is_the_window_of_the_standard(extent: int, size: int) -> None:
    for channel, row in enumerate(band(extent, size)):
        first = max(0, channel - (size - 1) // 2)
        last = min(extent - 1, channel + size // 2)
        np.testing.assert_array_equal(np.flatnonzero(row), np.arange(first, last + 1))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumulative_sum(axis: int) -> None:
    nodes = [make("CumSum", ["x", "axis"], ["y"], name="n", reverse=1, exclusive=1)]
    model = model_of(nodes, {"x": (FLOAT, [3, 4, 5])}, ["y"], {"axis": np.array(axis)})
    assert "CumSum" not in assert_same(model, {"x": numbers(3, 4, 5)}, "n")


@pytest.mark.parametrize("size", [3, 5])
def test_response_normalisation(size: int) -> None:
    nodes = [make("LRN", ["x"], ["y"], name="n", size=size, alpha=0.3, beta=0.6, bias=1.5)]
    model = model_of(nodes, {"x": (FLOAT, [2, 7, 3, 4])}, ["y"])
    assert "LRN" not in assert_same(model, {"x": numbers(2, 7, 3, 4)}, "n")


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalisation(p: int) -> None:
    nodes = [make("LpNormalization", ["x"], ["y"], name="n", axis=1, p=p)]
    model = model_of(nodes, {"x": (FLOAT, [3, 4])}, ["y"])
    assert "LpNormalization" not in assert_same(model, {"x": numbers(3, 4)}, "n")


def test_blocked_dequantisation() -> None:
    scales, zeros = numbers(2, 3) ** 2 + 1, np.arange(6, dtype=np.uint8).reshape(2, 3)
    nodes = [make("DequantizeLinear", ["x", "s", "z"], ["y"], name="n", axis=1, block_size=2)]
    inputs = {"x": (onnx.TensorProto.UINT8, [2, 6])}
    model = model_of(nodes, inputs, ["y"], {"s": scales, "z": zeros})
    x = np.arange(12, dtype=np.uint8).reshape(2, 6) * 9
    assert assert_same(model, {"x": x}, "n") == ["Cast", "Sub", "Mul"]


def test_mask_of_dropout() -> None:
    nodes = [make("Dropout", ["x"], ["y", "mask"], name="n")]
    model = model_of(nodes, {"x": (FLOAT, [2, 3])}, ["y", "mask"])
    assert_same(model, {"x": numbers(2, 3)}, "n")


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot_with_negative_indices(axis: int) -> None:
    nodes = [make("OneHot", ["x", "depth", "values"], ["y"], name="n", axis=axis)]
    constants = {"depth": np.array(5), "values": np.array([-1, 3], np.float32)}
    model = model_of(nodes, {"x": (INT64, [2, 3])}, ["y"], constants)
    x = np.array([[0, 4, -1], [-5, 2, 3]])
    assert "OneHot" not in assert_same(model, {"x": x}, "n")


@pytest.mark.parametrize("pad", ["SAME_UPPER", "SAME_LOWER", "NOTSET"])
@pytest.mark.parametrize("extents", [(10, 8), (7, 9)])
def test_transposed_convolution_of_given_shape(pad: str, extents: tuple[int, int]) -> None:
    attributes = {"output_shape": list(extents), "strides": [3, 2], "auto_pad": pad}
    nodes = [make("ConvTranspose", ["x", "w"], ["y"], name="n", **attributes)]
    model = model_of(nodes, {"x": (FLOAT, [1, 2, 3, 4])}, ["y"], {"w": numbers(2, 2, 3, 3)})
    assert_same(model, {"x": numbers(1, 2, 3, 4)}, "n")
    names = [a.name for node in prepare(model).graph.node for a in node.attribute]
    assert "output_shape" not in names


def test_values_without_elements_are_constants() -> None:
    nodes = [
        make("Slice", ["x", "b", "e", "a", "s"], ["none"], name="slice"),
        make("Concat", ["none", "x"], ["y"], axis=0, name="n"),
    ]
    window = {"b": [0], "e": [5], "a": [0], "s": [-1]}
    constants = {name: np.array(bounds) for name, bounds in window.items()}
    model = model_of(nodes, {"x": (FLOAT, [10])}, ["y"], constants)
    assert "Slice" not in assert_same(model, {"x": numbers(10)}, "n")


def branch(operator: str, extra: str | None = None, shape: list[int] | None = None) -> Any:
    """A branch that reads `x` from around it."""
    inputs = ["x", extra] if extra else ["x"]
    constants = [onnx.numpy_helper.from_array(np.float32([2]), extra)] if extra else []
    body = [make(operator, inputs, ["r"], name=f"{operator.lower()}")]
    result = [value("r", FLOAT, shape or [2, 3])]
    return onnx.helper.make_graph(body, "branch", [], result, constants)


def test_branches_become_a_choice() -> None:
    nodes = [
        make(
            "If", ["c"], ["y"], name="n", then_branch=branch("Neg"), else_branch=branch("Mul", "k")
        )
    ]
    model = model_of(nodes, {"c": (BOOL, []), "x": (FLOAT, [2, 3])}, ["y"])
    for condition in (True, False):
        found = assert_same(model, {"c": np.array(condition), "x": numbers(2, 3)}, "n")
        assert sorted(found) == ["Mul", "Neg", "Where"]


@pytest.mark.parametrize("condition", [True, False])
def test_known_condition_leaves_one_branch(condition: bool) -> None:
    nodes = [
        make("If", ["c"], ["y"], name="n", then_branch=branch("Neg"), else_branch=branch("Exp"))
    ]
    model = model_of(nodes, {"x": (FLOAT, [2, 3])}, ["y"], {"c": np.array(condition)})
    found = assert_same(model, {"x": numbers(2, 3)}, "neg" if condition else "exp")
    assert found[0] == ("Neg" if condition else "Exp")


def test_branches_of_different_shapes_are_refused() -> None:
    then = onnx.helper.make_graph(
        [make("ReduceSum", ["x"], ["r"], name="sum", keepdims=1)],
        "then",
        [],
        [value("r", FLOAT, None)],
    )
    nodes = [make("If", ["c"], ["y"], name="n", then_branch=then, else_branch=branch("Neg"))]
    model = model_of(nodes, {"c": (BOOL, []), "x": (FLOAT, [2, 3])}, ["y"])
    with pytest.raises(ModelError, match=r"^n: the branches of If give different or unknown"):
        prepare(model)


def loop_body(keeps_going: bool = True) -> onnx.GraphProto:
    """state = state * 2 + x, and the state of every iteration kept."""
    condition = "going" if keeps_going else "stop"
    nodes = [
        make("Identity", [condition], ["still"]),
        make("Cast", ["i"], ["trip"], to=FLOAT),
        make("Add", ["state", "x"], ["sum"]),
        make("Add", ["sum", "trip"], ["next"], name="next"),
        make("Mul", ["next", "next"], ["kept"]),
    ]
    inputs = [value("i", INT64, []), value("going", BOOL, []), value("state", FLOAT, [2])]
    outputs = [value("still", BOOL, []), value("next", FLOAT, [2]), value("kept", FLOAT, [2])]
    return onnx.helper.make_graph(nodes, "body", inputs, outputs)


def test_loop_of_known_length_is_unrolled() -> None:
    nodes = [make("Loop", ["n", "", "start"], ["end", "all"], name="n", body=loop_body())]
    inputs = {"x": (FLOAT, [2]), "start": (FLOAT, [2])}
    model = model_of(nodes, inputs, ["end", "all"], {"n": np.array(4)})
    found = assert_same(model, {"x": numbers(2), "start": numbers(2, seed=1)}, "next")
    assert found.count("Mul") == 4
    assert "Loop" not in found


@pytest.mark.parametrize("known_length", [True, False])
def test_loop_of_unknown_length_is_refused(known_length: bool) -> None:
    body = loop_body(keeps_going=not known_length)
    nodes = [make("Loop", ["n", "", "start"], ["end", "all"], name="n", body=body)]
    inputs = {"x": (FLOAT, [2]), "start": (FLOAT, [2]), "stop": (BOOL, [])}
    constants = {"n": np.array(4)} if known_length else {}
    if not known_length:
        inputs["n"] = (INT64, [])
    model = model_of(nodes, inputs, ["end", "all"], constants)
    with pytest.raises(ModelError, match=r"^n: Loop runs as often as its data say"):
        prepare(model)


def test_body_that_does_not_fit_is_refused() -> None:
    nodes = [make("Loop", ["n", "", "start", "x"], ["end"], name="n", body=loop_body())]
    inputs = {"x": (FLOAT, [2]), "start": (FLOAT, [2])}
    model = model_of(nodes, inputs, ["end"], {"n": np.array(4)})
    with pytest.raises(ModelError, match=r"^n: the body of this Loop does not fit its inputs"):
        prepare(model)


def test_scan_is_unrolled_forwards_and_backwards() -> None:
    body = onnx.helper.make_graph(
        [
            make("Add", ["state", "a"], ["sum"], name="sum"),
            make("Sub", ["sum", "b"], ["next"]),
            make("Neg", ["next"], ["kept"]),
        ],
        "body",
        [value(name, FLOAT, [3]) for name in ("state", "a", "b")],
        [value("next", FLOAT, [3]), value("kept", FLOAT, [3])],
    )
    nodes = [
        make(
            "Scan",
            ["start", "p", "q"],
            ["end", "all"],
            name="n",
            body=body,
            num_scan_inputs=2,
        )
    ]
    inputs = {"start": (FLOAT, [3]), "p": (FLOAT, [5, 3]), "q": (FLOAT, [5, 3])}
    model = model_of(nodes, inputs, ["end", "all"])
    feed = {"start": numbers(3), "p": numbers(5, 3, seed=1), "q": numbers(5, 3, seed=2)}
    assert "Scan" not in assert_same(model, feed, "sum")
