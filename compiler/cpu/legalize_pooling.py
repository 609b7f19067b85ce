"""Floating-point pooling and normalisation as kernels."""

from __future__ import annotations

import math

from tvm import relax, te, tirx

from tilewright.compiler.cpu.operands import (
    ANCHOR,
    Legalize,
    call_kernel,
    image_operator,
    integers,
    layout_order,
    stock,
)
from tilewright.passes.constants import dtype_of, shape_of
from tilewright.schedules.cpu.computations import Window, extents, pool
from tilewright.schedules.cpu.terms import Expr

POOLING: dict[str, Legalize] = {
    "relax.nn.max_pool2d": lambda builder, call: _pool(builder, call, "max"),
    "relax.nn.avg_pool2d": lambda builder, call: _pool(builder, call, "sum"),
    "relax.nn.layer_norm": lambda builder, call: _layer_norm(builder, call),
}


def _pool(builder: relax.BlockBuilder, call: relax.Call, kind: str) -> relax.Expr:
    attributes = call.attrs
    layout = str(attributes.layout)
    dtype = dtype_of(call)
    window = _window(call)
    declared = integers(attributes.padding)
    include = bool(attributes.count_include_pad)

    def compute(x: te.Tensor) -> te.Tensor:
        pooled = pool(x, window, kind, dtype, lambda value: value)
        if kind == "max":
            return pooled

        def mean(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
            count = _taps(window, extents(x), h, w, declared if include else (0, 0, 0, 0))
            return pooled[n, h, w, c] / count.astype(dtype)

        return te.compute(pooled.shape, mean, name="mean")

    return image_operator(
        builder,
        layout,
        call,
        lambda x: call_kernel(builder, compute, [x], f"{kind}_pool", ANCHOR),
    )


def _window(call: relax.Call) -> Window:
    """The call's window; ceil mode becomes padding below and to the right."""
    attributes = call.attrs
    order = layout_order(str(attributes.layout), "NHWC")
    size = [shape_of(call.args[0])[axis] for axis in order][1:3]
    result = [shape_of(call)[axis] for axis in order][1:3]
    kernel, strides = integers(attributes.pool_size), integers(attributes.strides)
    dilations = integers(attributes.dilation)
    top, left, *_ends = integers(attributes.padding)
    ends = [
        (result[axis] - 1) * strides[axis]
        + (kernel[axis] - 1) * dilations[axis]
        + 1
        - size[axis]
        - (top, left)[axis]
        for axis in (0, 1)
    ]
    return Window(
        (kernel[0], kernel[1]),
        (strides[0], strides[1]),
        (dilations[0], dilations[1]),
        (top, left, max(ends[0], 0), max(ends[1], 0)),
    )


def _taps(window: Window, shape: list[int], h: Expr, w: Expr, counted: tuple[int, ...]) -> Expr:
    """Taps of the window at (h, w) inside the image and the part of its border that counts."""
    if not any(window.pads):
        return tirx.const(math.prod(window.kernel), "int32")
    counts = []
    for axis, at in enumerate((h, w)):
        step, taps = window.dilations[axis], window.kernel[axis]
        begin = at * window.strides[axis] - window.pads[axis]
        low, high = -counted[axis], shape[1 + axis] + counted[2 + axis]
        first = tirx.floordiv(tirx.max(low - begin, 0) + step - 1, step)
        last = tirx.min(tirx.floordiv(tirx.max(high - 1 - begin, -1), step), taps - 1)
        counts.append(tirx.max(last - first + 1, 1))
    return counts[0] * counts[1]


def _layer_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, in two passes over each row."""
    attributes = call.attrs
    shape, dtype = shape_of(call), dtype_of(call)
    axes = sorted(int(axis) % len(shape) for axis in attributes.axes)
    leading = len(shape) - len(axes)
    if axes != list(range(leading, len(shape))):
        return stock("relax.nn.layer_norm")(builder, call)
    size = tirx.const(float(math.prod(shape[leading:])), dtype)
    epsilon = tirx.const(float(attributes.epsilon), dtype)

    def compute(x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
        def axis_of(name: str) -> list[te.IterVar]:
            return [te.reduce_axis((0, extent), name) for extent in shape[leading:]]

        k, j = axis_of("k"), axis_of("j")
        sums = te.compute(shape[:leading], lambda *row: te.sum(x[(*row, *k)], axis=k), name="sums")

        def squared(*row: Expr) -> Expr:
            centred = x[(*row, *j)] - sums[row] / size
            return te.sum(centred * centred, axis=j)

        squares = te.compute(shape[:leading], squared, name="squares")

        def element(*at: Expr) -> Expr:
            row, inside = at[:leading], at[leading:]
            deviation = tirx.sqrt(squares[row] / size + epsilon)
            normal = (x[at] - sums[row] / size) / deviation
            return normal * gamma[inside] + beta[inside]

        return te.compute(shape, element, name="layer_norm")

    return call_kernel(builder, compute, list(call.args), "layer_norm", ANCHOR)
