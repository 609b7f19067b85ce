"""The command stream of one layer, disassembled and executed by hand, gives numpy's numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.slow_machine import SlowMachine
from tilewright.schedules.npu.schedule import emit, plan_region
from tilewright.targets import load_target
from tilewright.targets.assembler import disassemble, parse_stream
from tilewright.targets.isa import encode
from tilewright.targets.operators import Conv2d, Region, Tensor
from tilewright.targets.simulator import Simulator


@pytest.mark.parametrize("board", ["mcu-16", "edge-128"])
@pytest.mark.parametrize(("inputs", "outputs"), [(3, 17), (17, 130), (130, 3)])
def test_one_convolution_by_hand(board: str, inputs: int, outputs: int) -> None:
    npu = load_target(board).npu
    assert npu is not None
    rng = np.random.default_rng(inputs)
    x = rng.integers(-128, 128, (6, 7, inputs), dtype=np.int8)
    weight = rng.integers(-128, 128, (3, 3, inputs, outputs), dtype=np.int8)
    bias = rng.integers(-5000, 5000, outputs, dtype=np.int32)
    multiplier = rng.uniform(1e-4, 1e-3, outputs).astype(np.float32)
    scale = float(np.float32(0.31))
    layer = Conv2d(
        name="layer", onnx_nodes=("layer",), output=Tensor("y", 6, 7, outputs, "int8", "y"),
        input=Tensor("x", 6, 7, inputs, "int8", "x"), weight=weight, bias=bias,
        multiplier=multiplier, input_zero=-3, output_scale=scale, output_zero=5, clip_low=5,
        clip_high=127, pads=(1, 1, 1, 1),
    )  # fmt: skip
    sizes = {"x": x.size, "y": 6 * 7 * outputs}
    planned = plan_region(Region("region", (layer,), ("x",), ("y",), sizes), npu)
    stream = encode(emit(planned, {"x": 0, "y": x.size}, 0).stream)

    padded = np.pad(x.astype(np.int64) + 3, ((1, 1), (1, 1), (0, 0)))
    total = bias + sum(
        padded[i : i + 6, j : j + 7] @ weight[i, j].astype(np.int64)
        for i in range(3)
        for j in range(3)
    )
    real = total.astype(np.float32) * multiplier / np.float32(scale)
    expected = np.clip(np.rint(real) + 5, 5, 127).astype(np.int8)

    arena = bytearray(x.tobytes() + bytes(expected.size))
    simulated = bytearray(arena)
    by_hand = SlowMachine(npu, planned.constants, arena)
    by_hand.run(parse_stream(disassemble(stream)).instructions)
    assert bytes(arena[x.size :]) == expected.tobytes()
    statistics = Simulator(npu).run(stream, planned.constants, simulated)
    assert simulated == arena
    assert statistics.cycles == by_hand.cycles
    assert statistics.macs >= 6 * 7 * weight.size
