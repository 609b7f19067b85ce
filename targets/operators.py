"""What an NPU is asked to do, as plain data: the words compiler, schedules and targets share.

Tensors are NHWC with batch 1 (larger batches are one operator an image). Quantised values follow
    real = scale * (quantised - zero)
and every scale is the float32 the model holds. Rounding is half to even throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

DType = Literal["int8", "uint8"]
Requantize = Literal["two_step", "premultiplied"]


@dataclass(frozen=True)
class Tensor:
    """One int8 or uint8 tensor of an NPU region, height x width x channels.

    `buffer` names the storage: two tensors with one buffer are views of it. `offset` and the
    pitches are in bytes from the start of the buffer; channels are always adjacent.
    """

    name: str
    height: int
    width: int
    channels: int
    dtype: DType
    buffer: str
    offset: int = 0
    row_pitch: int = 0  # 0: width * pixel pitch
    pixel_pitch: int = 0  # 0: channels

    @property
    def pitch_x(self) -> int:
        return self.pixel_pitch or self.channels

    @property
    def pitch_y(self) -> int:
        return self.row_pitch or self.width * self.pitch_x

    @property
    def elements(self) -> int:
        return self.height * self.width * self.channels


@dataclass(frozen=True)
class Operator:
    """`name` is unique in its region; `onnx_nodes` are the user's own names for it."""

    name: str
    onnx_nodes: tuple[str, ...]
    output: Tensor

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return ()

    @property
    def macs(self) -> int:
        return 0


@dataclass(frozen=True)
class Conv2d(Operator):
    """Convolution, depthwise when groups equals the input channels; a dense layer is 1x1.

    acc = sum (x - input_zero) * (w - weight_zero) + bias                      int32
    two_step:       y = rint(clip(f32(acc) * multiplier[c]) / output_scale) + output_zero
                    multiplier[c] = float32(input_scale * weight_scale[c])
    premultiplied:  y = rint(f32(acc) * multiplier[c]) + output_zero           (QLinear*)
    then saturated and limited to [clip_low, clip_high], which are quantised values (a monotone
    quantiser lets ReLU and Clip act after it), then `lookup`, indexed by the output's raw byte.
    Padding contributes input_zero. weight is [kh, kw, input_channels / groups, output_channels].
    """

    input: Tensor = field(kw_only=True)
    weight: NDArray[np.int8] | NDArray[np.uint8] = field(kw_only=True)
    weight_zero: int = field(kw_only=True, default=0)
    bias: NDArray[np.int32] = field(kw_only=True)
    multiplier: NDArray[np.float32] = field(kw_only=True)
    requantize: Requantize = field(kw_only=True, default="two_step")
    input_zero: int = field(kw_only=True)
    output_scale: float = field(kw_only=True)
    output_zero: int = field(kw_only=True)
    clip_low: int = field(kw_only=True)
    clip_high: int = field(kw_only=True)
    strides: tuple[int, int] = field(kw_only=True, default=(1, 1))
    dilations: tuple[int, int] = field(kw_only=True, default=(1, 1))
    pads: tuple[int, int, int, int] = field(kw_only=True, default=(0, 0, 0, 0))  # t, l, b, r
    groups: int = field(kw_only=True, default=1)
    lookup: NDArray[np.uint8] | None = field(kw_only=True, default=None)  # 256 raw bytes

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.input,)

    @property
    def kernel(self) -> tuple[int, int]:
        return self.weight.shape[0], self.weight.shape[1]

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.input.channels

    @property
    def macs(self) -> int:
        return self.output.height * self.output.width * int(self.weight.size)


@dataclass(frozen=True)
class MatMul(Operator):
    """Rows x inner times inner x columns, both computed at run time, one common scale.

    a is (1, rows, inner), b is (1, inner, columns), output (1, rows, columns);
    arithmetic of Conv2d without bias, weight_zero being b's zero point.
    """

    a: Tensor = field(kw_only=True)
    b: Tensor = field(kw_only=True)
    a_zero: int = field(kw_only=True)
    b_zero: int = field(kw_only=True)
    multiplier: float = field(kw_only=True)
    output_scale: float = field(kw_only=True)
    output_zero: int = field(kw_only=True)
    clip_low: int = field(kw_only=True)
    clip_high: int = field(kw_only=True)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.a, self.b

    @property
    def macs(self) -> int:
        return self.a.width * self.a.channels * self.b.channels


@dataclass(frozen=True)
class Elementwise(Operator):
    """Dequantise both, operate, quantise, all in float32; b may broadcast from 1x1 pixels.

    y = rint(((a - a_zero) * a_scale  op  (b - b_zero) * b_scale) / output_scale) + output_zero
    """

    kind: Literal["add", "sub", "mul"] = field(kw_only=True)
    a: Tensor = field(kw_only=True)
    b: Tensor = field(kw_only=True)
    a_scale: float = field(kw_only=True)
    a_zero: int = field(kw_only=True)
    b_scale: float = field(kw_only=True)
    b_zero: int = field(kw_only=True)
    output_scale: float = field(kw_only=True)
    output_zero: int = field(kw_only=True)
    clip_low: int = field(kw_only=True)
    clip_high: int = field(kw_only=True)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.a, self.b


@dataclass(frozen=True)
class Lookup(Operator):
    """y = table[raw byte of x]: every unary int8 function, rescaling included."""

    input: Tensor = field(kw_only=True)
    table: NDArray[np.uint8] = field(kw_only=True)  # 256 raw bytes

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Pool2d(Operator):
    """Maximum, or average as an exact rational rounded once, half to even.

    average: y = rint(sum(x - input_zero) * input_scale / (count * output_scale)) + output_zero
    where count is the taps inside the image, or all taps when count_include_pad.
    maximum keeps its input's quantisation; padding never wins.
    """

    kind: Literal["max", "average"] = field(kw_only=True)
    input: Tensor = field(kw_only=True)
    kernel: tuple[int, int] = field(kw_only=True)
    strides: tuple[int, int] = field(kw_only=True, default=(1, 1))
    pads: tuple[int, int, int, int] = field(kw_only=True, default=(0, 0, 0, 0))  # t, l, b, r
    count_include_pad: bool = field(kw_only=True, default=False)
    input_scale: float = field(kw_only=True, default=1.0)
    input_zero: int = field(kw_only=True, default=0)
    output_scale: float = field(kw_only=True, default=1.0)
    output_zero: int = field(kw_only=True, default=0)
    clip_low: int = field(kw_only=True)
    clip_high: int = field(kw_only=True)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Copy(Operator):
    """Move a tensor as it is, from one view to another of the same height, width, channels.

    Reshape, slice and concat become copies only where no view can stand for them.
    """

    input: Tensor = field(kw_only=True)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Pad2d(Operator):
    """Copy into a larger image whose border (and added channels) hold `value`."""

    input: Tensor = field(kw_only=True)
    pads: tuple[int, int, int, int] = field(kw_only=True)  # t, l, b, r
    channel_pads: tuple[int, int] = field(kw_only=True, default=(0, 0))
    value: int = field(kw_only=True)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Region:
    """Operators in the order they run; every tensor an operator reads is an input or was written.

    `inputs` and `outputs` name buffers that live outside the region (the CPU, or another region,
    writes and reads them); every other buffer is the schedule's to keep in SRAM or spill.
    """

    name: str
    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    buffer_bytes: dict[str, int]
