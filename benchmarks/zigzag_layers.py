"""Four convolutions that ZigZag 3.9 was asked to schedule, on the same core: cycles and time.

    python benchmarks/zigzag_layers.py

The core: 32 x 32 MACs, 640 KiB of SRAM, 10 bytes a cycle from DRAM, no fill and drain. What ZigZag
does not model, requantisation and dispatch among them, is taken from edge-64 and counts against us.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from tilewright.schedules.npu.bounds import bound_cycles
from tilewright.schedules.npu.schedule import emit, plan_region
from tilewright.targets import isa
from tilewright.targets.description import Npu, load_target
from tilewright.targets.operators import Conv2d, Region, Tensor
from tilewright.targets.simulator import Simulator

# image extent, input channels, output channels, kernel, ZigZag's cycles
LAYERS = (
    (56, 64, 64, 3, 135_171),
    (14, 256, 256, 3, 114_576),
    (7, 512, 512, 3, 244_978),
    (14, 1024, 256, 1, 70_698),
)


def core() -> Npu:
    """edge-64 with the array and the memories that ZigZag was given."""
    npu = load_target("edge-64").npu
    assert npu is not None
    array = replace(
        npu.array, rows=32, columns=32, subarrays=1, reduction="flattened",
        weight_double_buffer=True, weight_rows_per_cycle=32,
    )  # fmt: skip
    dram = 10 * npu.clock_mhz / 1000
    return replace(npu, array=array, memory=replace(npu.memory, sram_kib=640, dram_gb_per_s=dram))


def convolution(extent: int, inputs: int, outputs: int, kernel: int) -> Region:
    """One int8 convolution that keeps height and width."""
    conv = Conv2d(
        "conv", ("conv",), Tensor("y", extent, extent, outputs, "int8", "y"),
        input=Tensor("x", extent, extent, inputs, "int8", "x"),
        weight=np.ones((kernel, kernel, inputs, outputs), np.int8),
        bias=np.zeros(outputs, np.int32), multiplier=np.full(outputs, 0.001, np.float32),
        input_zero=0, output_scale=0.1, output_zero=0, clip_low=-128, clip_high=127,
        pads=(kernel // 2,) * 4, groups=1,
    )  # fmt: skip
    sizes = {"x": conv.input.elements, "y": conv.output.elements}
    return Region("layer", (conv,), ("x",), ("y",), sizes)


def main() -> None:
    npu = core()
    print("layer                  cycles    bound   ZigZag  seconds to plan")
    for extent, inputs, outputs, kernel, theirs in LAYERS:
        region = convolution(extent, inputs, outputs, kernel)
        start = time.perf_counter()
        plan = plan_region(region, npu)
        seconds = time.perf_counter() - start
        total = sum(region.buffer_bytes.values())
        emission = emit(plan, {"x": 0, "y": region.buffer_bytes["x"]}, 0)
        arena = np.zeros(total, np.uint8)
        cycles = Simulator(npu).run(isa.encode(emission.stream), plan.constants, arena).cycles
        name = f"{kernel}x{kernel} {inputs}->{outputs} {extent}x{extent}"
        bound = bound_cycles(region.operators[0], npu)
        print(f"{name:20} {cycles:8} {bound:8} {theirs:8}  {seconds:.2f}")


if __name__ == "__main__":
    main()
