"""The range of a tensor's values that its int8 form should cover.

A `Histogram` is filled as values come, in one pass and constant memory, whatever their range turns
out to be; a method then picks the range to keep:

    minmax      everything that was seen
    percentile  all but a small share of the values at either end
    mse         least mean squared error of rounding inside and clipping outside
    entropy     least Kullback-Leibler divergence between the values and their quantised form
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 8192
METHODS = ("minmax", "percentile", "mse", "entropy")
PERCENTILE = 99.99
CANDIDATES = 40  # shares of the range that mse and entropy choose from
LEVELS = 256
COARSE = 4  # bins taken together where candidates are priced

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Range:
    """Values from `low` to `high`; zero is always inside, since padding and ReLU give zeros."""

    low: float
    high: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", min(self.low, 0.0))
        object.__setattr__(self, "high", max(self.high, 0.0))

    @property
    def width(self) -> float:
        return self.high - self.low

    def joined(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


@dataclass
class Histogram:
    """Counts of values in bins of one width, a power of two, with an edge at zero.

    A value beyond the last bin makes every pair of bins one, which needs no value seen before.
    """

    low: float = math.inf
    high: float = -math.inf
    bin_width: float = 0.0
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    not_finite: int = 0

    def add(self, values: NDArray[Any]) -> None:
        """Count `values`; what is not finite is counted apart."""
        flat = np.asarray(values, np.float64).reshape(-1)
        finite = np.isfinite(flat)
        if not finite.all():
            self.not_finite += int((~finite).sum())
            flat = flat[finite]
        if not flat.size:
            return
        self.low, self.high = min(self.low, float(flat.min())), max(self.high, float(flat.max()))
        self._widen()
        if self.bin_width == 0.0:
            self.counts[BINS // 2] += flat.size
            return
        places = np.floor(flat / self.bin_width).astype(np.int64) + BINS // 2
        self.counts += np.bincount(places, minlength=BINS)

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    @property
    def seen(self) -> Range:
        return Range(self.low, self.high) if self.total else Range(0.0, 0.0)

    @property
    def centres(self) -> Vector:
        """The middle of every bin; exact zeros, which ReLU makes many of, lie beside it."""
        return np.asarray((np.arange(BINS) - BINS // 2 + 0.5) * self.bin_width, np.float64)

    def _widen(self) -> None:
        largest = max(abs(self.low), abs(self.high))
        if largest == 0.0:
            return
        needed = 2.0 ** (math.floor(math.log2(largest)) + 1) / (BINS // 2)
        if self.bin_width == 0.0:
            self.bin_width = needed
        while self.bin_width < needed:
            pairs = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.zeros(BINS, np.int64)
            self.counts[BINS // 4 : BINS // 4 + BINS // 2] = pairs
            self.bin_width *= 2


def choose_range(histogram: Histogram, method: str, percentile: float = PERCENTILE) -> Range:
    """The range `method` keeps; one of METHODS."""
    seen = histogram.seen
    if method == "minmax" or seen.width == 0.0:
        return seen
    if method == "percentile":
        return _percentile(histogram, percentile)
    if method == "mse":
        return _least(histogram, _squared_error)
    assert method == "entropy", method
    return _least(histogram, _divergence)


def _percentile(histogram: Histogram, percentile: float) -> Range:
    share = (1 - percentile / 100) * histogram.total
    below = np.cumsum(histogram.counts)
    above = np.cumsum(histogram.counts[::-1])[::-1]
    edges = (np.arange(BINS + 1) - BINS // 2) * histogram.bin_width
    low = edges[int(np.argmax(below > share))]
    high = edges[BINS - int(np.argmax(above[::-1] > share))]
    return Range(max(float(low), histogram.low), min(float(high), histogram.high))


def _least(histogram: Histogram, cost: Any) -> Range:
    """The candidate of least cost: both ends shrunk together, then each alone."""
    best = histogram.seen
    least = cost(histogram, best)
    for ends in ((True, True), (True, False), (False, True)):
        start = best
        for share in np.linspace(1.0, 1.0 / CANDIDATES, CANDIDATES)[1:]:
            low = start.low * share if ends[0] else start.low
            high = start.high * share if ends[1] else start.high
            candidate = Range(float(low), float(high))
            found = cost(histogram, candidate)
            if found < least:
                best, least = candidate, found
    return best


def _occupied(histogram: Histogram) -> tuple[Vector, Vector]:
    """Middles and counts of the bins that hold values, in groups of COARSE."""
    counts = histogram.counts.reshape(-1, COARSE).sum(axis=1)
    centres = histogram.centres.reshape(-1, COARSE).mean(axis=1)
    return centres[counts > 0], counts[counts > 0].astype(np.float64)


def _without_zeros(values: Vector, counts: Vector) -> Vector:
    """The spike at zero, which ReLU makes and every scale holds exactly, cut to its neighbour."""
    zero = int(np.argmin(np.where(values > 0, values, np.inf)))
    trimmed = counts.copy()
    if zero + 1 < len(counts):
        trimmed[zero] = min(counts[zero], counts[zero + 1])
    return trimmed


def _squared_error(histogram: Histogram, kept: Range) -> float:
    """Rounding is uniform noise inside, where a step is wider than a bin; clipping is exact."""
    values, counts = _occupied(histogram)
    if kept.width == 0.0:
        return float((counts * values**2).sum())
    outside = values - np.clip(values, kept.low, kept.high)
    step = kept.width / (LEVELS - 1)
    return float((counts * (outside**2 + (outside == 0) * step**2 / 12)).sum())


def _divergence(histogram: Histogram, kept: Range) -> float:
    """KL divergence from the clipped distribution to its 256-level form, spread over its bins."""
    values, counts = _occupied(histogram)
    if kept.width < LEVELS * COARSE * histogram.bin_width:
        return math.inf  # fewer bins than levels: any form would look exact
    counts = _without_zeros(values, counts)
    inside = (values >= kept.low) & (values <= kept.high)
    if not inside.any():
        return math.inf
    reference = counts[inside].copy()
    reference[0] += counts[values < kept.low].sum()
    reference[-1] += counts[values > kept.high].sum()
    levels = np.rint((values[inside] - kept.low) / kept.width * (LEVELS - 1)).astype(np.int64)
    mass = np.bincount(levels, weights=counts[inside], minlength=LEVELS)
    bins = np.bincount(levels, minlength=LEVELS)
    spread = mass[levels] / bins[levels]
    p, q = reference / reference.sum(), spread / spread.sum()
    return float((p * np.log(p / q)).sum())
