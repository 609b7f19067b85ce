"""What an NPU takes: `refuses` gives the reason why it leaves an operator to the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.targets.groups import Npu
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

# The widest pads and the largest counts that an instruction's words hold.
_LARGEST_PAD = 255
_LARGEST_MULTIPLIER = 255


@dataclass(frozen=True)
class Refusal:
    """`code` is for programs and stays; `text` is for people."""

    code: str
    text: str

    def __str__(self) -> str:
        return self.text


def refuses(npu: Npu, operator: Operator) -> Refusal | None:
    """Why `npu` cannot run `operator`, the first reason found; None when it can.

    Whether a tile of it fits the SRAM is the schedule's to say.
    """
    return next(_refusals(npu, operator), None)


def operator_kind(operator: Operator) -> str:
    """The word for an operator in `[npu.support] operators`."""
    match operator:
        case Conv2d():
            return "depthwise" if operator.is_depthwise else "conv2d"
        case Elementwise():
            return operator.kind
        case Pool2d():
            return f"{operator.kind}_pool"
        case MatMul():
            return "matmul"
        case Lookup():
            return "lookup"
        case Pad2d():
            return "pad"
        case Copy():
            return "copy"
    raise TypeError(f"{operator.name}: {type(operator).__name__} is no operator of an NPU")


def _refusals(npu: Npu, operator: Operator) -> Iterator[Refusal]:
    kind = operator_kind(operator)
    if kind not in npu.support.operators:
        yield Refusal("kind", f"{kind} is not among what this NPU runs")
    for tensor in (*operator.inputs, operator.output):
        yield from _tensor_refusals(npu, tensor)
    if isinstance(operator, Conv2d):
        yield from _conv2d_refusals(npu, operator)
    elif isinstance(operator, Pool2d):
        yield from _pool_refusals(npu, operator)
    elif isinstance(operator, Elementwise):
        yield from _broadcast_refusals(operator)


def _tensor_refusals(npu: Npu, tensor: Tensor) -> Iterator[Refusal]:
    if tensor.dtype not in npu.support.dtypes:
        allowed = " and ".join(npu.support.dtypes)
        yield Refusal("dtype", f"{tensor.dtype} data; this NPU runs {allowed}")
    group = npu.layout.dram_channels_multiple
    if tensor.channels % group:
        text = f"{tensor.channels} channels; this NPU moves whole groups of {group}"
        yield Refusal("channels", text)
    largest = npu.support.max_extent
    for side in ("height", "width", "channels"):
        extent = getattr(tensor, side)
        if extent > largest:
            yield Refusal(
                "extent", f"{side} {extent} exceeds the largest this NPU runs ({largest})"
            )


def _conv2d_refusals(npu: Npu, conv: Conv2d) -> Iterator[Refusal]:
    limits = npu.support.conv2d
    yield from _window_refusals(conv.kernel, limits.max_kernel, conv.strides, limits.max_stride)
    yield from _exceeding("dilation", conv.dilations, limits.max_dilation)
    yield from _pad_refusals(conv.pads)
    if conv.groups > 1 and not conv.is_depthwise and not limits.grouped:
        yield Refusal("groups", f"{conv.groups} groups; this NPU runs one, or depthwise")
    if conv.weight_zero and not limits.weight_zero_points:
        text = f"weights with zero point {conv.weight_zero}; this NPU needs 0"
        yield Refusal("weight_zero", text)
    multiplier = conv.output.channels // conv.input.channels
    if conv.is_depthwise and multiplier > _LARGEST_MULTIPLIER:
        text = f"channel multiplier {multiplier} exceeds the largest ({_LARGEST_MULTIPLIER})"
        yield Refusal("channel_multiplier", text)
    if conv.lookup is not None and "lookup" not in npu.support.operators:
        yield Refusal("lookup", "a fused table; this NPU has no lookup")


def _pool_refusals(npu: Npu, pool: Pool2d) -> Iterator[Refusal]:
    limits = npu.support.pool
    yield from _window_refusals(pool.kernel, limits.max_kernel, pool.strides, limits.max_stride)
    yield from _pad_refusals(pool.pads)
    if any(pad >= pool.kernel[axis % 2] for axis, pad in enumerate(pool.pads)):
        text = f"pads {list(pool.pads)} leave a {_times(pool.kernel)} window without any input"
        yield Refusal("pads", text)


def _broadcast_refusals(operator: Elementwise) -> Iterator[Refusal]:
    a, b = operator.a, operator.b
    whole = (a.height, a.width, a.channels)
    if (b.height, b.width, b.channels) not in (whole, (1, 1, a.channels)):
        shape = f"{b.height}x{b.width}x{b.channels} over {a.height}x{a.width}x{a.channels}"
        yield Refusal("broadcast", f"broadcasts {shape}; this NPU broadcasts single pixels")


def _window_refusals(
    kernel: tuple[int, int], max_kernel: int, strides: tuple[int, int], max_stride: int
) -> Iterator[Refusal]:
    yield from _exceeding("kernel", kernel, max_kernel)
    yield from _exceeding("stride", strides, max_stride)


def _exceeding(what: str, pair: tuple[int, int], largest: int) -> Iterator[Refusal]:
    if max(pair) > largest:
        limit = f"exceeds the largest this NPU runs ({_times((largest, largest))})"
        yield Refusal(what, f"{what} {_times(pair)} {limit}")


def _pad_refusals(pads: tuple[int, int, int, int]) -> Iterator[Refusal]:
    if max(pads) > _LARGEST_PAD or min(pads) < 0:
        yield Refusal("pads", f"pads {list(pads)} are outside 0 to {_LARGEST_PAD}")


def _times(pair: tuple[int, int]) -> str:
    return f"{pair[0]}x{pair[1]}"
