"""Transposed convolution as a convolution over a stretched image.

    y = conv2d_transpose(x, w, strides)
    ->  y = conv2d(x with strides - 1 zeros between its pixels, w turned round)

The zeros are multiplied too; the register tiles more than make up for it.
"""

from __future__ import annotations

from tvm import relax, te, tirx

from tilewright.compiler.cpu.operands import (
    ANCHOR,
    INJECTIVE,
    Array,
    Legalize,
    auxiliary,
    call_kernel,
    image_operator,
    integers,
    layout_order,
    stock,
)
from tilewright.compiler.cpu.packed_convolution import Operand, pack_convolution
from tilewright.passes.constants import array_of, constant, dtype_of, shape_of
from tilewright.schedules.cpu.computations import Pads, Window, extents
from tilewright.schedules.cpu.facts import CpuFacts
from tilewright.schedules.cpu.terms import Expr


def legalize_transposed(cpu: CpuFacts) -> Legalize:
    """The legalisation of conv2d_transpose; TVM's own takes grouped and run-time weights."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        border, weight = _border(call), array_of(call.args[1])
        if int(call.attrs.groups) != 1 or weight is None or min(border) < 0:
            return stock(call.op.name)(builder, call)
        order = layout_order(str(call.attrs.kernel_layout), "HWIO")
        turned = weight.transpose(order)[::-1, ::-1]
        return image_operator(
            builder,
            str(call.attrs.data_layout),
            call,
            lambda x: _as_convolution(builder, call, (x, turned), border, cpu),
        )

    return legalize


def _as_convolution(
    builder: relax.BlockBuilder,
    call: relax.Call,
    operands: tuple[relax.Expr, Array],
    border: Pads,
    cpu: CpuFacts,
) -> relax.Expr:
    """`operands` are the NHWC image and the HWIO weight, turned round."""
    x, turned = operands
    dtype = dtype_of(call)
    dilations = integers(call.attrs.dilation)
    window = Window(turned.shape[:2], dilations=(dilations[0], dilations[1]))
    strides = integers(call.attrs.strides)

    def stretch(image: te.Tensor) -> te.Tensor:
        return _stretched(image, (strides[0], strides[1]), border, dtype)

    stretched = auxiliary(
        builder, call_kernel(builder, stretch, [x], "stretch", INJECTIVE), call, "stretched"
    )
    product = pack_convolution(
        builder, call, (stretched, constant(turned)), window, 1, Operand(dtype, dtype), cpu
    )
    inputs = [product.image, product.packed]
    return call_kernel(builder, product.accumulate, inputs, "conv2d_transpose", ANCHOR)


def _border(call: relax.Call) -> Pads:
    """Zeros around the stretched image: what the kernel overhangs, less what the user cuts."""
    attributes = call.attrs
    order = layout_order(str(attributes.kernel_layout), "HWIO")
    kernel = [shape_of(call.args[1])[axis] for axis in order][:2]
    reach = [
        (taps - 1) * step for taps, step in zip(kernel, integers(attributes.dilation), strict=True)
    ]
    top, left, bottom, right = integers(attributes.padding)
    more = integers(attributes.output_padding)
    return (
        reach[0] - top,
        reach[1] - left,
        reach[0] - bottom + more[0],
        reach[1] - right + more[1],
    )


def _stretched(x: te.Tensor, strides: tuple[int, int], border: Pads, dtype: str) -> te.Tensor:
    """NHWC `x` with strides - 1 zeros between its pixels and a border of zeros around them."""
    batch, height, width, channels = extents(x)
    top, left, bottom, right = border

    def element(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        row, column = h - top, w - left
        is_pixel = tirx.all(
            row >= 0,
            row <= (height - 1) * strides[0],
            column >= 0,
            column <= (width - 1) * strides[1],
            tirx.floormod(row, strides[0]).equal(0),
            tirx.floormod(column, strides[1]).equal(0),
        )
        pixel = x[n, tirx.floordiv(row, strides[0]), tirx.floordiv(column, strides[1]), c]
        return tirx.if_then_else(is_pixel, pixel, tirx.const(0, dtype))

    shape = (
        batch,
        (height - 1) * strides[0] + 1 + top + bottom,
        (width - 1) * strides[1] + 1 + left + right,
        channels,
    )
    return te.compute(shape, element, name="stretched")
