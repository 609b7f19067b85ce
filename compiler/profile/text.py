"""The profile for a terminal: every operator with its time, and where the time goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.compiler.report_text import shorten, table

_HEADINGS = ("operator", "kind", "on", "us", "share", "cycles", "x bound", "MACs busy", "DRAM KiB")
_RIGHT = range(3, len(_HEADINGS))


def profile_table(report: Mapping[str, Any], macs_per_cycle: int | None) -> list[str]:
    """Lines: one an operator, in the order they run, then those that take most of the time."""
    operators = report["operators"]
    total = sum(row["time_us"] or 0 for row in operators) or 1.0
    rows = [_cells(row, total, macs_per_cycle) for row in operators]
    lines = table(_HEADINGS, rows, _RIGHT)
    slowest = sorted(operators, key=lambda row: -(row["time_us"] or 0))[:5]
    share = sum(row["time_us"] or 0 for row in slowest) / total
    names = ", ".join(shorten(str(row["name"])) for row in slowest)
    return [*lines, "", f"{share:.0%} of the operators' time: {names}"]


def _cells(row: Mapping[str, Any], total: float, macs_per_cycle: int | None) -> list[str]:
    cycles, bound, microseconds = row["cycles"], row["bound_cycles"], row["time_us"] or 0.0
    busy = ""
    if cycles and row["macs"] and macs_per_cycle:
        busy = f"{min(1.0, row['macs'] / (cycles * macs_per_cycle)):.0%}"
    return [
        shorten(str(row["name"])),
        str(row.get("op", "")),
        str(row["device"]),
        f"{microseconds:,.2f}",
        f"{microseconds / total:.1%}",
        "" if cycles is None else f"{cycles:,}",
        "" if (ratio := over_bound(cycles, bound)) is None else f"{ratio:.2f}",
        busy,
        "" if row["dram_bytes"] is None else f"{row['dram_bytes'] / 1024:,.1f}",
    ]


def over_bound(cycles: int | None, bound: int | None) -> float | None:
    """What an operator adds to the time over its bound; None where it has no bound of its own.

    An operator whose loads hide under those before it adds less than its bound alone: there only
    the whole network's ratio says something.
    """
    return cycles / bound if cycles and bound and cycles >= bound else None
