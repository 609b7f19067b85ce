"""Windows and tiles as plain arithmetic: which input an output range needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def split(extent: int, size: int) -> Iterator[tuple[int, int]]:
    """0..extent in ranges of `size`, the last one shorter."""
    for start in range(0, extent, size):
        yield start, min(start + size, extent)


@dataclass(frozen=True)
class Window:
    """One axis of a convolution or pooling: `extent` elements, padded by `before` and `after`."""

    extent: int
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0

    @property
    def reach(self) -> int:
        """Elements one window spans."""
        return self.dilation * (self.kernel - 1) + 1

    def needed(self, outputs: int) -> int:
        """Elements that `outputs` adjacent windows span, padding included."""
        return (outputs - 1) * self.stride + self.reach

    def covered(self, low: int, high: int) -> Covered:
        """The input range that outputs low..high read and the padding around it.

        Where all windows lie in the padding the range is one element that no tap reaches.
        """
        start = low * self.stride - self.before
        end = start + self.needed(high - low)
        if start >= self.extent:
            return Covered(self.extent - 1, self.extent, end - start, 0)
        first, last = max(start, 0), min(end, self.extent)
        last = max(last, first + 1)
        padding_after = min(max(end - self.extent, 0), self.after)
        return Covered(first, last, first - start, padding_after)


@dataclass(frozen=True)
class Covered:
    """Input elements low..high, with `before` and `after` elements of padding."""

    low: int
    high: int
    before: int
    after: int
