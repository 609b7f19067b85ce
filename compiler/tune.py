"""Tune a model's NPU regions in turn, every trial recorded as soon as it is done."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from tilewright.compiler.compile import Options, scheduled_regions
from tilewright.schedules.npu.backend import TiledBackend
from tilewright.schedules.npu.bounds import network_work
from tilewright.schedules.npu.choices import workload_digest
from tilewright.schedules.npu.tune import RegionSearch
from tilewright.schedules.tuning_db import Record, TuningDb, TuningError, schedules_version
from tilewright.targets.description import Npu, Target


@dataclass(frozen=True)
class Budget:
    """Trials a region, or seconds in all, whichever ends first; None: no limit."""

    trials: int | None
    seconds: float | None


@dataclass
class TunedRegion:
    """`known` trials were on record before, `failed` ones gave an error."""

    name: str
    untuned_cycles: int | None
    best_cycles: int | None
    bound_cycles: int
    trials: int = 0
    known: int = 0
    failed: int = 0


def tune_model(
    model: str | Path, target: Target, options: Options, db: Path, budget: Budget, seed: int
) -> list[TunedRegion]:
    """What was found, by region; raises TuningError if nothing could be measured."""
    if target.npu is None:
        raise TuningError(f"{target.name}: has no NPU to tune for; choose a target with one")
    with TuningDb(db, create=True) as records:
        regions = list(scheduled_regions(model, target, options).values())
        if any(not isinstance(one.backend, TiledBackend) for one in regions):
            raise TuningError(f"{target.name}: its backend cannot be tuned; choose another target")
        if not regions:
            raise TuningError(f"{model}: nothing of it runs on the NPU; there is nothing to tune")
        searches = []
        for one in regions:
            digest = workload_digest(one.region)
            found = records.records(digest, target.npu.digest.hex(), schedules_version())
            measured = {record.choices: (record.cycles, record.error) for record in found}
            search = RegionSearch(one.region, target.npu, seed, measured)
            bound = network_work(one.region.operators, target.npu).bound_cycles(target.npu)
            searches.append((search, digest, TunedRegion(one.region.name, None, None, bound)))
        _run(searches, target.npu, records, budget, seed, options.progress)
    tuned = [result for _, _, result in searches]
    if all(result.best_cycles is None for result in tuned):
        raise TuningError(f"{model}: no trial could be measured; {db} holds the errors")
    return tuned


def _run(
    searches: Sequence[tuple[RegionSearch, str, TunedRegion]],
    npu: Npu,
    records: TuningDb,
    budget: Budget,
    seed: int,
    progress: bool,
) -> None:
    """One trial of each region in turn until the budget is used or nothing new is found."""
    end = None if budget.seconds is None else time.monotonic() + budget.seconds
    total = None if budget.trials is None else budget.trials * len(searches)
    waiting = list(searches)
    with tqdm(total=total, disable=None if progress else True, unit="trial") as bar:
        while waiting:
            for entry in list(waiting):
                search, digest, result = entry
                done = budget.trials is not None and result.trials >= budget.trials
                if done or (end is not None and time.monotonic() >= end):
                    waiting.remove(entry)
                    continue
                trial = search.trial()
                if trial is None:
                    waiting.remove(entry)
                    continue
                if not trial.known:
                    records.add(
                        Record(
                            digest, npu.digest.hex(), schedules_version(), trial.choices,
                            trial.cycles, trial.error, "simulator", seed,
                        )
                    )  # fmt: skip
                result.trials += 1
                result.known += trial.known
                result.failed += trial.cycles is None
                result.best_cycles = search.best_cycles
                if result.trials == 1:
                    result.untuned_cycles = trial.cycles
                bar.update()
                bar.set_postfix_str(_standing(searches))


def _standing(searches: Sequence[tuple[RegionSearch, str, TunedRegion]]) -> str:
    """The best so far, and how far it is from the bound."""
    best = sum(result.best_cycles or 0 for _, _, result in searches)
    bound = sum(result.bound_cycles for _, _, result in searches)
    return f"best {best} cycles, {best / max(bound, 1):.3f} of the bound"
