"""How far two computations of one tensor may be apart, and how far they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FLOAT_LIMIT = 1e-4  # of the largest magnitude, or of 1
QUANTISED_MEAN_LIMIT = 0.01  # of the expected values' range
ONE_STEP = 1.0  # where a value is quantised once between two tensors


@dataclass(frozen=True)
class Agreement:
    """`distance` is the largest or the mean difference, `limit` the most it may be."""

    tensor: str
    nodes: tuple[str, ...]  # what computes it from the nearest tensors that were compared
    distance: float
    limit: float
    differing: int
    elements: int

    @property
    def holds(self) -> bool:
        return self.distance <= self.limit

    def __str__(self) -> str:
        return (
            f"{self.tensor}: {self.differing} of {self.elements} elements differ, "
            f"{self.distance:.3g} where {self.limit:.3g} is allowed"
        )


def agree(
    name: str, nodes: tuple[str, ...], found: Array, expected: Array, roundings: int | None
) -> Agreement:
    """`roundings`: how often values were quantised on the way here; None in a float model.

    `found` may have other axes of length one than `expected`, never another order.
    """
    wanted = expected.astype(np.float64).reshape(found.shape)
    difference = _difference(found.astype(np.float64), wanted)
    distance, limit = _judge(difference, wanted, expected.dtype, roundings)
    return Agreement(name, nodes, distance, limit, int(np.count_nonzero(difference)), found.size)


def _difference(found: Array, wanted: Array) -> Array:
    """Equal infinities and two NaN agree; a NaN against a number is as far away as can be."""
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    with np.errstate(invalid="ignore"):
        difference = np.abs(found - wanted)
    return np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))


def _judge(
    difference: Array, wanted: Array, dtype: np.dtype[Any], roundings: int | None
) -> tuple[float, float]:
    """The distance that counts, and how large it may be."""
    if not difference.size:
        return 0.0, 0.0
    largest = float(difference.max())
    finite = wanted[np.isfinite(wanted)]
    if dtype.kind in "iu" and roundings is not None and roundings <= 1:
        return largest, ONE_STEP * roundings
    if roundings:
        extent = float(np.ptp(finite)) if finite.size else 0.0
        return float(difference.mean()), QUANTISED_MEAN_LIMIT * extent
    if dtype.kind in "iub":
        return largest, 0.0
    return largest, FLOAT_LIMIT * max(1.0, float(np.abs(finite).max(initial=0)))
