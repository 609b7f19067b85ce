"""What a network draws and how warm that makes the NPU: rows of the report's totals, modelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.targets.backend import EnergyParts
from tilewright.targets.groups import Npu
from tilewright.targets.thermal import Load, settle, unthrottled_duty


def power_totals(
    npu: Npu, energy: EnergyParts, macs: int, npu_seconds: float, seconds: float
) -> dict[str, Any]:
    """Energy of one inference in uJ, by part; idle power counts over all of `seconds`.

    `macs` and `npu_seconds` are the NPU's share of the network; the CPU's draw is not described.
    """
    idle = npu.energy.idle_mw * 1e3 * seconds
    parts = EnergyParts(energy.mac, energy.sram, energy.dram, idle)
    achieved = 2 * macs / npu_seconds / 1e12
    return {
        "energy_uj": {**vars(parts), "total": parts.total},
        "average_power_mw": parts.total / seconds / 1e3,
        "peak_tops": npu.peak_tops,
        "achieved_tops": achieved,
        "tops_per_w": 2 * macs / parts.total / 1e6 if parts.total else None,
        "thermal": _thermal(npu, parts, npu_seconds, seconds),
    }


def load_of(npu: Npu, totals: Mapping[str, Any]) -> Load:
    """One inference as a load, from a report's totals."""
    energy = totals["energy_uj"]
    npu_seconds = totals["cycles"] / (npu.clock_mhz * 1e6)
    switching = (energy["total"] - energy["idle"]) * 1e-6
    other = totals["latency_ms"] / 1e3 - npu_seconds
    return Load(npu_seconds, other, switching, npu.energy.idle_mw / 1e3)


def _thermal(
    npu: Npu, parts: EnergyParts, npu_seconds: float, seconds: float
) -> dict[str, float] | None:
    """Where a continuous load settles; None for a description without [npu.thermal]."""
    if npu.thermal is None:
        return None
    switching = (parts.total - parts.idle) * 1e-6
    load = Load(npu_seconds, seconds - npu_seconds, switching, npu.energy.idle_mw / 1e3)
    settled = settle(npu.thermal, load)
    return {
        "settled_latency_ms": settled.latency_seconds * 1e3,
        "settled_c": settled.temperature_c,
        "settled_clock_percent": settled.clock * 100,
        "unthrottled_duty_percent": unthrottled_duty(npu.thermal, load) * 100,
    }
