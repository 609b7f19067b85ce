"""What the kernels compute, as TE: convolution, product, window and padding over NHWC tensors.

These say what; the tile templates say how. Each is right by itself, so that any schedule of it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from tvm import te, tirx

from tilewright.schedules.cpu.terms import Expr
from tilewright.schedules.cpu.tile import Tile

Pads = tuple[int, int, int, int]  # top, left, bottom, right


@dataclass(frozen=True)
class Window:
    """How a window walks over an image."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: Pads = (0, 0, 0, 0)

    def output(self, height: int, width: int) -> tuple[int, int]:
        spans = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        padded = height + self.pads[0] + self.pads[2], width + self.pads[1] + self.pads[3]
        rows, columns = (
            (extent - span) // stride + 1
            for extent, span, stride in zip(padded, spans, self.strides, strict=True)
        )
        return rows, columns

    def at(self, h: Expr, w: Expr, kh: Expr, kw: Expr) -> tuple[Expr, Expr]:
        """The place in the padded image that tap (kh, kw) of output (h, w) reads."""
        return (
            h * self.strides[0] + kh * self.dilations[0],
            w * self.strides[1] + kw * self.dilations[1],
        )


@dataclass(frozen=True)
class Packing:
    """How the right side of a product was packed (schedules/cpu/packing.py)."""

    tile: Tile
    columns: int
    groups: int = 1
    pairs: bool = False

    @property
    def attributes(self) -> dict[str, int]:
        return {
            "packed": 1,
            "crosses": int(self.tile.crosses),
            "pairs": int(self.pairs),
            "groups": self.groups,
            "tile_rows": self.tile.rows,
            "tile_columns": self.tile.columns,
            "tile_lanes": self.tile.lanes,
        }

    @property
    def width(self) -> int:
        return self.columns // self.groups

    def load(self, packed: te.Tensor, column: Expr, taps: Sequence[Expr], k: Expr) -> Expr:
        """Element [taps..., k, column] of the matrix that was packed."""
        panels = ceil(self.width / self.tile.columns)
        group, inside = tirx.floordiv(column, self.width), tirx.floormod(column, self.width)
        panel = tirx.floordiv(inside, self.tile.columns)
        start = tirx.min(panel * self.tile.columns, self.width - self.tile.columns)
        where = (group * panels + panel, *taps)
        if self.pairs:
            return packed[(*where, tirx.floordiv(k, 2), inside - start, tirx.floormod(k, 2))]
        return packed[(*where, k, inside - start)]


@dataclass(frozen=True)
class Unpacked:
    """A right side [taps..., K, columns] as it is, computed at run time."""

    columns: int
    groups: int = 1
    pairs: bool = False

    @property
    def attributes(self) -> dict[str, int]:
        return {"product": 1, "groups": self.groups}

    @property
    def width(self) -> int:
        return self.columns // self.groups

    def load(self, weight: te.Tensor, column: Expr, taps: Sequence[Expr], k: Expr) -> Expr:
        return weight[(*taps, k, column)]


RightSide = Packing | Unpacked


def extents(tensor: te.Tensor) -> list[int]:
    return [int(extent) for extent in tensor.shape]


