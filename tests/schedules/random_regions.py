"""Random operators, regions and machines, all from one seed, for the schedule's property tests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tilewright.targets import load_target
from tilewright.targets.description import Npu
from tilewright.targets.operators import (
    Conv2d,
    Copy,
    DType,
    Elementwise,
    Lookup,
    MatMul,
    Operator,
    Pad2d,
    Pool2d,
    Region,
    Tensor,
)

SCALES = [0.0078125, 0.0231, 0.1, 0.4999, 1.0]


def bundled(name: str) -> Npu:
    npu = load_target(name).npu
    assert npu is not None
    return npu


def tiny_npu(chance: random.Random) -> Npu:
    """A machine small enough that even small operators need many tiles."""
    base = bundled(chance.choice(["mcu-16", "edge-128"]))
    rows, columns = chance.choice([4, 8, 16]), chance.choice([4, 8, 16])
    mode = chance.choice(["diagonal", "vector", "unit"])
    return replace(
        base,
        array=replace(
            base.array,
            rows=rows,
            columns=columns,
            reduction=chance.choice(["flattened", "channels"]),
            subarrays=chance.choice([1, 2, 4]),
            weight_double_buffer=chance.random() < 0.5,
            weight_rows_per_cycle=chance.choice([1, 2, 4]),
        ),
        depthwise=replace(base.depthwise, mode=mode, macs_per_cycle=8 if mode == "unit" else 0),
        vector=replace(base.vector, lanes=chance.choice([4, 16])),
        memory=replace(
            base.memory,
            sram_kib=chance.choice([4, 8, 16, 64]),
            banks=4,
            accumulator_kib=chance.choice([1, 2, 4]),
            dma_latency_cycles=chance.choice([0, 10, 100]),
            burst_bytes=chance.choice([1, 16, 64]),
        ),
        layout=replace(base.layout, channel_alignment=chance.choice([1, 4, 8, 16])),
        tables=replace(
            base.tables,
            alignment=chance.choice([4, 16, 64]),
            channels_multiple=chance.choice([1, 3, 8, 16]),
            order=chance.choice(["bias_first", "multiplier_first"]),
        ),
    )


@dataclass
class Maker:
    """Makes operators whose outputs later operators read."""

    chance: random.Random
    largest: int = 14
    channels: int = 24
    operators: list[Operator] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    buffers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.data = np.random.default_rng(self.chance.randrange(2**32))

    def region(self, count: int) -> Region:
        """An input, `count` operators, and as outputs all that nobody reads."""
        shape = (self._extent(), self._extent(), self.chance.randint(1, self.channels))
        self.tensors.append(self._tensor(*shape))
        source = self.tensors[0].buffer
        while len(self.operators) < count:
            made = self.chance.choice(self._makers())(self.chance.choice(self.tensors[-3:]))
            if made is not None:
                self.operators.append(made)
                self.tensors.append(made.output)
        read = {tensor.buffer for one in self.operators for tensor in one.inputs}
        written = {one.output.buffer for one in self.operators}
        outputs = sorted(written - read) or [self.operators[-1].output.buffer]
        extra = sorted(written & read)
        if extra and self.chance.random() < 0.3:
            outputs.append(self.chance.choice(extra))
        inputs = sorted((read - written) | {source})
        return Region("region", tuple(self.operators), tuple(inputs), tuple(outputs), self.buffers)

    def _makers(self):  # type: ignore[no-untyped-def]
        return [
            self.conv, self.conv, self.depthwise, self.grouped, self.matmul, self.elementwise,
            self.lookup, self.pool, self.copy, self.pad,
        ]  # fmt: skip

    def _extent(self) -> int:
        return self.chance.randint(1, self.largest)

    def _dtype(self) -> DType:
        return self.chance.choice(["int8", "int8", "uint8"])

    def _tensor(self, height: int, width: int, channels: int, dtype: DType | None = None) -> Tensor:
        """A tensor in a new buffer, sometimes with gaps, sometimes dense."""
        name = f"t{len(self.buffers)}"
        kind = dtype or self._dtype()
        pixel = channels + self.chance.choice([0, 0, 0, 1, 16 - channels % 16])
        row = width * pixel + self.chance.choice([0, 0, 0, 5, pixel])
        offset = self.chance.choice([0, 0, 0, 3, 16])
        self.buffers[name] = offset + row * height + self.chance.choice([0, 7])
        if (pixel, row, offset) == (channels, width * channels, 0):
            return Tensor(name, height, width, channels, kind, name)
        return Tensor(name, height, width, channels, kind, name, offset, row, pixel)

    def _zero(self, dtype: DType) -> int:
        low = 0 if dtype == "uint8" else -128
        return self.chance.choice([low, low + 128, low + self.chance.randint(0, 255)])

    def _limits(self, dtype: DType) -> dict[str, int]:
        low = 0 if dtype == "uint8" else -128
        first = low + self.chance.choice([0, 0, 40])
        return {"clip_low": first, "clip_high": low + self.chance.choice([255, 200])}

    def _scale(self) -> float:
        return float(np.float32(self.chance.choice(SCALES)))

    def _weights(self, *shape: int) -> tuple[NDArray[np.int8] | NDArray[np.uint8], int]:
        if self.chance.random() < 0.3:
            return self.data.integers(0, 256, shape).astype(np.uint8), self.chance.randint(0, 255)
        zero = self.chance.choice([0, 0, 7])
        return self.data.integers(-128, 128, shape).astype(np.int8), zero

    def _window(self, x: Tensor, most: int) -> dict[str, tuple[int, ...]]:
        kernel = (self.chance.randint(1, most), self.chance.randint(1, most))
        pads = tuple(self.chance.randint(0, kernel[axis % 2] - 1) for axis in range(4))
        strides = (self.chance.randint(1, 3), self.chance.randint(1, 3))
        return {"kernel": kernel, "pads": pads, "strides": strides}

    def conv(self, x: Tensor) -> Conv2d | None:
        return self._conv(x, 1, self.chance.randint(1, self.channels))

    def depthwise(self, x: Tensor) -> Conv2d | None:
        return self._conv(x, x.channels, x.channels * self.chance.choice([1, 1, 2, 3]))

    def grouped(self, x: Tensor) -> Conv2d | None:
        groups = [g for g in range(2, x.channels) if x.channels % g == 0]
        if not groups:
            return None
        group = self.chance.choice(groups)
        return self._conv(x, group, group * self.chance.randint(1, 6))

    def _conv(self, x: Tensor, groups: int, channels: int) -> Conv2d | None:
        window = self._window(x, 4)
        dilations = (self.chance.choice([1, 1, 2]), self.chance.choice([1, 1, 3]))
        size = [
            (extent + window["pads"][axis] + window["pads"][axis + 2] - reach) // stride + 1
            for axis, (extent, reach, stride) in enumerate(
                zip(
                    (x.height, x.width),
                    [d * (k - 1) + 1 for d, k in zip(dilations, window["kernel"], strict=True)],
                    window["strides"],
                    strict=True,
                )
            )
        ]
        if min(size) < 1:
            return None
        output = self._tensor(size[0], size[1], channels)
        weight, weight_zero = self._weights(*window["kernel"], x.channels // groups, channels)
        depth = weight[..., 0].size
        scale = self.data.uniform(0.2, 2.0, channels) / (depth**0.5 * 70)
        table = self.data.integers(0, 256, 256).astype(np.uint8)
        return Conv2d(
            f"op{len(self.operators)}", ("conv",), output,
            input=x, weight=weight, weight_zero=weight_zero,
            bias=self.data.integers(-5000, 5000, channels).astype(np.int32),
            multiplier=scale.astype(np.float32),
            requantize=self.chance.choice(["two_step", "premultiplied"]),
            input_zero=self._zero(x.dtype), output_scale=self._scale(),
            output_zero=self._zero(output.dtype), **self._limits(output.dtype),
            strides=window["strides"], dilations=dilations, pads=window["pads"], groups=groups,
            lookup=table if self.chance.random() < 0.2 else None,
        )  # type: ignore[arg-type]  # fmt: skip

    def matmul(self, x: Tensor) -> MatMul | None:
        if x.height != 1 and x.offset + x.pitch_y * x.height > self.buffers[x.buffer]:
            return None
        a = x if x.height == 1 else replace(x, height=1)
        b = self._tensor(1, a.channels, self.chance.randint(1, self.channels))
        output = self._tensor(1, a.width, b.channels)
        return MatMul(
            f"op{len(self.operators)}", ("matmul",), output,
            a=a, b=b, a_zero=self._zero(a.dtype), b_zero=self._zero(b.dtype),
            multiplier=float(np.float32(0.0003)), output_scale=self._scale(),
            output_zero=self._zero(output.dtype), **self._limits(output.dtype),
        )  # fmt: skip

    def elementwise(self, x: Tensor) -> Elementwise:
        same = [t for t in self.tensors if (t.height, t.width, t.channels) == _shape(x)]
        b = self.chance.choice(same)
        if self.chance.random() < 0.4:
            b = self._tensor(1, 1, x.channels)
        output = self._tensor(*_shape(x))
        return Elementwise(
            f"op{len(self.operators)}", ("elementwise",), output,
            kind=self.chance.choice(["add", "sub", "mul"]), a=x, b=b,
            a_scale=self._scale(), a_zero=self._zero(x.dtype), b_scale=self._scale(),
            b_zero=self._zero(b.dtype), output_scale=self._scale(),
            output_zero=self._zero(output.dtype), **self._limits(output.dtype),
        )  # fmt: skip

    def lookup(self, x: Tensor) -> Lookup:
        table = self.data.integers(0, 256, 256).astype(np.uint8)
        name = f"op{len(self.operators)}"
        return Lookup(name, ("lookup",), self._tensor(*_shape(x)), input=x, table=table)

    def pool(self, x: Tensor) -> Pool2d | None:
        kind = self.chance.choice(["max", "average"])
        window = self._window(x, 4)
        if self.chance.random() < 0.3:
            window = {"kernel": (x.height, x.width), "pads": (0, 0, 0, 0), "strides": (1, 1)}
        ceil = self.chance.choice([0, 1])
        size = []
        for axis, extent in enumerate((x.height, x.width)):
            before, after = window["pads"][axis], window["pads"][axis + 2]
            kernel, stride = window["kernel"][axis], window["strides"][axis]
            free = extent + before + after - kernel
            if free < 0:
                return None
            count = (free + (stride - 1) * ceil) // stride + 1
            while (count - 1) * stride - before >= extent:
                count -= 1
            size.append(count)
        if min(size) < 1:
            return None
        output = self._tensor(size[0], size[1], x.channels, x.dtype)
        quantisation = {}
        if kind == "average":
            quantisation = {
                "input_scale": self._scale(), "input_zero": self._zero(x.dtype),
                "output_scale": self._scale(), "output_zero": self._zero(output.dtype),
            }  # fmt: skip
        return Pool2d(
            f"op{len(self.operators)}", ("pool",), output, kind=kind, input=x,
            count_include_pad=self.chance.random() < 0.5,
            **window, **quantisation, **self._limits(output.dtype),
        )  # type: ignore[arg-type]  # fmt: skip

    def copy(self, x: Tensor) -> Copy:
        """Into a slice of the channels of a wider buffer, as concat leaves it, or a new tensor."""
        output = self._tensor(*_shape(x), dtype=x.dtype)
        if self.chance.random() < 0.5:
            wide = self._tensor(x.height, x.width, x.channels * 2, x.dtype)
            offset = wide.offset + self.chance.choice([0, x.channels])
            output = replace(wide, channels=x.channels, offset=offset,
                             row_pitch=wide.pitch_y, pixel_pitch=wide.pitch_x)  # fmt: skip
        return Copy(f"op{len(self.operators)}", ("copy",), output, input=x)

    def pad(self, x: Tensor) -> Pad2d:
        top, left, bottom, right = (self.chance.randint(0, 3) for _ in range(4))
        before, after = self.chance.choice([(0, 0), (0, 0), (1, 2)])
        output = self._tensor(
            x.height + top + bottom, x.width + left + right, x.channels + before + after, x.dtype
        )
        return Pad2d(
            f"op{len(self.operators)}", ("pad",), output, input=x,
            pads=(top, left, bottom, right), channel_pads=(before, after),
            value=self._zero(x.dtype),
        )  # fmt: skip


def conv_region(
    height: int, width: int, inputs: int, outputs: int, kernel: int = 3, groups: int = 1
) -> Region:
    """One convolution that keeps height and width, from buffer x to buffer y."""
    data = np.random.default_rng(0)
    conv = Conv2d(
        "conv", ("conv",), Tensor("y", height, width, outputs, "int8", "y"),
        input=Tensor("x", height, width, inputs, "int8", "x"),
        weight=data.integers(-128, 128, (kernel, kernel, inputs // groups, outputs), np.int8),
        bias=data.integers(-999, 999, outputs, np.int32),
        multiplier=np.full(outputs, 0.0004, np.float32), input_zero=-3,
        output_scale=float(np.float32(0.1)), output_zero=5, clip_low=-128, clip_high=127,
        pads=(kernel // 2, kernel // 2, (kernel - 1) // 2, (kernel - 1) // 2), groups=groups,
    )  # fmt: skip
    nbytes = {"x": conv.input.elements, "y": conv.output.elements}
    return Region("region", (conv,), ("x",), ("y",), nbytes)


def chain_region(parts: list[Region]) -> Region:
    """Regions of one convolution each, one after the other."""
    operators: list[Operator] = []
    buffers: dict[str, int] = {}
    for index, part in enumerate(parts):
        (conv,) = part.operators
        assert isinstance(conv, Conv2d)
        source = replace(conv.input, name=f"t{index}", buffer=f"t{index}")
        output = replace(conv.output, name=f"t{index + 1}", buffer=f"t{index + 1}")
        operators.append(replace(conv, name=f"conv{index}", input=source, output=output))
        buffers |= {source.buffer: source.elements, output.buffer: output.elements}
    last = f"t{len(parts)}"
    return Region("region", tuple(operators), ("t0",), (last,), buffers)


def _shape(tensor: Tensor) -> tuple[int, int, int]:
    return tensor.height, tensor.width, tensor.channels
