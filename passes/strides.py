"""Where the elements of a view lie: byte arithmetic of offset and strides, free of any IR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Address:
    """Element (i, j, ...) lies at byte offset + i * strides[0] + j * strides[1] ... of a buffer."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @property
    def bytes(self) -> int:
        """What a dense copy would take."""
        return prod(self.shape) * self.itemsize

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie side by side in order; an offset does not matter."""
        expected = dense(self.shape, self.itemsize).strides
        pairs = zip(self.shape, self.strides, expected, strict=True)
        return prod(self.shape) == 0 or all(e == 1 or s == d for e, s, d in pairs)

    @property
    def has_adjacent_channels(self) -> bool:
        """Whether the last axis is contiguous and no axis runs backwards."""
        last = not self.shape or self.shape[-1] == 1 or self.strides[-1] == self.itemsize
        return last and all(stride >= 0 for stride in self.strides)


def dense(shape: Sequence[int], itemsize: int) -> Address:
    """The address of a row-major tensor at the start of its own buffer."""
    strides = [itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return Address(0, tuple(shape), tuple(strides), itemsize)


def permuted(source: Address, order: Sequence[int]) -> Address:
    """Axis i of the result is axis order[i] of the source."""
    return Address(
        source.offset,
        tuple(source.shape[axis] for axis in order),
        tuple(source.strides[axis] for axis in order),
        source.itemsize,
    )


def sliced(
    source: Address, begins: Sequence[int], shape: Sequence[int], steps: Sequence[int]
) -> Address:
    """`shape` elements an axis, from `begins` on, `steps` apart."""
    start = sum(begin * stride for begin, stride in zip(begins, source.strides, strict=True))
    strides = tuple(stride * step for stride, step in zip(source.strides, steps, strict=True))
    return Address(source.offset + start, tuple(shape), strides, source.itemsize)


def reshaped(source: Address, shape: Sequence[int]) -> Address | None:
    """The same elements in another shape; None when no strides can express that.

    Runs of source axes that follow each other in memory act as one axis; each axis of the result
    must lie inside one such run.
    """
    if prod(source.shape) == 0:
        return Address(
            source.offset, tuple(shape), dense(shape, source.itemsize).strides, source.itemsize
        )
    runs = _runs(source)
    strides: list[int] = []
    extent, stride = runs.pop(0) if runs else (1, source.itemsize)
    for size in shape:
        if size == 1:
            strides.append(stride)
            continue
        if extent == 1 and runs:
            extent, stride = runs.pop(0)
        if extent % size:
            return None
        extent //= size
        strides.append(stride * extent)
    return Address(source.offset, tuple(shape), tuple(strides), source.itemsize)


def _runs(source: Address) -> list[tuple[int, int]]:
    """(elements, stride) of each group of axes that act as one, outermost first."""
    runs: list[tuple[int, int]] = []
    for extent, stride in zip(source.shape, source.strides, strict=True):
        if extent == 1:
            continue
        if runs and runs[-1][1] == extent * stride:
            runs[-1] = (runs[-1][0] * extent, stride)
        else:
            runs.append((extent, stride))
    return runs
