"""What each instruction computes, against numpy over whole arrays: 3, 17 and 130 channels too."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tests.targets.programs import make_stream
from tilewright.targets import isa, load_target
from tilewright.targets.groups import round_up
from tilewright.targets.isa import Engine, Instruction
from tilewright.targets.simulator import Simulator

Array = NDArray[Any]

_found = load_target("mcu-16").npu
assert _found is not None
NPU = replace(_found, memory=replace(_found.memory, accumulator_kib=256))
SIMULATOR = Simulator(NPU)
GROUP = NPU.channel_alignment


class Bench:
    """Lays arrays out in SRAM by a load of constants, runs instructions, reads SRAM back."""

    def __init__(self) -> None:
        self.image = bytearray()

    def put(self, raw: bytes, alignment: int = 64) -> int:
        self.image += bytes(-len(self.image) % alignment)
        address = len(self.image)
        self.image += raw
        return address

    def put_tile(self, tile: Array) -> dict[str, int]:
        """An [h, w, c] tile in whole groups of channels, the rest filled with rubbish."""
        h, w, c = tile.shape
        pitch = round_up(c, GROUP)
        padded = np.full((h, w, pitch), 77, np.uint8)
        padded[:, :, :c] = tile.view(np.uint8)
        return {"address": self.put(padded.tobytes()), "row_pitch": w * pitch, "pixel_pitch": pitch}

    def room(self, h: int, w: int, c: int) -> dict[str, int]:
        return self.put_tile(np.zeros((h, w, c), np.uint8))

    def put_table(self, values: Array) -> int:
        """int32 or float32, padded to whole columns."""
        length = NPU.table_channels(len(values))
        table = np.zeros(length, values.dtype)
        table[: len(values)] = values
        return self.put(table.tobytes(), NPU.tables.alignment)

    def run(self, instructions: list[Instruction], tile: dict[str, int], size: Any) -> Array:
        """The raw bytes of an [h, w, c] tile after `instructions`, one waiting for the other."""
        count = len(self.image)
        load = isa.Load(region=0, sram_address=0, run_bytes=count, **_CONTIGUOUS)
        store = isa.Store(region=1, sram_address=0, run_bytes=count, **_CONTIGUOUS)
        counts = dict.fromkeys(Engine, 0)
        program = []
        for instruction in [load, *instructions, store]:
            program.append(replace(instruction, waits={e: n for e, n in counts.items() if n}))
            assert instruction.engine is not None
            counts[instruction.engine] += 1
        arena = np.zeros(count, np.uint8)
        sizes = {"constants_bytes": count, "arena_bytes": count}
        SIMULATOR.run(make_stream(NPU, program, **sizes), bytes(self.image), arena)
        h, w, c = size
        span = arena[tile["address"] :][: h * tile["row_pitch"]]
        return span.reshape(h, w, tile["pixel_pitch"])[:, :, :c]


_CONTIGUOUS = {
    "dram_offset": 0, "count_1": 1, "count_2": 1, "dram_stride_1": 0, "dram_stride_2": 0,
    "sram_stride_1": 0, "sram_stride_2": 0,
}  # fmt: skip


def named(name: str, tile: dict[str, int], *, row: bool = True) -> dict[str, int]:
    return {f"{name}_{key}": value for key, value in tile.items() if row or key != "row_pitch"}


def random_tile(rng: np.random.Generator, size: Any, unsigned: bool) -> Array:
    dtype = np.uint8 if unsigned else np.int8
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, size).astype(dtype)


def windows(x: Array, kernel: Any, strides: Any, dilations: Any) -> Array:
    """[h, w, c] -> [oh, ow, c, kh, kw]."""
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    seen = sliding_window_view(x, reach, axis=(0, 1))
    return seen[:: strides[0], :: strides[1], :, :: dilations[0], :: dilations[1]]


@st.composite
def layers(draw: st.DrawFn) -> dict[str, Any]:
    small = st.integers(1, 3)
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    dilations = draw(st.tuples(small, small))
    pads = draw(st.tuples(*[st.integers(0, 3)] * 4))
    low = [
        max(1, (kernel[axis] - 1) * dilations[axis] + 1 - pads[axis] - pads[axis + 2])
        for axis in range(2)
    ]
    return {
        "size": (draw(st.integers(low[0], low[0] + 6)), draw(st.integers(low[1], low[1] + 12))),
        "channels": draw(st.sampled_from([(3, 17), (17, 3), (1, 130), (130, 2), (16, 16), (5, 8)])),
        "kernel": kernel,
        "strides": draw(st.tuples(small, small)),
        "dilations": dilations,
        "pads": pads,
        "input_unsigned": draw(st.booleans()),
        "weight_unsigned": draw(st.booleans()),
        "output_unsigned": draw(st.booleans()),
        "premultiplied": draw(st.booleans()),
        "bias": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


def quantise(value: Array, zero: int, low: int, high: int) -> Array:
    return np.clip(np.rint(value) + zero, low, high).astype(np.int64)


def run_layer(layer: dict[str, Any], depthwise: bool) -> tuple[Array, Array]:
    """What the simulator and what numpy make of a layer, as raw bytes."""
    rng = np.random.default_rng(layer["seed"])
    inputs, outputs = layer["channels"]
    multiplier = int(rng.integers(1, 4)) if inputs <= 17 else 1
    outputs = inputs * multiplier if depthwise else outputs
    x = random_tile(rng, (*layer["size"], inputs), layer["input_unsigned"])
    inner = () if depthwise else (inputs,)
    w = random_tile(rng, (*layer["kernel"], *inner, outputs), layer["weight_unsigned"])
    x_zero, w_zero = (
        int(random_tile(rng, 1, layer[f"{n}_unsigned"])[0]) for n in ("input", "weight")
    )
    bias = rng.integers(-(2**20), 2**20, outputs).astype(np.int32)
    top, left, bottom, right = layer["pads"]
    padded = np.pad(x.astype(np.int64) - x_zero, ((top, bottom), (left, right), (0, 0)))
    seen = windows(padded, layer["kernel"], layer["strides"], layer["dilations"])
    weights = w.astype(np.int64) - w_zero
    if depthwise:
        total = np.einsum("yxckl,klc->yxc", np.repeat(seen, multiplier, axis=2), weights)
    else:
        total = np.einsum("yxckl,klco->yxo", seen, weights)
    total = (total + bias * layer["bias"]).astype(np.int32)
    scale = np.float32(rng.uniform(0.01, 0.1))
    multipliers = (rng.random(outputs) * 1e-4).astype(np.float32)
    zero = int(random_tile(rng, 1, layer["output_unsigned"])[0])
    low, high = (0, 255) if layer["output_unsigned"] else (-128, 127)
    value = total.astype(np.float32) * multipliers
    value = value if layer["premultiplied"] else value / scale
    expected = quantise(value, zero, low, high).astype(np.uint8)

    bench = Bench()
    tile = bench.put_tile(x)
    height, width = total.shape[:2]
    kind: Any = isa.Depthwise if depthwise else isa.Conv
    extra = {"channel_multiplier": multiplier} if depthwise else {}
    multiply = kind(
        **named("input", tile), input_height=x.shape[0], input_width=x.shape[1],
        input_channels=inputs, weight_address=bench.put(w.tobytes(), 1),
        weight_channel_pitch=outputs, accumulator_address=3, accumulator_pitch=outputs + 1,
        output_height=height, output_width=width, output_channels=outputs,
        kernel_h=layer["kernel"][0], kernel_w=layer["kernel"][1],
        stride_h=layer["strides"][0], stride_w=layer["strides"][1],
        dilation_h=layer["dilations"][0], dilation_w=layer["dilations"][1],
        pad_top=top, pad_left=left, input_zero=x_zero, weight_zero=w_zero,
        bias_address=bench.put_table(bias) if layer["bias"] else isa.NO_BIAS,
        input_unsigned=layer["input_unsigned"], weight_unsigned=layer["weight_unsigned"], **extra,
    )  # fmt: skip
    result = bench.room(height, width, outputs)
    requantize = isa.Requantize(
        accumulator_address=3, accumulator_pitch=outputs + 1, height=height, width=width,
        channels=outputs, **named("output", result), table_address=bench.put_table(multipliers),
        table_channels=NPU.table_channels(outputs), output_scale=float(scale), output_zero=zero,
        clip_low=low, clip_high=high, premultiplied=layer["premultiplied"],
        output_unsigned=layer["output_unsigned"],
    )  # fmt: skip
    return bench.run([multiply, requantize], result, total.shape), expected


@given(layers())
def test_convolution(layer: dict[str, Any]) -> None:
    found, expected = run_layer(layer, depthwise=False)
    assert np.array_equal(found, expected)


@given(layers())
def test_depthwise_convolution(layer: dict[str, Any]) -> None:
    found, expected = run_layer(layer, depthwise=True)
    assert np.array_equal(found, expected)


def test_accumulating_over_channel_parts_is_one_convolution() -> None:
    rng = np.random.default_rng(3)
    x, w = random_tile(rng, (1, 5, 32), False), random_tile(rng, (32, 17), False)
    bias = rng.integers(-999, 999, 17).astype(np.int32)
    bench = Bench()
    tile, weights = bench.put_tile(x), bench.put(w.tobytes())
    first = isa.Conv(
        **named("input", tile), input_height=1, input_width=5, input_channels=16,
        weight_address=weights, weight_channel_pitch=17, accumulator_address=0,
        accumulator_pitch=17, output_height=1, output_width=5, output_channels=17, kernel_h=1,
        kernel_w=1, stride_h=1, stride_w=1, dilation_h=1, dilation_w=1, pad_top=0, pad_left=0,
        input_zero=0, weight_zero=0, bias_address=bench.put_table(bias),
    )  # fmt: skip
    second = replace(
        first, input_address=tile["address"] + 16, weight_address=weights + 16 * 17, accumulate=True
    )
    result = bench.room(1, 5, 17)
    ones = bench.put_table(np.full(17, 1 / 256, np.float32))
    requantize = isa.Requantize(
        accumulator_address=0, accumulator_pitch=17, height=1, width=5, channels=17,
        **named("output", result), table_address=ones, table_channels=32, output_scale=1.0,
        output_zero=0, clip_low=-128, clip_high=127, premultiplied=True,
    )  # fmt: skip
    total = x.astype(np.int64) @ w.astype(np.int64) + bias
    expected = quantise(total / 256, 0, -128, 127).astype(np.uint8)
    assert np.array_equal(bench.run([first, second, requantize], result, (1, 5, 17)), expected)


@given(
    st.sampled_from([(isa.Add, np.add), (isa.Subtract, np.subtract), (isa.Multiply, np.multiply)]),
    st.sampled_from([3, 17, 130]),
    st.booleans(),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.integers(0, 2**32 - 1),
)
def test_elementwise(
    operation: Any, channels: int, broadcast: bool, unsigned: tuple[bool, ...], seed: int
) -> None:
    kind, operate = operation
    rng = np.random.default_rng(seed)
    a = random_tile(rng, (1, 7, channels), unsigned[0])
    b = random_tile(rng, (1, 1 if broadcast else 7, channels), unsigned[1])
    a_zero, b_zero, zero = (int(random_tile(rng, 1, u)[0]) for u in unsigned)
    a_scale, b_scale, scale = rng.uniform(0.001, 2, 3).astype(np.float32)
    left = (a.astype(np.int32) - a_zero).astype(np.float32) * a_scale
    right = (b.astype(np.int32) - b_zero).astype(np.float32) * b_scale
    low, high = (0, 255) if unsigned[2] else (-128, 127)
    expected = quantise(operate(left, right) / scale, zero, low, high).astype(np.uint8)

    bench = Bench()
    second = bench.put_tile(b)
    second["pixel_pitch"] *= not broadcast
    tile, result = bench.put_tile(a), bench.room(1, 7, channels)
    step = kind(
        **named("a", tile, row=False), **named("b", second, row=False),
        **named("output", result, row=False), pixels=7, channels=channels, a_scale=float(a_scale),
        b_scale=float(b_scale), output_scale=float(scale), a_zero=a_zero, b_zero=b_zero,
        output_zero=zero, clip_low=low, clip_high=high, a_unsigned=unsigned[0],
        b_unsigned=unsigned[1], output_unsigned=unsigned[2],
    )  # fmt: skip
    assert np.array_equal(bench.run([step], result, (1, 7, channels)), expected)


def test_rounding_is_half_to_even_and_saturates() -> None:
    """(a + 0) / 2 for every int8 a, and for a zero point that leaves the range."""
    a = np.arange(-128, 128, dtype=np.int8).reshape(1, 16, 16)
    bench = Bench()
    tile, nothing = bench.put_tile(a), bench.put_tile(np.zeros((1, 16, 16), np.int8))
    result = bench.room(1, 16, 16)
    step = isa.Add(
        **named("a", tile, row=False), **named("b", nothing, row=False),
        **named("output", result, row=False), pixels=16, channels=16, a_scale=1.0, b_scale=1.0,
        output_scale=2.0, a_zero=0, b_zero=0, output_zero=100, clip_low=-20, clip_high=127,
    )  # fmt: skip
    halves = [round(Fraction(int(value), 2)) + 100 for value in a.reshape(-1)]
    expected = np.clip(halves, -20, 127).astype(np.uint8).reshape(1, 16, 16)
    assert np.array_equal(bench.run([step], result, (1, 16, 16)), expected)


@pytest.mark.parametrize("channels", [3, 17, 130])
def test_lookup(channels: int) -> None:
    rng = np.random.default_rng(channels)
    x = random_tile(rng, (4, 5, channels), True)
    table = rng.integers(0, 256, 256).astype(np.uint8)
    bench = Bench()
    tile, result = bench.put_tile(x), bench.room(4, 5, channels)
    step = isa.Lookup(
        **named("input", tile), **named("output", result), height=4, width=5, channels=channels,
        table_address=bench.put(table.tobytes()),
    )  # fmt: skip
    assert np.array_equal(bench.run([step], result, (4, 5, channels)), table[x])


@st.composite
def pools(draw: st.DrawFn) -> dict[str, Any]:
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    pads = draw(st.tuples(*[st.integers(0, kernel[axis % 2] - 1) for axis in range(4)]))
    return {
        "kernel": kernel,
        "pads": pads,
        "size": tuple(draw(st.integers(kernel[axis], kernel[axis] + 5)) for axis in range(2)),
        "strides": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        "channels": draw(st.sampled_from([3, 17, 130])),
        "unsigned": draw(st.booleans()),
        "output_unsigned": draw(st.booleans()),
        "count_include_pad": draw(st.booleans()),
        # The same scale twice makes ties common.
        "scales": draw(st.sampled_from([(1.0, 1.0), (0.5, 1.0), (3.0, 0.1), (1e-30, 1e-30)])),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


def pool_instruction(
    bench: Bench, kind: Any, pool: dict[str, Any], x: Array, zeros: tuple[int, int]
) -> tuple[Any, dict[str, int], tuple[int, int, int]]:
    top, left, bottom, right = pool["pads"]
    extents = [x.shape[0] + top + bottom, x.shape[1] + left + right]
    height, width = (
        (extents[axis] - pool["kernel"][axis]) // pool["strides"][axis] + 1 for axis in range(2)
    )
    unsigned = pool["unsigned"] if kind is isa.MaxPool else pool["output_unsigned"]
    low, high = (0, 255) if unsigned else (-128, 127)
    tile, result = bench.put_tile(x), bench.room(height, width, x.shape[2])
    step = kind(
        **named("input", tile), **named("output", result), input_height=x.shape[0],
        input_width=x.shape[1], channels=x.shape[2], output_height=height, output_width=width,
        kernel_h=pool["kernel"][0], kernel_w=pool["kernel"][1], stride_h=pool["strides"][0],
        stride_w=pool["strides"][1], pad_top=top, pad_left=left, pad_bottom=bottom,
        pad_right=right, input_scale=float(np.float32(pool["scales"][0])),
        output_scale=float(np.float32(pool["scales"][1])), input_zero=zeros[0],
        output_zero=zeros[1], clip_low=low, clip_high=high,
        count_include_pad=pool["count_include_pad"], input_unsigned=pool["unsigned"],
        output_unsigned=unsigned,
    )  # fmt: skip
    return step, result, (height, width, x.shape[2])


@given(pools())
def test_max_pool(pool: dict[str, Any]) -> None:
    rng = np.random.default_rng(pool["seed"])
    x = random_tile(rng, (*pool["size"], pool["channels"]), pool["unsigned"])
    bench = Bench()
    step, result, size = pool_instruction(bench, isa.MaxPool, pool, x, (0, 0))
    top, left, bottom, right = pool["pads"]
    around = ((top, bottom), (left, right), (0, 0))
    padded = np.pad(x.astype(np.int64), around, constant_values=-999)
    seen = windows(padded, pool["kernel"], pool["strides"], (1, 1))
    assert np.array_equal(bench.run([step], result, size), seen.max(axis=(3, 4)).astype(np.uint8))


@given(pools())
def test_average_pool(pool: dict[str, Any]) -> None:
    rng = np.random.default_rng(pool["seed"])
    x = random_tile(rng, (*pool["size"], pool["channels"]), pool["unsigned"])
    zeros = (
        int(random_tile(rng, 1, pool["unsigned"])[0]),
        int(random_tile(rng, 1, pool["output_unsigned"])[0]),
    )
    bench = Bench()
    step, result, size = pool_instruction(bench, isa.AveragePool, pool, x, zeros)
    top, left, bottom, right = pool["pads"]
    around = ((top, bottom), (left, right), (0, 0))
    padded = np.pad(x.astype(np.int64) - zeros[0], around)
    ones = np.pad(
        np.ones(x.shape, np.int64), around, constant_values=int(pool["count_include_pad"])
    )
    sums, counts = (
        windows(values, pool["kernel"], pool["strides"], (1, 1)).sum(axis=(3, 4))
        for values in (padded, ones)
    )
    ratio = Fraction(step.input_scale) / Fraction(step.output_scale)
    exact = [
        round(Fraction(int(total), int(count)) * ratio) + zeros[1]
        for total, count in zip(sums.reshape(-1), counts.reshape(-1), strict=True)
    ]
    expected = np.clip(exact, step.clip_low, step.clip_high).astype(np.uint8).reshape(size)
    assert np.array_equal(bench.run([step], result, size), expected)


@pytest.mark.parametrize(
    ("input_scale", "output_scale"),
    [(3e38, 1e-45), (1e-45, 3e38), (1e-45, 1e-45), (1.5, 1.0), (2.0**62, 1.0), (1.0, 2.0**40)],
)
def test_average_of_extreme_scales(input_scale: float, output_scale: float) -> None:
    values = np.array([-128, -1, 0, 1, 3, 127], np.int8)
    pool = {
        "kernel": (1, 1), "pads": (0, 0, 0, 0), "strides": (1, 1), "unsigned": False,
        "output_unsigned": False, "count_include_pad": False,
        "scales": (input_scale, output_scale),
    }  # fmt: skip
    bench = Bench()
    x = values.reshape(1, 1, -1)
    step, result, size = pool_instruction(bench, isa.AveragePool, pool, x, (0, 0))
    ratio = Fraction(step.input_scale) / Fraction(step.output_scale)
    exact = [min(max(round(int(value) * ratio), -128), 127) for value in values]
    found = bench.run([step], result, size).view(np.int8).reshape(-1)
    assert found.tolist() == exact
