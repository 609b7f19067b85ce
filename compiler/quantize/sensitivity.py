"""Which layers lose the accuracy, and the fewest to keep in float so that little is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tqdm import tqdm

from tilewright.compiler.quantize.evaluate import Evaluation
from tilewright.compiler.quantize.plan import Plan


@dataclass(frozen=True)
class Harm:
    """Signal to noise of the outputs, in dB, when `unit` alone is quantised: less is worse."""

    unit: str
    decibels: float


def rank_layers(plan: Plan, evaluation: Evaluation, *, progress: bool = False) -> list[Harm]:
    """Every unit that computes, the most harmful first."""
    names = [unit.name for unit in plan.units.units]
    harms = []
    for name in tqdm(names, desc="sensitivity", disable=None if progress else True, leave=False):
        others = frozenset(names) - {name}
        harms.append(Harm(name, evaluation.decibels(plan.keeping_in_float(others))))
    return sorted(harms, key=lambda harm: harm.decibels)


def fewest_in_float(
    plan: Plan, ranked: list[Harm], drop: Callable[[Plan], float], limit: float
) -> Plan:
    """`plan` with as few layers in float as keep `drop` within `limit`.

    Layers are freed in the order of their harm, by doubling and halving; then each is put back
    unless it is needed. Without any within the limit all of them stay in float.
    """
    names = [harm.unit for harm in ranked]
    if drop(plan) <= limit:
        return plan

    def suffices(kept: Iterable[str]) -> bool:
        return drop(plan.keeping_in_float(frozenset(kept))) <= limit

    count = _least_count(len(names), lambda most: suffices(names[:most]))
    kept = set(names[:count])
    for name in reversed(names[:count]):
        if suffices(kept - {name}):
            kept.remove(name)
    return plan.keeping_in_float(frozenset(kept))


def _least_count(most: int, suffices: Callable[[int], bool]) -> int:
    """The least count found by doubling, then halving between the last two."""
    low, high = 0, 1
    while high < most and not suffices(high):
        low, high = high, high * 2
    high = min(high, most)
    while high - low > 1:
        middle = (low + high) // 2
        if suffices(middle):
            high = middle
        else:
            low = middle
    return high
