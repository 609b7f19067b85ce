"""Set two artifacts of one model side by side, as after an upgrade: outputs, devices, figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.compiler.artifact import Artifact
from tilewright.compiler.artifact.arguments import describe_ports, random_inputs
from tilewright.compiler.report_text import table
from tilewright.targets.errors import ArtifactError

_FIGURES = ("latency_ms", "cycles", "arena_bytes", "weight_bytes", "crossings")


@dataclass(frozen=True)
class Limits:
    """What may have changed; None: anything."""

    latency_percent: float | None = None  # longer
    memory_percent: float | None = None  # more arena, weights, flash or RAM
    output_difference: float | None = None  # of any element
    moved: int | None = None  # ONNX nodes that run on the other device


@dataclass(frozen=True)
class OutputDifference:
    name: str
    differing: int
    elements: int
    largest: float


@dataclass(frozen=True)
class Differences:
    outputs: list[OutputDifference]
    moved: dict[str, tuple[str, str]]  # ONNX node: device before and after
    figures: dict[str, tuple[float | None, float | None]]
    versions: dict[str, tuple[str, str]] = field(default_factory=dict)

    def exceeding(self, limits: Limits) -> list[str]:
        """A sentence for each limit that is exceeded."""
        return [*self._grown(limits), *self._changed(limits)]

    def _grown(self, limits: Limits) -> Iterator[str]:
        for name, (before, after) in self.figures.items():
            limit = limits.latency_percent if name in ("latency_ms", "cycles") else None
            if name.endswith("bytes"):
                limit = limits.memory_percent
            if limit is None or before is None or after is None:
                continue
            percent = _percent(before, after)
            if percent > limit:
                yield f"{name} grew by {percent:.1f} %, allowed are {limit:g} %"

    def _changed(self, limits: Limits) -> Iterator[str]:
        for output in self.outputs:
            allowed = limits.output_difference
            if allowed is not None and not output.largest <= allowed:
                yield f"output {output.name} differs by {output.largest:g}, allowed is {allowed:g}"
        if limits.moved is not None and len(self.moved) > limits.moved:
            first = next(iter(self.moved))
            yield f"{len(self.moved)} nodes moved, {first} first; allowed are {limits.moved}"


def compare_artifacts(old: Artifact, new: Artifact, seeds: Sequence[int]) -> Differences:
    """Raises ArtifactError where the two do not take the same inputs and give the same outputs."""
    _check_comparable(old, new)
    return Differences(
        outputs=list(_outputs(old, new, seeds)),
        moved=_moved(old.report, new.report),
        figures=_figures(old.report, new.report),
        versions={
            name: (before, after)
            for name, before in old.manifest["versions"].items()
            if (after := new.manifest["versions"].get(name, "none")) != before
        },
    )


def differences_text(differences: Differences) -> str:
    """For a terminal."""
    lines = [f"{name}: {was} -> {now}" for name, (was, now) in differences.versions.items()]
    lines += [
        f"output {one.name}: "
        + (
            f"{one.differing:,} of {one.elements:,} elements differ, by {one.largest:g} at most"
            if one.differing
            else "the same bits"
        )
        for one in differences.outputs
    ]
    lines += [f"{node}: {was} -> {now}" for node, (was, now) in differences.moved.items()]
    rows = [
        (name, _number(before), _number(after), _change(before, after))
        for name, (before, after) in differences.figures.items()
    ]
    return "\n".join([*lines, "", *table(("figure", "old", "new", "change"), rows, (1, 2, 3))])


def _check_comparable(old: Artifact, new: Artifact) -> None:
    for kind in ("inputs", "outputs"):
        before, after = (describe_ports(one.manifest[kind]) for one in (old, new))
        if before != after:
            raise ArtifactError(
                f"{new.directory}: its {kind} are {after}, {old.directory} has {before}; "
                "compare artifacts of one model"
            )


def _outputs(old: Artifact, new: Artifact, seeds: Sequence[int]) -> Iterator[OutputDifference]:
    runs = []
    for seed in seeds:
        inputs = random_inputs(old.manifest, seed)
        runs.append((old.run(inputs), new.run(inputs)))
    for port in old.manifest["outputs"]:
        name = port["name"]
        before = np.stack([run[name] for run, _ in runs])
        after = np.stack([run[name] for _, run in runs])
        unequal = ~((before == after) | _both_nan(before, after))
        gaps = np.abs(before.astype(np.float64) - after.astype(np.float64))[unequal]
        largest = float(np.nan_to_num(gaps, nan=np.inf).max()) if gaps.size else 0.0
        yield OutputDifference(name, int(unequal.sum()), unequal.size, largest)


def _both_nan(before: Any, after: Any) -> Any:
    if before.dtype.kind != "f":
        return False
    return np.isnan(before) & np.isnan(after)


def _moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    before, after = _devices(old), _devices(new)
    return {
        node: (device, after.get(node, "gone"))
        for node, device in before.items()
        if after.get(node, "gone") != device
    } | {node: ("none", device) for node, device in after.items() if node not in before}


def _devices(report: Mapping[str, Any]) -> dict[str, str]:
    return {
        str(node): str(row["device"]) for row in report["operators"] for node in row["onnx_nodes"]
    }


def _figures(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> dict[str, tuple[float | None, float | None]]:
    figures = {name: (old["totals"].get(name), new["totals"].get(name)) for name in _FIGURES}
    for kind in ("flash", "ram"):
        figures[f"{kind}_bytes"] = (_linked(old, kind), _linked(new, kind))
    return {name: pair for name, pair in figures.items() if pair != (None, None)}


def _linked(report: Mapping[str, Any], kind: str) -> float | None:
    linked = report["memory"]["linked"]
    return float(linked[kind]) if linked else None


def _percent(before: float, after: float) -> float:
    if before == after:
        return 0.0
    return 100 * (after - before) / before if before else float("inf")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.4f}" if isinstance(value, float) and value % 1 else f"{value:,.0f}"


def _change(before: float | None, after: float | None) -> str:
    return "" if before is None or after is None else f"{_percent(before, after):+.1f} %"
