"""What measurements teach about the error of the expected cycles, by boosted trees (XGBoost).

The trees learn log(measured / expected) from what a plan does: its transfers, passes and bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import xgboost

from tilewright.schedules.npu.region_plan import RegionPlan
from tilewright.schedules.npu.schedule import expected_cycles

_ENOUGH = 16  # measurements before anything is learned
_EVERY = 8  # new ones until the trees are grown again
_ROUNDS = 40


@dataclass
class Correction:
    """Grows with every measurement; deterministic."""

    rows: list[list[float]] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    _trees: xgboost.Booster | None = None

    def add(self, plan: RegionPlan, cycles: int) -> None:
        row = features(plan)
        self.rows.append(row)
        self.errors.append(math.log(cycles / row[0]))
        if len(self.rows) >= _ENOUGH and len(self.rows) % _EVERY == 0:
            settings = {"max_depth": 4, "eta": 0.2, "nthread": 1, "seed": 0, "base_score": 0.0}
            known = xgboost.DMatrix(np.array(self.rows), np.array(self.errors))
            self._trees = xgboost.train(settings, known, _ROUNDS)

    def expected(self, plan: RegionPlan) -> float:
        """Cycles by formula, times what was learned."""
        row = features(plan)
        if self._trees is None:
            return row[0]
        return row[0] * math.exp(float(self._trees.predict(xgboost.DMatrix(np.array([row])))[0]))


def features(plan: RegionPlan) -> list[float]:
    """The expected cycles first."""
    steps = plan.operators
    tiles = [
        math.ceil(step.work.output.height / step.tiling.rows)
        * math.ceil(step.work.output.width / step.tiling.columns)
        * math.ceil(step.work.output.channels / step.tiling.channels)
        for step in steps
    ]
    return [
        expected_cycles(plan),
        sum(step.cycles for step in steps),
        len(steps),
        sum(tiles),
        max(tiles, default=0),
        sum(step.image is not None for step in steps),
        sum(one.nbytes for one in plan.spilled),
        len(plan.residents),
        plan.sram_bytes,
        plan.transfer_bytes,
    ]
