"""The tables of docs/benchmarks-cpu.md, from times that were measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

OURS = "Tilewright"
ONNXRUNTIME = ("onnxruntime", "onnxruntime, set")
RUNTIMES = (OURS, *ONNXRUNTIME, "OpenVINO")
MISS = 1.1  # ours over the best of the others, from which on a network counts as missed


@dataclass(frozen=True)
class Row:
    """One network at one number of threads.

    `milliseconds` are medians by runtime; one that could not run the model is absent.
    `others` is how many CPUs other processes kept busy meanwhile. `agreement` says how ours
    compares with what it must equal; `costliest` names our operator that takes longest, where
    that was looked at.
    """

    network: str
    threads: int
    milliseconds: Mapping[str, float]
    first_over_second: float
    others: float
    agreement: str
    costliest: str = ""

    @property
    def over_best(self) -> float:
        """Our time over that of the fastest other runtime."""
        return self.milliseconds[OURS] / min(
            time for runtime, time in self.milliseconds.items() if runtime != OURS
        )

    @property
    def over_onnxruntime(self) -> float:
        return self.milliseconds[OURS] / min(self.milliseconds[name] for name in ONNXRUNTIME)

    @property
    def misses(self) -> bool:
        return self.over_best > MISS


def geometric_mean(ratios: Iterable[float]) -> float:
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logarithms) / len(logarithms))


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, times in milliseconds."""
    heads = (
        "network",
        "threads",
        *RUNTIMES,
        "ours / best",
        "first / second call",
        "others",
        "agreement",
    )
    lines = [_line((*heads, "costs most")), _line(["---"] * (len(heads) + 1))]
    for row in rows:
        times = (_milliseconds(row.milliseconds.get(runtime)) for runtime in RUNTIMES)
        ratio = f"**{row.over_best:.2f}**" if row.misses else f"{row.over_best:.2f}"
        figures = (ratio, f"{row.first_over_second:.2f}", f"{row.others:.1f}")
        cells = (row.network, str(row.threads), *times, *figures, row.agreement, row.costliest)
        lines.append(_line(cells))
    return "\n".join(lines) + "\n"


def summary(rows: Sequence[Row]) -> str:
    """Geometric means by number of threads, and the networks that miss."""
    lines = []
    for threads in sorted({row.threads for row in rows}):
        chosen = [row for row in rows if row.threads == threads]
        best = geometric_mean(row.over_best for row in chosen)
        alone = geometric_mean(row.over_onnxruntime for row in chosen)
        misses = ", ".join(row.network for row in chosen if row.misses) or "none"
        busy = statistics.median(row.others for row in chosen)
        lines.append(
            f"- {threads} thread{'s' * (threads > 1)}, {len(chosen)} rows: geometric mean of "
            f"ours / best {best:.2f}, of ours / onnxruntime {alone:.2f}; "
            f"above {MISS}: {misses}; other processes kept {busy:.1f} CPUs busy (median)"
        )
    return "\n".join(lines) + "\n"


def _milliseconds(time: float | None) -> str:
    return "-" if time is None else f"{time:.3g}" if time < 100 else f"{time:.0f}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
