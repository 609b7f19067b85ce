"""What is suspicious about a calibration set, and about a second set beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.compiler.quantize.observe import Observations
from tilewright.compiler.quantize.ranges import Range

FEW_SAMPLES = 32


@dataclass(frozen=True)
class Departure:
    """How far a second set leaves the range of a tensor: `beyond` is a share of the range."""

    tensor: str
    calibrated: Range
    seen: Range
    clipped: float  # share of the second set's values that saturate

    @property
    def beyond(self) -> float:
        excess = max(self.calibrated.low - self.seen.low, self.seen.high - self.calibrated.high, 0)
        return excess / self.calibrated.width if self.calibrated.width else float(excess > 0)

    def __str__(self) -> str:
        return (
            f"{self.tensor}: {self.seen.low:.4g} to {self.seen.high:.4g} where "
            f"{self.calibrated.low:.4g} to {self.calibrated.high:.4g} was calibrated, "
            f"{100 * self.clipped:.2f} % of the values saturate"
        )


def warnings_about(
    inputs: Observations, samples: int, declared: Mapping[str, tuple[float, float]]
) -> list[str]:
    """One line each; `declared` is what the user says an input's range is."""
    found = []
    if samples < FEW_SAMPLES:
        found.append(f"calibration has {samples} samples; ranges settle with {FEW_SAMPLES} or more")
    for name, observation in inputs.items():
        histogram = observation.histogram
        if histogram.low == histogram.high:
            found.append(f"{name}: every value is {histogram.low:.6g}; real inputs vary")
        if name not in declared:
            continue
        low, high = declared[name]
        width = high - low
        if histogram.low < low or histogram.high > high:
            found.append(
                f"{name}: values from {histogram.low:.4g} to {histogram.high:.4g} leave the "
                f"declared range {low:.4g} to {high:.4g}; is the preprocessing right?"
            )
        elif histogram.high - histogram.low < 0.25 * width:
            found.append(
                f"{name}: values from {histogram.low:.4g} to {histogram.high:.4g} use little of "
                f"the declared range {low:.4g} to {high:.4g}; is the preprocessing right?"
            )
    return found


def departures(
    ranges: Mapping[str, Range], second: Observations, threshold: float = 0.0
) -> list[Departure]:
    """Tensors that a second set takes out of their calibrated range, the furthest first."""
    found = []
    for name, observation in second.items():
        kept, histogram = ranges[name], observation.histogram
        if not histogram.total:
            continue
        outside = (histogram.centres < kept.low) | (histogram.centres > kept.high)
        clipped = float(histogram.counts[outside].sum()) / histogram.total
        departure = Departure(name, kept, histogram.seen, clipped)
        if departure.beyond > threshold:
            found.append(departure)
    return sorted(found, key=lambda departure: -departure.beyond)
