"""Which bias correction, method and clipping a model is better off with: whatever measures best.

The bias is corrected first, because the shift that rounded weights cause can hide everything else
(on EfficientNet-Lite0 it is 7 dB); ranges are then compared with what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tilewright.compiler.quantize.bias_correction import bias_shifts
from tilewright.compiler.quantize.evaluate import Evaluation
from tilewright.compiler.quantize.observe import Observations
from tilewright.compiler.quantize.plan import Plan
from tilewright.compiler.quantize.ranges import METHODS, Range, choose_range

REFINED_TENSORS = 8  # whose method is chosen one by one
GAIN_DB = 0.05  # less is noise
CLIPPING_GAIN_DB = 1.0  # what a range that clips must gain: other data than this may need it all
CLIPPING_ONE_DB = 0.5  # the same for one tensor of many

Ranges = dict[str, Range]


def ranges_by(method: str, observations: Observations, percentile: float) -> Ranges:
    """The range of every tensor by one method."""
    return {
        name: choose_range(observation.histogram, method, percentile)
        for name, observation in observations.items()
    }


@dataclass
class Choice:
    """Picks the best plan and says in `said` what it measured.

    `correct_bias`: None decides by measuring.
    """

    observations: Observations
    evaluation: Evaluation
    percentile: float
    correct_bias: bool | None
    said: list[str] = field(default_factory=list)

    def best(self, plan: Plan, method: str) -> Plan:
        """`plan`, whose ranges are those of minmax or of `method`, repaired and refined."""
        plan = self._with_bias(plan)
        if method != "auto":
            return plan
        ranges = {m: ranges_by(m, self.observations, self.percentile) for m in METHODS}
        plan, score = self._with_method(plan, ranges)
        plan, score = self._with_clipped_weights(plan, score)
        return self._refined(plan, score, ranges)

    def _with_bias(self, plan: Plan) -> Plan:
        if self.correct_bias is False:
            return plan
        corrected = self._corrected(plan)
        if self.correct_bias:
            return corrected
        before, after = self.evaluation.decibels(plan), self.evaluation.decibels(corrected)
        helps = after > before + GAIN_DB
        self.said.append(
            f"bias correction{'' if helps else ' left out'}: {after:.2f} dB, {before:.2f} without"
        )
        return corrected if helps else plan

    def _corrected(self, plan: Plan) -> Plan:
        return replace(plan, bias_shift=bias_shifts(plan, self.observations))

    def _with_method(self, plan: Plan, ranges: Mapping[str, Ranges]) -> tuple[Plan, float]:
        plans = {method: replace(plan, ranges=ranges[method]) for method in METHODS}
        scores = {method: self.evaluation.decibels(plans[method]) for method in METHODS}
        best = max(METHODS, key=lambda method: scores[method])
        if scores[best] < scores["minmax"] + CLIPPING_GAIN_DB:
            best = "minmax"
        self.said.append(f"method {best}: " + ", ".join(f"{m} {scores[m]:.2f} dB" for m in METHODS))
        return plans[best], scores[best]

    def _with_clipped_weights(self, plan: Plan, score: float) -> tuple[Plan, float]:
        clipped = replace(plan, least_error_weights=True)
        if plan.bias_shift:
            clipped = self._corrected(replace(clipped, bias_shift={}))
        found = self.evaluation.decibels(clipped)
        if found <= score + GAIN_DB:
            return plan, score
        self.said.append(f"weights clipped: {found:.2f} dB, {score:.2f} without")
        return clipped, found

    def _refined(self, plan: Plan, score: float, ranges: Mapping[str, Ranges]) -> Plan:
        """Another method for the tensors that methods disagree on most, where it helps."""
        leaders = [name for name in plan.units.tensors() if name in plan.ranges]
        widest = {name: max(ranges[m][name].width for m in METHODS) for name in leaders}
        narrowest = {name: min(ranges[m][name].width for m in METHODS) for name in leaders}
        leaders.sort(key=lambda name: narrowest[name] / widest[name] if widest[name] else 1.0)
        for name in leaders[:REFINED_TENSORS]:
            for method in METHODS:
                other = ranges[method][name]
                if other == plan.ranges[name]:
                    continue
                tried = plan.with_range(name, other)
                found = self.evaluation.decibels(tried)
                clips = other.width < plan.ranges[name].width
                if found > score + (CLIPPING_ONE_DB if clips else GAIN_DB):
                    self.said.append(f"{name}: {method}, {found:.2f} dB, {score:.2f} without")
                    plan, score = tried, found
        return plan
