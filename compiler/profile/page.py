"""report.html: the profile as one file that needs nothing else, for any browser."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from tilewright.compiler.profile.heat import heat_chart
from tilewright.compiler.profile.text import over_bound
from tilewright.targets.thermal import State

_FOLDER = Path(__file__).parent
_LANES = ("cpu", "crossing", "dma_in", "mac", "vector", "dma_out")
_LANE_HEIGHT = 26
_HEADINGS = (
    ("operator", ""), ("kind", ""), ("on", ""), ("time, us", "n"), ("share", "n"), ("cycles", "n"),
    ("bound", "n"), ("x bound", "n"), ("MACs busy", "n"), ("DRAM, KiB", "n"), ("energy, uJ", "n"),
)  # fmt: skip


def profile_page(
    title: str,
    target: str,
    report: Mapping[str, Any],
    macs_per_cycle: int | None,
    states: Sequence[State] = (),
) -> str:
    """The whole page; `report` is what report.json holds, `states` its course under load."""
    template = Template((_FOLDER / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=html.escape(title),
        target=html.escape(target),
        cards="\n".join(_cards(report["totals"])),
        timeline=_timeline(report["timeline"], report["operators"]),
        legend="\n".join(f'<div class="lane">{lane}</div>' for lane in _lanes(report["timeline"])),
        heat=heat_chart(states),
        headings="".join(f'<th class="{kind}">{name}</th>' for name, kind in _HEADINGS),
        rows="\n".join(_rows(report["operators"], macs_per_cycle)),
    )


def _cards(totals: Mapping[str, Any]) -> Iterator[str]:
    yield _card("latency", f"{totals['latency_ms']:.3f} ms", "modelled")
    if totals.get("cycles"):
        ratio = totals["cycles"] / totals["bound_cycles"]
        bound = f"{ratio:.2f} x the bound of {totals['bound_cycles']:,}"
        yield _card("NPU", f"{totals['cycles']:,} cycles", bound)
        busy = f"{totals['mac_utilization']:.0%} of {totals['peak_tops']:.4g} TOPS peak"
        yield _card("speed", f"{totals['achieved_tops']:.3g} TOPS", busy)
        energy = totals["energy_uj"]
        parts = ", ".join(f"{name} {energy[name]:.3g}" for name in ("mac", "sram", "dram", "idle"))
        yield _card("energy", f"{energy['total']:.4g} uJ", parts)
        efficiency = totals["tops_per_w"]
        note = f"{efficiency:.3g} TOPS/W" if efficiency else "the NPU alone"
        yield _card("power", f"{totals['average_power_mw']:.4g} mW", note)
    thermal = totals.get("thermal")
    if thermal:
        note = (
            f"at {thermal['settled_c']:.0f} °C; never slowed up to "
            f"{thermal['unthrottled_duty_percent']:.0f} % duty"
        )
        yield _card("settled latency", f"{thermal['settled_latency_ms']:.3f} ms", note)
    weights = f"and {totals['weight_bytes'] / 1024:,.1f} KiB of weights"
    yield _card("arena", f"{totals['arena_bytes'] / 1024:,.1f} KiB", weights)


def _card(name: str, value: str, note: str) -> str:
    return (
        f'<div class="card"><div class="name">{name}</div><div class="value">{value}</div>'
        f'<div class="note">{html.escape(note)}</div></div>'
    )


def _lanes(timeline: Sequence[Mapping[str, Any]]) -> list[str]:
    used = {span["lane"] for span in timeline}
    return [*(lane for lane in _LANES if lane in used), *sorted(used.difference(_LANES))]


def _timeline(timeline: Sequence[Mapping[str, Any]], operators: Sequence[Mapping[str, Any]]) -> str:
    """One rectangle a span; x runs from 0 to 1000 over the whole time."""
    lanes = _lanes(timeline)
    end = max((span["end_us"] for span in timeline), default=0) or 1.0
    shapes = []
    for span in timeline:
        x, width = 1000 * span["start_us"] / end, 1000 * (span["end_us"] - span["start_us"]) / end
        y = _LANE_HEIGHT * lanes.index(span["lane"]) + 3
        name = "hand-over" if span["operator"] is None else operators[span["operator"]]["name"]
        shapes.append(
            f'<rect x="{x:.3f}" y="{y}" width="{max(width, 0.02):.3f}" height="{_LANE_HEIGHT - 6}" '
            f'fill="{_colour(span["operator"])}"><title>{html.escape(str(name))}, {span["lane"]}: '
            f"{span['start_us']:,.2f} to {span['end_us']:,.2f} us</title></rect>"
        )
    height = _LANE_HEIGHT * len(lanes)
    return (
        f'<svg viewBox="0 0 1000 {height}" preserveAspectRatio="none" height="{height}">'
        f"{''.join(shapes)}</svg><div class='axis'><span>0</span><span>{end / 2:,.1f} us</span>"
        f"<span>{end:,.1f} us</span></div>"
    )


def _rows(operators: Sequence[Mapping[str, Any]], macs_per_cycle: int | None) -> Iterator[str]:
    total = sum(row["time_us"] or 0 for row in operators) or 1.0
    longest = max((row["time_us"] or 0 for row in operators), default=0) or 1.0
    for index, row in enumerate(operators):
        cycles, bound, taken = row["cycles"], row["bound_cycles"], row["time_us"] or 0.0
        busy = None
        if cycles and row["macs"] and macs_per_cycle:
            busy = min(1.0, row["macs"] / (cycles * macs_per_cycle))
        name = html.escape(str(row["name"]))
        reason = html.escape(str(row.get("reason") or ""))
        yield (
            f'<tr><td><i style="background:{_colour(index)}"></i>{name}</td>'
            f"<td>{html.escape(str(row.get('op', '')))}</td>"
            f'<td class="{row["device"]}" title="{reason}">{row["device"]}</td>'
            f"{_number(taken, ',.2f')}"
            f'<td class="n" data-value="{taken}"><b style="width:{60 * taken / longest:.1f}px"></b>'
            f"{taken / total:.1%}</td>"
            f"{_number(cycles, ',d')}{_number(bound, ',d')}"
            f"{_number(over_bound(cycles, bound), '.2f')}"
            f"{_number(busy, '.0%')}"
            f"{_number(_kib(row['dram_bytes']), ',.1f')}{_number(row['energy_uj'], ',.3f')}</tr>"
        )


def _kib(count: int | None) -> float | None:
    return None if count is None else count / 1024


def _number(value: float | None, form: str) -> str:
    shown = "" if value is None else format(value, form)
    return f'<td class="n" data-value="{-1 if value is None else value}">{shown}</td>'


def _colour(operator: int | None) -> str:
    """Far apart for neighbours: steps of the golden angle."""
    if operator is None:
        return "#9aa3ad"
    return f"hsl({operator * 137.5 % 360:.0f} 55% 55%)"
