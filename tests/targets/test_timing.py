"""Compute cycles against SCALE-Sim's published formula and figures, and what each mapping gains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.targets.programs import ARENA_BYTES, make_stream
from tilewright.targets import isa, load_target
from tilewright.targets.description import Npu
from tilewright.targets.groups import DepthwiseMapping
from tilewright.targets.isa import Engine
from tilewright.targets.simulator import Simulator
from tilewright.targets.timing import conv_cycles, cost, depthwise_cycles

# Output pixels, taps, input channels, output channels.
LAYERS = {
    "14x14 1x1 1024->256": (196, 1, 1024, 256),
    "14x14 3x3 256->256": (196, 9, 256, 256),
    "56x56 1x1 144->24": (3136, 1, 144, 24),
    "56x56 3x3 64->64": (3136, 9, 64, 64),
}


def array_of(side: int, **changes: Any) -> Npu:
    npu = load_target("edge-128").npu
    assert npu is not None
    plain = {"rows": side, "columns": side, "subarrays": 1, "weight_double_buffer": False}
    return replace(npu, array=replace(npu.array, **(plain | changes)))


@pytest.mark.parametrize(
    ("side", "layer", "cycles"),
    [
        (128, "14x14 1x1 1024->256", 9247),
        (128, "14x14 3x3 256->256", 20807),
        (128, "56x56 1x1 144->24", 7035),
        (128, "56x56 3x3 64->64", 17589),
        (32, "14x14 1x1 1024->256", 74239),
        (32, "56x56 1x1 144->24", 16149),
        (32, "56x56 3x3 64->64", 116279),
    ],
)
def test_scale_sim_cycles(side: int, layer: str, cycles: int) -> None:
    assert conv_cycles(array_of(side), *LAYERS[layer]) == cycles


def test_simulator_counts_scale_sim_cycles_for_a_real_instruction() -> None:
    """The MAC engine alone, so that memory does not matter: 14x14 1x1 1024->256 on 128x128."""
    npu = array_of(128)
    npu = replace(npu, memory=replace(npu.memory, sram_kib=4096, accumulator_kib=1024))
    conv = isa.Conv(
        input_address=0, input_row_pitch=14 * 1024, input_pixel_pitch=1024, input_height=14,
        input_width=14, input_channels=1024, weight_address=14 * 14 * 1024,
        weight_channel_pitch=256, accumulator_address=0, accumulator_pitch=256, output_height=14,
        output_width=14, output_channels=256, kernel_h=1, kernel_w=1, stride_h=1, stride_w=1,
        dilation_h=1, dilation_w=1, pad_top=0, pad_left=0, input_zero=0, weight_zero=0,
        bias_address=isa.NO_BIAS,
    )  # fmt: skip
    arena = np.zeros(ARENA_BYTES, np.uint8)
    statistics = Simulator(npu).run(make_stream(npu, [conv]), bytes(4096), arena)
    assert statistics.engines[Engine.MAC].busy_cycles == 9247
    assert statistics.macs == 14 * 14 * 1024 * 256


sizes = st.tuples(st.integers(1, 300), st.integers(1, 9), st.integers(1, 70), st.integers(1, 70))


@given(sizes)
def test_scale_sim_formula(layer: tuple[int, int, int, int]) -> None:
    pixels, taps, inputs, outputs = layer
    folds = -(-taps * inputs // 16) * -(-outputs // 16)
    assert conv_cycles(array_of(16), *layer) == folds * (2 * 16 + 16 + pixels - 2) - 1


@given(sizes)
def test_double_buffering_never_costs_and_reaches_the_ideal(
    layer: tuple[int, int, int, int],
) -> None:
    pixels, taps, inputs, outputs = layer
    buffered = conv_cycles(array_of(16, weight_double_buffer=True), *layer)
    assert pixels * taps * inputs * outputs / 256 < buffered
    assert buffered <= conv_cycles(array_of(16), *layer) + 1


def test_double_buffered_passes_follow_each_other() -> None:
    """2 x 2 passes of 100 pixels on 16 x 16: one load, four passes, one fill and drain."""
    npu = array_of(16, weight_double_buffer=True)
    assert conv_cycles(npu, 100, 1, 32, 32) == 16 + 4 * 100 + 16 + 16 - 2


def test_weights_that_load_longer_than_a_pass_runs_are_waited_for() -> None:
    npu = array_of(16, weight_double_buffer=True)
    assert conv_cycles(npu, 5, 1, 32, 16) == 16 + 16 + 5 + 30


def test_channel_reduction_takes_taps_in_turn() -> None:
    npu = array_of(16, reduction="channels", weight_double_buffer=True)
    assert conv_cycles(npu, 100, 9, 3, 16) == 3 + 9 * 100 + 30


def test_subarrays_share_the_pixels_of_a_shallow_layer() -> None:
    whole = array_of(16, weight_double_buffer=True)
    parts = array_of(16, weight_double_buffer=True, subarrays=4)
    assert conv_cycles(whole, 400, 1, 4, 16) == 4 + 400 + 30
    assert conv_cycles(parts, 400, 1, 4, 16) == 4 + 100 + 4 + 16 - 2


@pytest.mark.parametrize(
    ("mapping", "cycles"),
    [
        # 9 taps x 2 folds of 16 and 4 channels, each 100 pixels, after a load of 16 rows.
        (DepthwiseMapping(mode="diagonal"), 16 + 18 * 100 + 30),
        (DepthwiseMapping(mode="vector"), 32 + 100 * 9 * 20 // 128 + 1),
        (DepthwiseMapping(mode="unit", macs_per_cycle=90), 200),
    ],
)
def test_depthwise_mappings(mapping: DepthwiseMapping, cycles: int) -> None:
    npu = replace(array_of(16, weight_double_buffer=True), depthwise=mapping)
    assert depthwise_cycles(npu, 100, 9, 20) == cycles


def load(run_bytes: int, count_1: int, stride: int) -> isa.Load:
    return isa.Load(
        region=1, dram_offset=0, sram_address=0, run_bytes=run_bytes, count_1=count_1, count_2=1,
        dram_stride_1=stride, dram_stride_2=0, sram_stride_1=run_bytes, sram_stride_2=0,
    )  # fmt: skip


def test_every_run_of_a_transfer_moves_whole_bursts() -> None:
    npu = load_target("mcu-16").npu
    assert npu is not None  # 4 bytes a cycle, bursts of 64 after 64 cycles
    scattered, together = cost(npu, load(65, 10, 1000)), cost(npu, load(65, 10, 65))
    assert (scattered.dram_bytes, scattered.dram_burst_bytes) == (650, 1280)
    assert scattered.cycles == 64 + 1280 // 4
    assert together.dram_burst_bytes == 704
    assert together.cycles == 64 + 704 // 4


def test_runs_that_touch_only_by_the_outer_loop_stay_apart() -> None:
    """Runs at 0, 1000, 65, 1065: each outer turn begins where a run ended, but not the last one."""
    npu = load_target("mcu-16").npu
    assert npu is not None
    move = replace(load(65, 2, 1000), count_2=2, dram_stride_2=65)
    assert cost(npu, move).dram_burst_bytes == 4 * 128
    statistics = Simulator(npu).run(
        make_stream(npu, [move]), bytes(4096), np.zeros(ARENA_BYTES, np.uint8)
    )
    assert statistics.dram_burst_bytes == 4 * 128
