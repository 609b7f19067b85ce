"""A board's measured times beside the simulator's, operator by operator."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.compiler.report_text import shorten, table
from tilewright.targets.errors import ProfileError

_NAME, _TIME = "name", "time_us"


@dataclass(frozen=True)
class Disagreement:
    name: str
    modelled_us: float
    measured_us: float

    @property
    def difference_us(self) -> float:
        return self.measured_us - self.modelled_us


def read_measured(path: Path) -> dict[str, float]:
    """Microseconds by operator from a CSV file with the columns name and time_us.

    An operator measured several times counts by its median. Raises ProfileError.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in (_NAME, _TIME) if name not in (reader.fieldnames or ())]
            if missing:
                raise ProfileError(
                    f"{path}: has no column {missing[0]}; write a header line name,time_us"
                )
            times: dict[str, list[float]] = {}
            for line, row in enumerate(reader, start=2):
                times.setdefault(row[_NAME], []).append(_number(row[_TIME], f"{path}:{line}"))
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: cannot be read: {error}") from None
    return {name: sorted(values)[len(values) // 2] for name, values in times.items()}


def compare(
    operators: Sequence[Mapping[str, Any]], measured: Mapping[str, float]
) -> list[Disagreement]:
    """One for each operator that was measured, the largest difference first.

    Raises ProfileError for a measured name that the model does not have.
    """
    modelled = {str(row["name"]): row["time_us"] or 0.0 for row in operators}
    for name in measured:
        if name not in modelled:
            near = difflib.get_close_matches(name, modelled, 1)
            hint = f"did you mean {near[0]}?" if near else "`tilewright profile` lists the names"
            raise ProfileError(f"{name}: is measured, but no operator of the artifact; {hint}")
    found = [Disagreement(name, modelled[name], measured[name]) for name in measured]
    return sorted(found, key=lambda one: -abs(one.difference_us))


def comparison_table(found: Sequence[Disagreement], operators: int) -> list[str]:
    """Lines: both times of each, the totals, and the largest disagreements by name."""
    rows = [
        [
            shorten(one.name),
            f"{one.modelled_us:,.2f}",
            f"{one.measured_us:,.2f}",
            f"{one.difference_us:+,.2f}",
            f"{one.measured_us / one.modelled_us:.2f}" if one.modelled_us else "-",
        ]
        for one in found
    ]
    modelled, measured = (
        sum(one.modelled_us for one in found),
        sum(one.measured_us for one in found),
    )
    lines = table(
        ("operator", "modelled us", "measured us", "difference", "ratio"), rows, range(1, 5)
    )
    largest = [one for one in found if abs(one.difference_us) > 0.1 * one.modelled_us][:3]
    names = "; ".join(
        f"{one.name} {one.difference_us:+,.2f} us of {measured - modelled:+,.2f} us in all"
        for one in largest
    )
    return [
        *lines,
        "",
        f"{len(found)} of {operators} operators measured: {measured:,.2f} us, modelled "
        f"{modelled:,.2f} us",
        f"largest disagreements: {names}" if names else "no operator disagrees by more than 10 %",
    ]


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        raise ProfileError(f"{where}: {text!r} is no time; write microseconds, as 12.5") from None
    if not 0 <= value < float("inf"):
        raise ProfileError(f"{where}: {text} us is no time an operator can take")
    return value
