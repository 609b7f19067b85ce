"""A quantised graph laid out channels first: its transposes are steps of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.qdq_models import QdqModel
from tilewright.compiler import compile_model

MACS = 8 * 8 * 8 * 4 * 9


def network() -> onnx.ModelProto:
    model = QdqModel()
    scales = np.full(8, 0.01, np.float32)
    weight = model.weight((8, 4, 3, 3), scales, np.zeros(8, int))
    bias = model.bias(8, np.float32(0.05) * scales)
    x = model.input((1, 4, 8, 8), 0.05, 3)
    y = model.node("Conv", [x, weight, bias], pads=[1, 1, 1, 1])
    model.output(model.node("Relu", [y]), 0.2, -128)
    return model.model()


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return compile_model(network(), "edge-128").report


def test_each_multiplication_is_counted_once(report: dict[str, Any]) -> None:
    assert report["totals"]["macs"] == MACS


def test_a_transpose_does_not_pass_for_the_convolution(report: dict[str, Any]) -> None:
    named = [row for row in report["operators"] if "Conv_3" in row["onnx_nodes"]]
    assert [row["name"] for row in named] == ["Conv_3"]
    others = [row for row in report["operators"] if row not in named]
    assert [row["op"] for row in others] == ["transposed", "transposed"]


def test_the_convolution_keeps_its_own_reason(report: dict[str, Any]) -> None:
    (reason,) = [row["reason"] for row in report["operators"] if row["name"] == "Conv_3"]
    assert "faster on the CPU" in reason


def test_the_convolution_can_be_placed_by_hand() -> None:
    rows = compile_model(network(), "edge-128", placements={"Conv_3": "npu"}).report["operators"]
    assert [row["device"] for row in rows if row["name"] == "Conv_3"] == ["npu"]
