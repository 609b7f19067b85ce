"""A schedule as a short list of choices: what a search varies and a tuning record keeps.

Choices with `plan_choices` give the same plan every time; what they leave open is decided as in an
untuned plan. As text they are JSON with sorted keys, so that equal choices are equal texts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from tilewright.schedules.npu.planning import Chain, plan_steps
from tilewright.schedules.npu.region_plan import RegionPlan
from tilewright.schedules.npu.tiling import Tile
from tilewright.targets.description import Npu
from tilewright.targets.operators import Region

_NAMES = ("name", "onnx_nodes")  # of what a schedule does not depend on


@dataclass(frozen=True)
class Choices:
    """Arguments of `plan_steps`: chains, latencies, buffers that do not stay, demanded tiles."""

    chains: tuple[Chain, ...] = ()
    latencies: int = 4
    spilled: tuple[str, ...] = ()
    tiles: Mapping[int, Tile] = field(default_factory=dict)

    def to_text(self) -> str:
        facts = {
            "chains": [asdict(chain) for chain in self.chains],
            "latencies": self.latencies,
            "spilled": sorted(self.spilled),
            "tiles": {str(index): list(self.tiles[index]) for index in sorted(self.tiles)},
        }
        return json.dumps(facts, sort_keys=True)

    @staticmethod
    def from_text(text: str) -> Choices:
        facts = json.loads(text)
        return Choices(
            tuple(
                Chain(one["first"], one["last"], tuple(one["cuts"]), one["skewed"])
                for one in facts["chains"]
            ),
            facts["latencies"],
            tuple(facts["spilled"]),
            {int(index): Tile(*tile) for index, tile in facts["tiles"].items()},
        )


def plan_choices(region: Region, npu: Npu, choices: Choices) -> RegionPlan:
    """The plan; raises TilewrightError where a choice does not fit."""
    return plan_steps(
        region, npu, choices.chains, choices.latencies, choices.spilled, choices.tiles
    )


def workload_digest(region: Region) -> str:
    """Regions with one digest take the same choices: all but names and the values of constants."""
    facts = [_facts(region.operators), region.inputs, region.outputs, region.buffer_bytes]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _facts(value: Any) -> Any:
    """Plain data for JSON; of an array its type and shape, of a float nothing: both are values."""
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape)]
    if isinstance(value, float | np.floating):
        return "float"
    if isinstance(value, tuple | list):
        return [_facts(one) for one in value]
    if is_dataclass(value):
        kept = [one.name for one in fields(value) if one.name not in _NAMES]
        return [type(value).__name__, {name: _facts(getattr(value, name)) for name in kept}]
    return value if value is None or isinstance(value, bool | str) else int(value)
