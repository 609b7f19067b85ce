"""The report as text for a terminal: where every operator runs, and each figure by its bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_NAME_WIDTH = 44


@dataclass(frozen=True)
class _Column:
    heading: str
    text: Callable[[Mapping[str, Any]], str]
    of_npu: bool = False  # a number that only the NPU's operators have


def summary(report: Mapping[str, Any]) -> str:
    """The table of operators, then the totals. `report` is what report.json holds."""
    lines = [*_operator_table(report["operators"]), "", *_totals(report["totals"])]
    lines += _memory(report.get("memory", {}))
    for note in report.get("notes", ()):
        lines.append(_note(note))
    return "\n".join(lines)


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]
) -> list[str]:
    """Lines in columns as wide as their widest cell; the columns `right` end flush."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (headings, *rows)
    ]


def _operator_table(operators: Sequence[Mapping[str, Any]]) -> list[str]:
    """A model that uses no NPU has no cycles to show."""
    on_npu = sum(row["device"] == "npu" for row in operators)
    where = f"{on_npu} on the NPU, {len(operators) - on_npu} on the CPU"
    columns = _COLUMNS if on_npu else [column for column in _COLUMNS if not column.of_npu]
    heading = f"{len(operators)} operators: {where}"
    if on_npu:
        heading += "; cycles: what it adds to the simulated whole, bound: the least it takes alone"
    rows = [[column.text(row) for column in columns] for row in operators]
    right = [index for index, column in enumerate(columns) if column.of_npu]
    return [heading, *table([column.heading for column in columns], rows, right)]


def _totals(totals: Mapping[str, Any]) -> list[str]:
    """One line a figure that the report has, with how it was come by."""
    rows = [
        ("NPU time", _figure(totals, "cycles", "cycles simulated", "bound_cycles")),
        ("roofline", _figure(totals, "roofline_cycles", "cycles by formula")),
        ("latency", _milliseconds(totals.get("latency_ms"))),
        ("arena", _figure(totals, "arena_bytes", "bytes planned", "arena_bound_bytes")),
        ("weights", _figure(totals, "weight_bytes", "bytes stored")),
        ("work", _figure(totals, "macs", "MACs counted")),
        ("MAC array", _percent(totals.get("mac_utilization"))),
        ("crossings", _figure(totals, "crossings", "between CPU and NPU")),
        ("speed", _speed(totals)),
        ("energy", _energy(totals)),
        ("heat", _heat(totals.get("thermal"))),
    ]
    return [f"{name:<10} {text}" for name, text in rows if text]


def _memory(memory: Mapping[str, Any]) -> list[str]:
    """Flash and RAM of the board, part by part; a part that no compiler has made is left out."""
    lines = []
    for kind, heading in (("flash", "flash"), ("ram", "RAM")):
        parts = {name: size for name, size in memory.get(kind, {}).items() if size}
        text = ", ".join(f"{name} {_count(size)}" for name, size in parts.items())
        linked = memory.get("linked")
        total = f"{_count(linked[kind])} bytes linked: " if linked else "not linked: "
        if parts:
            lines.append(f"{heading:<10} {total}{text}")
    return lines


def _figure(totals: Mapping[str, Any], key: str, unit: str, bound: str = "") -> str:
    value, least = totals.get(key), totals.get(bound)
    if value is None:
        return ""
    text = f"{_count(value)} {unit}"
    if not least:
        return text
    return f"{text}, bounded below by {_count(least)} ({value / least:.2f} x)"


def _speed(totals: Mapping[str, Any]) -> str:
    peak, achieved = totals.get("peak_tops"), totals.get("achieved_tops")
    if not peak or achieved is None:
        return ""
    return f"{achieved:.3g} of {peak:.4g} TOPS while the NPU runs, simulated"


def _energy(totals: Mapping[str, Any]) -> str:
    """The NPU's own; what the CPU draws is not described."""
    energy = totals.get("energy_uj")
    if not energy:
        return ""
    parts = ", ".join(f"{name} {energy[name]:,.4g}" for name in ("mac", "sram", "dram", "idle"))
    text = f"{energy['total']:,.4g} uJ on the NPU ({parts}), {totals['average_power_mw']:.4g} mW"
    efficiency = totals.get("tops_per_w")
    return f"{text}, {efficiency:.3g} TOPS/W, simulated" if efficiency else f"{text}, simulated"


def _heat(thermal: Mapping[str, float] | None) -> str:
    if not thermal:
        return ""
    settled = (
        f"a continuous load settles at {thermal['settled_latency_ms']:.3f} ms and "
        f"{thermal['settled_c']:.1f} C"
    )
    duty = thermal["unthrottled_duty_percent"]
    rest = "" if duty >= 100 else f"; busy at most {duty:.0f} % of the time it is never slowed"
    return f"{settled}{rest}, modelled"


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f} ms modelled"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} % busy, simulated"


def _count(value: float | None) -> str:
    return "-" if value is None else f"{round(value):,}"


def _note(note: Mapping[str, Any]) -> str:
    """What kind of note, then its facts in the report's own words."""
    facts = ", ".join(f"{key} {value}" for key, value in note.items() if key != "kind")
    return f"{note['kind']}: {facts}" if "kind" in note else facts


def shorten(name: str) -> str:
    """ONNX names differ at their ends, so the beginning is what goes."""
    return name if len(name) <= _NAME_WIDTH else f"...{name[-_NAME_WIDTH + 3 :]}"


_COLUMNS = [
    _Column("operator", lambda row: shorten(str(row["name"]))),
    _Column("kind", lambda row: str(row.get("op", ""))),
    _Column("on", lambda row: str(row["device"])),
    _Column("cycles", lambda row: _count(row.get("cycles")), of_npu=True),
    _Column("bound", lambda row: _count(row.get("bound_cycles")), of_npu=True),
    _Column("why on the CPU", lambda row: str(row.get("reason") or "")),
]
