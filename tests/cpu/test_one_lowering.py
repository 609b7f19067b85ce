"""Kernels lowered for a board, run here: the values are the board's, whatever its vectors are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tvm import relax

from tests import reference
from tests.cpu.run_kernels import run_graph
from tests.cpu.test_objects import MACHINES
from tests.cpu.test_quantized_kernels import activations, limits, values
from tilewright.passes.constants import constant
from tilewright.passes.quantized_ops import call

Array = NDArray[Any]


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("groups", [1, 6])
def test_quantised_convolution(name: str, groups: int) -> None:
    x, w = values((1, 7, 9, 6), "int8"), values((3, 3, 6 // groups, 12 // 2), "int8", 1)
    x_q, w_q = activations("int8"), reference.Quantization(np.float32(0.01), 0, "int8")
    to = activations("int8", 1.1)
    bias = np.arange(6, dtype=np.int32) * 100
    multiplier = np.full(6, np.float32(x_q.scale) * np.float32(w_q.scale), np.float32)
    attributes = {
        "data_layout": "NHWC", "kernel_layout": "HWIO", "strides": [2, 1], "dilation": [1, 1],
        "padding": [1, 1, 1, 1], "groups": groups, "input_zero": x_q.zero, "weight_zero": 0,
        "output_scale": float(to.scale), "output_zero": to.zero, "requantize": "two_step",
        "out_dtype": "int8", **limits("int8"),
    }  # fmt: skip

    def build(_builder: Any, x: Any) -> Any:
        return call("conv2d", [x, constant(w), constant(bias), constant(multiplier)], **attributes)

    ours = run_graph(build, [x], (0.3,), MACHINES[name])
    geometry = {"strides": (2, 1), "pads": (1, 1, 1, 1), "groups": groups}
    expected = reference.conv2d(
        x.transpose(0, 3, 1, 2), x_q, w.transpose(3, 2, 0, 1), w_q, bias, to, **geometry
    )
    np.testing.assert_array_equal(ours, expected.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("name", MACHINES)
def test_float_network(name: str) -> None:
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((5, 33), (33, 21)))

    def build(builder: Any, x: Any) -> Any:
        product = builder.emit(relax.op.matmul(x, constant(w)))
        return relax.op.nn.softmax(builder.emit(relax.op.tanh(product)))

    ours = run_graph(build, [x], (0.5,), MACHINES[name])
    powers = np.exp(np.tanh(x @ w))
    np.testing.assert_allclose(ours, powers / powers.sum(-1, keepdims=True), rtol=1e-5)
