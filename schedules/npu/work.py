"""An operator as tiles see it: axes with windows, operands, and what each tile needs.

Tiles are ranges of the output's rows, columns and channels; a multiply (convolution, depthwise,
matmul) also splits its reduction over input channels into passes that accumulate.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import gcd

from tilewright.schedules.npu.geometry import Window
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


@dataclass(frozen=True)
class Operand:
    """An activation input: the window of it that output rows and columns see.

    `broadcasts`: one pixel serves all tiles.
    """

    tensor: Tensor
    rows: Window
    columns: Window
    broadcasts: bool = False


@dataclass(frozen=True)
class Piece:
    """One CONV of a tile: the output channels low..high read the input channels first..last.

    A convolution has one a tile; a grouped one has one a bundle of groups.
    """

    low: int
    high: int
    first: int
    last: int


@dataclass(frozen=True)
class Multiply:
    """What the MAC engine computes: weights are [taps][reduction][output channels].

    `reduction` is the input channels one output channel sees (1 when depthwise), `bundle` the
    output channels that share one window of input channels, `channels_per_bundle` that window's
    own input channels.
    """

    taps: int
    reduction: int
    depthwise: bool = False
    multiplier: int = 1
    bundle: int = 0
    channels_per_bundle: int = 0

    @property
    def is_channelwise(self) -> bool:
        """A tile of output channels reads its own input channels only."""
        return self.depthwise or self.bundle > 0


@dataclass(frozen=True)
class Work:
    """`grain` and `reduction_grain`: channels that tiles start at multiples of."""

    operator: Operator
    output: Tensor
    operands: tuple[Operand, ...]
    grain: int
    reduction_grain: int
    multiply: Multiply | None = None
    table_bytes: int = 0  # a 256-entry look-up table

    @property
    def signature(self) -> Hashable:
        """All that prices depend on: works of one signature have the same candidates."""
        operator = self.operator
        tensors = (self.output, *(operand.tensor for operand in self.operands))
        extents = tuple((t.height, t.width, t.channels, t.pitch_y, t.pitch_x) for t in tensors)
        windows = tuple((o.rows, o.columns, o.broadcasts) for o in self.operands)
        kernel = operator.kernel if isinstance(operator, Pool2d) else None
        grains = (self.grain, self.reduction_grain, self.table_bytes)
        return type(operator), extents, windows, kernel, grains, self.multiply

    @property
    def streamed_weights(self) -> Tensor | None:
        """The activation a matmul multiplies with, in the place of weights."""
        return self.operator.b if isinstance(self.operator, MatMul) else None


def describe(operator: Operator, npu: Npu) -> Work:
    """The work of any operator."""
    alignment = npu.channel_alignment
    output = operator.output
    match operator:
        case Conv2d():
            multiply, grain = _convolution(operator, npu)
            table = 256 if operator.lookup is not None else 0
            window = (_window_operand(operator),)
            return Work(operator, output, window, grain, alignment, multiply, table)
        case MatMul():
            operand = _plain(operator.a)
            inner = Multiply(1, operator.a.channels)
            return Work(operator, output, (operand,), alignment, alignment, inner)
        case Pool2d():
            return Work(operator, output, (_window_operand(operator),), alignment, 1)
        case Elementwise():
            small = operator.b.height * operator.b.width == 1
            broadcasts = small and output.height * output.width > 1
            b = Operand(operator.b, Window(1), Window(1), True) if broadcasts else None
            both = (_plain(operator.a), b or _plain(operator.b))
            return Work(operator, output, both, alignment, 1)
        case Pad2d():
            return Work(operator, output, (_padded(operator),), output.channels, 1)
        case Lookup():
            plain = (_plain(operator.input),)
            return Work(operator, output, plain, alignment, 1, table_bytes=256)
        case Copy():
            return Work(operator, output, (_plain(operator.input),), alignment, 1)
    raise TypeError(f"{operator.name}: no schedule for {type(operator).__name__}")


def pieces(work: Work, low: int, high: int, alignment: int) -> list[Piece]:
    """The CONVs that make output channels low..high; windows start at whole channel groups."""
    multiply = work.multiply
    assert multiply is not None
    if multiply.depthwise:
        return [Piece(low, high, low // multiply.multiplier, -(-high // multiply.multiplier))]
    if not multiply.bundle:
        return [Piece(low, high, 0, multiply.reduction)]
    found = []
    for start in range(low, high, multiply.bundle):
        first = start // multiply.bundle * multiply.channels_per_bundle
        last = first + multiply.channels_per_bundle
        end = min(start + multiply.bundle, high)
        found.append(Piece(start, end, first // alignment * alignment, last))
    return found


def _convolution(conv: Conv2d, npu: Npu) -> tuple[Multiply, int]:
    taps = conv.kernel[0] * conv.kernel[1]
    alignment = npu.channel_alignment
    if conv.is_depthwise:
        multiplier = conv.output.channels // conv.input.channels
        return Multiply(taps, 1, True, multiplier), alignment * multiplier
    if conv.groups == 1:
        return Multiply(taps, conv.input.channels), alignment
    groups = _groups_per_bundle(conv, npu)
    bundle = conv.output.channels // conv.groups * groups
    own = conv.input.channels // conv.groups * groups
    window = own if own % alignment == 0 else own + alignment - gcd(own, alignment)
    grain = bundle * alignment // gcd(bundle, alignment)
    multiply = Multiply(taps, min(window, conv.input.channels), False, 1, bundle, own)
    return multiply, grain


def _groups_per_bundle(conv: Conv2d, npu: Npu) -> int:
    """The most groups whose block-diagonal weights still fill one pass of the array."""
    taps = conv.kernel[0] * conv.kernel[1]
    inner = conv.input.channels // conv.groups
    outer = conv.output.channels // conv.groups
    depth = taps * inner if npu.array.reduction == "flattened" else inner
    fitting = [
        groups
        for groups in range(1, conv.groups + 1)
        if conv.groups % groups == 0
        and groups * outer <= npu.array.columns
        and groups * depth <= npu.array.rows
    ]
    return max(fitting, default=1)


def _window_operand(operator: Conv2d | Pool2d) -> Operand:
    top, left, bottom, right = operator.pads
    kernel, strides = operator.kernel, operator.strides
    dilations = operator.dilations if isinstance(operator, Conv2d) else (1, 1)
    tensor = operator.input
    return Operand(
        tensor,
        Window(tensor.height, kernel[0], strides[0], dilations[0], top, bottom),
        Window(tensor.width, kernel[1], strides[1], dilations[1], left, right),
    )


def _plain(tensor: Tensor) -> Operand:
    return Operand(tensor, Window(tensor.height), Window(tensor.width))


def _padded(operator: Pad2d) -> Operand:
    top, left, bottom, right = operator.pads
    tensor = operator.input
    return Operand(
        tensor,
        Window(tensor.height, before=top, after=bottom),
        Window(tensor.width, before=left, after=right),
    )
