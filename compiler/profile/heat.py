"""Ten minutes of continuous load: how warm the NPU gets, and how slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.compiler.power import load_of
from tilewright.targets.groups import Npu
from tilewright.targets.thermal import State, course

_SECONDS = 600.0
_SHOWN = (0, 60, 120, 300, 600)


def heat_course(npu: Npu | None, totals: Mapping[str, Any]) -> list[State]:
    """One state a second; none for a board without [npu.thermal], or a network off the NPU."""
    if npu is None or npu.thermal is None or not totals.get("cycles"):
        return []
    return list(course(npu.thermal, load_of(npu, totals), _SECONDS, int(_SECONDS)))


def heat_lines(states: Sequence[State]) -> list[str]:
    """Latency and temperature at some times, for a terminal."""
    return [
        f"after {state.seconds:3.0f} s of continuous load {state.latency_seconds * 1e3:.3f} ms at "
        f"{state.temperature_c:.1f} C, clock {state.clock:.0%}"
        for state in (states[second] for second in _SHOWN if states)
    ]


def heat_chart(states: Sequence[State]) -> str:
    """A panel with both curves over time; empty without states."""
    if not states:
        return ""
    latency = [state.latency_seconds * 1e3 for state in states]
    temperature = [state.temperature_c for state in states]
    return (
        "<h2>Heat: ten minutes of continuous load</h2>\n<div class='panel charts'>"
        + _curve("latency, ms", latency, "#5b8def", ".3f")
        + _curve("temperature, °C", temperature, "#e0654f", ".1f")
        + "</div>"
    )


def _curve(name: str, values: Sequence[float], colour: str, form: str) -> str:
    low, high = min(values), max(values)
    height = high - low or 1.0
    points = " ".join(
        f"{1000 * index / (len(values) - 1):.1f},{95 - 90 * (value - low) / height:.2f}"
        for index, value in enumerate(values)
    )
    return (
        f"<div><div class='name'>{name}: {values[0]:{form}} to {values[-1]:{form}}</div>"
        f"<svg viewBox='0 0 1000 100' preserveAspectRatio='none' height='110' class='curve'>"
        f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='2' "
        "vector-effect='non-scaling-stroke'/></svg>"
        "<div class='axis'><span>0</span><span>5 min</span><span>10 min</span></div></div>"
    )
