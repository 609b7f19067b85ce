"""Every reason for which an NPU leaves an operator to the CPU, and that it takes the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.targets import load_target
from tilewright.targets.description import Npu
from tilewright.targets.operators import (
    Conv2d,
    Copy,
    Elementwise,
    Lookup,
    MatMul,
    Operator,
    Pad2d,
    Pool2d,
    Tensor,
)
from tilewright.targets.support import refuses


def npu(**support: Any) -> Npu:
    found = load_target("mcu-16").npu
    assert found is not None
    return replace(found, support=replace(found.support, **support))


def tensor(height: int, width: int, channels: int, name: str = "x", dtype: Any = "int8") -> Tensor:
    return Tensor(name, height, width, channels, dtype, name)


def common(output: Tensor) -> dict[str, Any]:
    return {"name": "op", "onnx_nodes": ("op",), "output": output}


def conv(
    kernel: int = 3, inputs: int = 16, outputs: int = 16, groups: int = 1, **changes: Any
) -> Conv2d:
    weight = np.zeros((kernel, kernel, inputs // groups, outputs), np.int8)
    values = {
        "input": tensor(32, 32, inputs),
        "weight": weight,
        "bias": np.zeros(outputs, np.int32),
        "multiplier": np.ones(outputs, np.float32),
        "input_zero": 0,
        "output_scale": 1.0,
        "output_zero": 0,
        "clip_low": -128,
        "clip_high": 127,
        "groups": groups,
    }
    return Conv2d(**common(tensor(30, 30, outputs, "y")), **(values | changes))


def pool(kind: Any = "max", kernel: int = 2, **changes: Any) -> Pool2d:
    values = {"input": tensor(8, 8, 16), "clip_low": -128, "clip_high": 127}
    output = tensor(4, 4, 16, "y")
    return Pool2d(**common(output), kind=kind, kernel=(kernel, kernel), **(values | changes))


def elementwise(b: Tensor) -> Elementwise:
    return Elementwise(
        **common(tensor(8, 8, 16, "y")), kind="add", a=tensor(8, 8, 16), b=b, a_scale=1.0,
        a_zero=0, b_scale=1.0, b_zero=0, output_scale=1.0, output_zero=0, clip_low=-128,
        clip_high=127,
    )  # fmt: skip


def reason(operator: Operator, **support: Any) -> tuple[str, str]:
    found = refuses(npu(**support), operator)
    assert found is not None
    assert str(found) == found.text
    return found.code, found.text


def test_takes_every_kind_within_its_limits() -> None:
    matmul = MatMul(
        **common(tensor(1, 4, 4, "y")), a=tensor(1, 4, 8), b=tensor(1, 8, 4, "b"), a_zero=0,
        b_zero=0, multiplier=1.0, output_scale=1.0, output_zero=0, clip_low=-128, clip_high=127,
    )  # fmt: skip
    x, y = tensor(8, 8, 16), tensor(8, 8, 16, "y")
    for operator in (
        conv(),
        conv(groups=16),
        conv(groups=4),
        conv(lookup=np.zeros(256, np.uint8)),
        matmul,
        elementwise(tensor(8, 8, 16, "b")),
        elementwise(tensor(1, 1, 16, "b")),
        pool(),
        pool("average", 8),
        Lookup(**common(y), input=x, table=np.zeros(256, np.uint8)),
        Copy(**common(y), input=x),
        Pad2d(**common(tensor(10, 10, 16, "y")), input=x, pads=(1, 1, 1, 1), value=0),
    ):
        assert refuses(npu(), operator) is None


def test_kind() -> None:
    kinds = ("conv2d", "add")
    assert reason(pool(), operators=kinds) == ("kind", "max_pool is not among what this NPU runs")
    assert reason(conv(groups=16), operators=kinds)[1].startswith("depthwise is not among")


def test_dtype() -> None:
    operator = pool(input=tensor(8, 8, 16, dtype="uint8"))
    assert reason(operator, dtypes=("int8",)) == ("dtype", "uint8 data; this NPU runs int8")


def test_extent() -> None:
    expected = ("extent", "width 9 exceeds the largest this NPU runs (8)")
    assert reason(pool(input=tensor(8, 9, 16)), max_extent=8) == expected


def test_convolution_limits() -> None:
    limits = {"conv2d": replace(npu().support.conv2d, max_kernel=8, grouped=False)}
    nine = conv(kernel=9)
    text = "kernel 9x9 exceeds the largest this NPU runs (8x8)"
    assert reason(nine, **limits) == ("kernel", text)
    text = "stride 1x5 exceeds the largest this NPU runs (4x4)"
    assert reason(conv(strides=(1, 5))) == ("stride", text)
    assert reason(conv(dilations=(65, 1)))[0] == "dilation"
    assert reason(conv(pads=(0, 0, 256, 0)))[0] == "pads"
    text = "4 groups; this NPU runs one, or depthwise"
    assert reason(conv(groups=4), **limits) == ("groups", text)
    assert reason(conv(inputs=2, outputs=512, groups=2)) == (
        "channel_multiplier",
        "channel multiplier 256 exceeds the largest (255)",
    )


def test_weight_zero_points() -> None:
    limits = {"conv2d": replace(npu().support.conv2d, weight_zero_points=False)}
    text = "weights with zero point 3; this NPU needs 0"
    assert reason(conv(weight_zero=3), **limits) == ("weight_zero", text)


def test_fused_table_without_lookup() -> None:
    table = np.zeros(256, np.uint8)
    assert reason(conv(lookup=table), operators=("conv2d",))[0] == "lookup"


def test_pool_limits() -> None:
    limits = {"pool": replace(npu().support.pool, max_kernel=7, max_stride=2)}
    assert reason(pool(kernel=8), **limits)[0] == "kernel"
    assert reason(pool(strides=(3, 1)), **limits)[0] == "stride"
    text = "pads [2, 0, 0, 0] leave a 2x2 window without any input"
    assert reason(pool(pads=(2, 0, 0, 0))) == ("pads", text)


def test_broadcast() -> None:
    text = "broadcasts 8x1x16 over 8x8x16; this NPU broadcasts single pixels"
    assert reason(elementwise(tensor(8, 1, 16, "b"))) == ("broadcast", text)