def pad_image(
    x: te.Tensor, pads: Pads, value: Callable[[Expr], Expr], filling: Expr, name: str = "padded"
) -> te.Tensor:
    """NHWC `x` mapped by `value`, inside a border."""
    batch, height, width, depth = extents(x)
    top, left, bottom, right = pads

    def element(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        loaded = value(x[n, h - top, w - left, c])
        inside = []
        if top or bottom:
            inside += [h >= top, h < height + top]
        if left or right:
            inside += [w >= left, w < width + left]
        return tirx.if_then_else(tirx.all(*inside), loaded, filling) if inside else loaded

    shape = (batch, height + top + bottom, width + left + right, depth)
    border = {"border_top": top, "border_left": left}
    inner = {"border_height": height, "border_width": width}
    attributes = {**border, **inner} if any(pads) else {}
    return te.compute(shape, element, name=name, attrs=attributes)


def convolution(
    x: te.Tensor, packed: te.Tensor, window: Window, packing: RightSide, dtype: str
) -> te.Tensor:
    """Convolution of an image that is padded already, accumulated in `dtype`."""
    batch, height, width, channels = extents(x)
    depth = channels // packing.groups
    kh, kw = (
        te.reduce_axis((0, extent), name)
        for extent, name in zip(window.kernel, ("kh", "kw"), strict=True)
    )
    k = te.reduce_axis((0, depth), "k")
    rows, columns = Window(window.kernel, window.strides, window.dilations).output(height, width)

    def element(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        source = k if packing.groups == 1 else tirx.floordiv(c, packing.width) * depth + k
        left = x[(n, *window.at(h, w, kh, kw), source)].astype(dtype)
        right = packing.load(packed, c, (kh, kw), k).astype(dtype)
        return te.sum(left * right, axis=[kh, kw, k])

    shape = (batch, rows, columns, packing.columns)
    return te.compute(shape, element, name="convolution", attrs=packing.attributes)


def run_convolution(
    x: te.Tensor,
    packed: te.Tensor,
    window: Window,
    run: int,
    size: tuple[int, int],
    packing: RightSide,
    dtype: str,
) -> te.Tensor:
    """Convolution of an image that is padded already, its taps side by side read as one run.

    Neighbouring taps of a row and their channels lie together in NHWC, so that a row of taps is
    `run` = kernel width * channels elements (rounded up where pairs want an even number; what is
    read beyond meets weights of zero). The right side is [kh, run, columns]. The image may have
    more border than the window walks over: `size` is the output's.
    """
    batch, _height, _width, channels = extents(x)
    kh = te.reduce_axis((0, window.kernel[0]), "kh")
    k = te.reduce_axis((0, run), "k")

    def element(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        row, column = window.at(h, w, kh, tirx.floordiv(k, channels))
        left = x[n, row, column, tirx.floormod(k, channels)].astype(dtype)
        right = packing.load(packed, c, (kh,), k).astype(dtype)
        return te.sum(left * right, axis=[kh, k])

    shape = (batch, *size, packing.columns)
    return te.compute(shape, element, name="convolution", attrs=packing.attributes)


def product(x: te.Tensor, packed: te.Tensor, packing: RightSide, dtype: str) -> te.Tensor:
    """x [..., K] times a packed [K, columns], accumulated in `dtype`."""
    *rows, depth = extents(x)
    k = te.reduce_axis((0, depth), "k")

    def element(*at: Expr) -> Expr:
        right = packing.load(packed, at[-1], (), k).astype(dtype)
        return te.sum(x[(*at[:-1], k)].astype(dtype) * right, axis=k)

    shape = (*rows, packing.columns)
    return te.compute(shape, element, name="product", attrs=packing.attributes)


def matrix_product(
    a: te.Tensor,
    b: te.Tensor,
    left: Callable[[Expr], Expr],
    right: Callable[[Expr], Expr],
) -> te.Tensor:
    """Batched [..., M, K] x [..., K, N], both computed at run time, `left` and `right` mapped."""
    a_batch, (m, depth) = extents(a)[:-2], extents(a)[-2:]
    b_batch, n = extents(b)[:-2], extents(b)[-1]
    rank = max(len(a_batch), len(b_batch))
    a_full = [1] * (rank - len(a_batch)) + a_batch
    b_full = [1] * (rank - len(b_batch)) + b_batch
    batch = [max(one, other) for one, other in zip(a_full, b_full, strict=True)]
    k = te.reduce_axis((0, depth), "k")

    def lead(at: Sequence[Expr], own: list[int]) -> list[Expr]:
        used = at[rank - len(own) : rank]
        return [index if extent > 1 else 0 for index, extent in zip(used, own, strict=True)]

    def element(*at: Expr) -> Expr:
        one = a[(*lead(at, a_batch), at[-2], k)]
        other = b[(*lead(at, b_batch), k, at[-1])]
        return te.sum(left(one) * right(other), axis=k)

    attributes = {"product": 1, "outer_axes": rank}
    return te.compute((*batch, m, n), element, name="matrix_product", attrs=attributes)


def depthwise(
    x: te.Tensor,
    weight: te.Tensor,
    window: Window,
    left: Callable[[Expr], Expr],
    right: Callable[[Expr], Expr],
    dtype: str,
) -> te.Tensor:
    """Depthwise convolution; weight is [kh, kw, channels * multiplier]; padding adds nothing."""
    channels, outputs = extents(x)[3], extents(weight)[2]
    multiplier = outputs // channels

    def term(load: Expr, kh: Expr, kw: Expr, c: Expr) -> Expr:
        return left(load) * right(weight[kh, kw, c])

    return _over_window(
        x, window, outputs, multiplier, term, te.sum, tirx.const(0, dtype), "depthwise"
    )


def pool(
    x: te.Tensor, window: Window, kind: str, dtype: str, value: Callable[[Expr], Expr]
) -> te.Tensor:
    """The maximum or the sum of `value(x)` in each window, in `dtype`; padding never counts."""
    if kind == "max":
        # From minus infinity, or a window of nothing else would give the lowest number.
        floats = dtype.startswith("float")
        neutral = tirx.const(-math.inf, dtype) if floats else tirx.min_value(dtype)
        reducer = te.comm_reducer(lambda a, b: tirx.max(a, b), lambda _dtype: neutral, name="max")
    else:
        reducer, neutral = te.sum, tirx.const(0, dtype)
    return _over_window(
        x,
        window,
        extents(x)[3],
        1,
        lambda load, _kh, _kw, _c: value(load),
        reducer,
        neutral,
        f"{kind}_pool",
    )


def _over_window(
    x: te.Tensor,
    window: Window,
    channels: int,
    multiplier: int,
    term: Callable[[Expr, Expr, Expr, Expr], Expr],
    reducer: Callable[..., Expr],
    neutral: Expr,
    name: str,
) -> te.Tensor:
    batch, height, width, _depth = extents(x)
    top, left, _bottom, _right = window.pads
    kh, kw = (
        te.reduce_axis((0, window.kernel[0]), "kh"),
        te.reduce_axis((0, window.kernel[1]), "kw"),
    )
    rows, columns = window.output(height, width)

    def element(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        row, column = window.at(h, w, kh, kw)
        source = c if multiplier == 1 else tirx.floordiv(c, multiplier)
        value = term(x[n, row - top, column - left, source], kh, kw, c)
        if any(window.pads):
            inside = tirx.all(row >= top, row < height + top, column >= left, column < width + left)
            value = tirx.if_then_else(inside, value, neutral)
        return reducer(value, axis=[kh, kw])

    attributes = {"neutral_padding": 1}
    shape = (batch, rows, columns, channels)
    return te.compute(shape, element, name=name, attrs=attributes)
