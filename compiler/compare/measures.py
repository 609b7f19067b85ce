"""How far two computations of one tensor are apart, in the numbers that show why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.compiler.quantize.evaluate import decibels

Array = NDArray[Any]
SHOWN_CHANNELS = 3
SATURATED_SHARE = 0.01
SCALE_GAIN_DB = 10.0  # how much better one factor must make things to be the cause
MATCH_DB = 20.0  # rearranged values that agree so well were rearranged
NARROW = 16.0  # a channel this many times narrower than the tensor has few of its values


@dataclass(frozen=True)
class Measures:
    """Of `found` against `expected`; channels are (index, share of the squared error)."""

    cosine: float
    largest: float
    sqnr: float
    channels: tuple[tuple[int, float], ...]


def measure(found: Array, expected: Array) -> Measures:
    """Compare two arrays of one shape in float64."""
    ours, theirs = found.astype(np.float64), expected.astype(np.float64)
    difference = ours - theirs
    lengths = float(np.sqrt((ours**2).sum() * (theirs**2).sum()))
    same = float((difference**2).sum()) == 0.0
    cosine = float((ours * theirs).sum()) / lengths if lengths else float(same)
    return Measures(
        1.0 if same else cosine,
        float(np.abs(difference).max(initial=0.0)),
        sqnr(ours, theirs),
        _worst_channels(difference),
    )


def sqnr(found: Array, expected: Array) -> float:
    """Signal to noise in dB."""
    wide = expected.astype(np.float64)
    return decibels(float((wide**2).sum()), float(((found - wide) ** 2).sum()))


def channel_axis(rank: int) -> int:
    """Where channels lie: axis 1 of images and of matrices, else the last."""
    return 1 if rank in (2, 4, 5) else rank - 1


def by_channel(values: Array) -> Array:
    """channels x everything else."""
    axis = channel_axis(values.ndim)
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)


def hint(found: Array, expected: Array, levels: tuple[float, float] | None) -> str:
    """What the numbers point to, in one line; `levels` are the ends of the quantised range."""
    ours, theirs = found.astype(np.float64), expected.astype(np.float64)
    checks = (_rearranged(ours, theirs), _scaled(ours, theirs), _saturated(ours, theirs, levels))
    for text in (*checks, _narrow_channels(ours, theirs)):
        if text:
            return text
    return "no single cause: the range may come from unlike calibration data"


def _worst_channels(difference: Array) -> tuple[tuple[int, float], ...]:
    if difference.ndim < 2 or not difference.any():
        return ()
    energy = (by_channel(difference) ** 2).sum(axis=1)
    order = np.argsort(-energy, kind="stable")[:SHOWN_CHANNELS]
    return tuple((int(c), float(energy[c] / energy.sum())) for c in order if energy[c] > 0)


def _scaled(ours: Array, theirs: Array) -> str:
    energy = float((ours**2).sum())
    if energy == 0.0:
        return "scale: all values are zero" if theirs.any() else ""
    factor = float((ours * theirs).sum()) / energy
    better = sqnr(ours * factor, theirs) - sqnr(ours, theirs)
    if better < SCALE_GAIN_DB or abs(factor - 1) < 0.05:
        return ""
    return f"scale: the values are {1 / factor:.3g} times the reference's" if factor else ""


def _saturated(ours: Array, theirs: Array, levels: tuple[float, float] | None) -> str:
    if levels is None:
        return ""
    outside = (theirs < levels[0]) | (theirs > levels[1])
    # A ReLU's own limit is no saturation: there the reference stops as well.
    share = float(outside.mean()) if outside.size else 0.0
    if share < SATURATED_SHARE:
        return ""
    return (
        f"saturation: {100 * share:.1f} % of the reference's values lie outside "
        f"{levels[0]:.4g} to {levels[1]:.4g}; calibrate with data like this"
    )


def _rearranged(ours: Array, theirs: Array) -> str:
    if ours.ndim == 4:
        for axes, words in (((0, 1, 3, 2), "height and width"), ((0, 2, 3, 1), "NCHW and NHWC")):
            other = np.ascontiguousarray(theirs.transpose(axes)).reshape(ours.shape)
            if _matches(ours, other, theirs):
                return f"layout: the values match when {words} are swapped"
        inverse = np.ascontiguousarray(theirs.transpose(0, 3, 1, 2)).reshape(ours.shape)
        if _matches(ours, inverse, theirs):
            return "layout: the values match when NCHW and NHWC are swapped"
    return _permuted(ours, theirs)


def _matches(ours: Array, other: Array, theirs: Array) -> bool:
    found = sqnr(ours, other)
    return found > MATCH_DB and found > sqnr(ours, theirs) + SCALE_GAIN_DB


def _permuted(ours: Array, theirs: Array) -> str:
    if ours.ndim < 2:
        return ""
    mine, other = by_channel(ours), by_channel(theirs)
    if len(mine) > 4096 or mine.shape[1] < 2:
        return _same_values(ours, theirs)
    distance = (mine**2).sum(1)[:, None] + (other**2).sum(1)[None] - 2 * mine @ other.T
    order = distance.argmin(axis=1)
    moved = np.flatnonzero(order != np.arange(len(order)))
    if not moved.size or not _matches(mine, other[order], other):
        return ""
    first = int(moved[0])
    return f"channels permuted: {moved.size} of them, channel {first} holds {int(order[first])}'s"


def _same_values(ours: Array, theirs: Array) -> str:
    if _matches(np.sort(ours.reshape(-1)), np.sort(theirs.reshape(-1)), theirs):
        return "order: the values are the reference's in another order"
    return ""


def _narrow_channels(ours: Array, theirs: Array) -> str:
    if theirs.ndim < 2:
        return ""
    widths = np.ptp(by_channel(theirs), axis=1)
    widest = float(widths.max(initial=0.0))
    noisy = by_channel(ours - theirs)
    if not widest or not noisy.any():
        return ""
    signal = (by_channel(theirs) ** 2).sum(1)
    lost = ((noisy**2).sum(1) > 0.1 * signal) & (widths > 0) & (widths * NARROW < widest)
    if not lost.any():
        return ""
    return (
        f"per-tensor scale: {int(lost.sum())} channels are {NARROW:.0f} times narrower than the "
        "widest; equalise, or quantise weights by channel"
    )
