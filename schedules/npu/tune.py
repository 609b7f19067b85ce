"""Search for a better schedule of one region: vary its choices, price, simulate the best.

Each trial varies the best choices so far in several ways, plans them, takes the one whose expected
cycles, corrected by what the measurements so far have taught (`Correction`), are least, and
simulates it. What has a race or other outputs than the untuned schedule counts as failed. The
first trial is the untuned schedule, so that the best is never worse. With one seed the trials are
the same every time; those whose measurement is on record are not simulated again, by which a
search that was killed goes on where it was.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.schedules.memory.plan import Buffer, plan
from tilewright.schedules.npu.chains import can_chain, count_readers
from tilewright.schedules.npu.choices import Choices, plan_choices
from tilewright.schedules.npu.correction import Correction
from tilewright.schedules.npu.hazards import find_races
from tilewright.schedules.npu.planning import Chain
from tilewright.schedules.npu.region_plan import RegionPlan
from tilewright.schedules.npu.schedule import emit, plan_first
from tilewright.schedules.npu.tiling import find_candidates
from tilewright.schedules.npu.work import describe
from tilewright.targets import isa
from tilewright.targets.description import Npu
from tilewright.targets.errors import TilewrightError
from tilewright.targets.operators import Region
from tilewright.targets.simulator import Simulator

_PROPOSALS = 3  # planned for each that is simulated
_ATTEMPTS = 30  # to find them
_HOPEFUL_TILES = 24
_LATENCIES = (1, 2, 4, 8, 16, 32)
_HEIGHTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_LONGEST_CHAIN = 8


@dataclass(frozen=True)
class Trial:
    """What came of choices: cycles or the error that came instead; `known` if from the record."""

    choices: str
    cycles: int | None
    error: str | None
    known: bool


@dataclass
class RegionSearch:
    """`measured` are the results on record, by the text of the choices."""

    region: Region
    npu: Npu
    seed: int
    measured: Mapping[str, tuple[int | None, str | None]]
    best_cycles: int | None = None
    _best: Choices = field(default_factory=Choices)
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.correction = Correction()
        untuned, chains, latencies = plan_first(self.region, self.npu, depth_first=True)
        self._first = Choices(chains, latencies)
        self._untuned = self._outputs(untuned)[1]
        self._readers = count_readers(self.region)
        self._plan = untuned

    def trial(self) -> Trial | None:
        """The next trial; None where no new choices are found."""
        choices = self._first if not self._seen else self._propose()
        if choices is None:
            return None
        text = choices.to_text()
        self._seen.add(text)
        if text in self.measured:
            cycles, error = self.measured[text]
            return self._learn(choices, Trial(text, cycles, error, True))
        try:
            return self._learn(choices, Trial(text, self._measure(choices), None, False))
        except Exception as error:
            # Whatever a candidate breaks, the search goes on without it.
            return Trial(text, None, f"{type(error).__name__}: {error}", False)

    def _learn(self, choices: Choices, trial: Trial) -> Trial:
        if trial.cycles is not None:
            made = plan_choices(self.region, self.npu, choices)
            self.correction.add(made, trial.cycles)
            if self.best_cycles is None or trial.cycles < self.best_cycles:
                self.best_cycles, self._best, self._plan = trial.cycles, choices, made
        return trial

    def _measure(self, choices: Choices) -> int:
        cycles, outputs = self._outputs(plan_choices(self.region, self.npu, choices))
        if outputs != self._untuned:
            raise TilewrightError(f"{self.region.name}: its outputs differ from the untuned ones")
        return cycles

    def _outputs(self, made: RegionPlan) -> tuple[int, list[bytes]]:
        """Cycles, and every output for the same random inputs."""
        offsets, arena_bytes = _place_buffers(made)
        emission = emit(made, offsets, 0)
        if find_races(emission.stream, self.npu.channel_alignment):
            raise TilewrightError(f"{self.region.name}: two accesses are in no settled order")
        arena = np.zeros(arena_bytes, np.uint8)
        data = np.random.default_rng(0)
        sizes = self.region.buffer_bytes
        for name in self.region.inputs:
            arena[offsets[name] :][: sizes[name]] = data.integers(0, 256, sizes[name], np.uint8)
        run = Simulator(self.npu).run(isa.encode(emission.stream), made.constants, arena)
        outputs = [arena[offsets[name] :][: sizes[name]] for name in self.region.outputs]
        return run.cycles, [output.tobytes() for output in outputs]

    def _propose(self) -> Choices | None:
        """Of some new variations that can be planned the one expected to be fastest."""
        found: list[tuple[float, Choices]] = []
        for _ in range(_ATTEMPTS):
            choices = self._best
            for _ in range(self.chance.choice((1, 1, 2))):
                choices = self.chance.choice(self._variations)(choices)
            text = choices.to_text()
            if text in self._seen or choices in [other for _, other in found]:
                continue
            try:
                made = plan_choices(self.region, self.npu, choices)
            except (TilewrightError, ValueError, AssertionError):
                self._seen.add(text)  # it cannot be planned; nothing was measured
                continue
            found.append((self.correction.expected(made), choices))
            if len(found) == _PROPOSALS:
                break
        return min(found, key=lambda pair: pair[0])[1] if found else None

    @property
    def _variations(self) -> list[Callable[[Choices], Choices]]:
        return [
            self._vary_tile, self._vary_tile, self._vary_spilled, self._vary_chains,
            self._vary_latencies,
        ]  # fmt: skip

    def _vary_latencies(self, choices: Choices) -> Choices:
        return replace(choices, latencies=self.chance.choice(_LATENCIES))

    def _vary_spilled(self, choices: Choices) -> Choices:
        """One buffer more, or one less, that does not stay."""
        names = sorted({*self._plan.residents, *choices.spilled} & {*self.region.buffer_bytes})
        if not names:
            return choices
        changed = set(choices.spilled) ^ {self.chance.choice(names)}
        return replace(choices, spilled=tuple(sorted(changed)))

    def _vary_tile(self, choices: Choices) -> Choices:
        """One of an operator's cheapest tiles, or again its own choice."""
        owner = self.chance.randrange(len(self.region.operators))
        tiles = {index: tile for index, tile in choices.tiles.items() if index != owner}
        if owner not in choices.tiles or self.chance.random() < 0.7:
            step = self._plan.owners.index(owner)
            residency = self._plan.operators[step].residency
            work = describe(self.region.operators[owner], self.npu)
            if len(residency.inputs) == len(work.operator.inputs):
                candidates = find_candidates(work, self.npu, residency, True)
                hopeful = candidates.hopeful(self.npu.sram_bytes, _HOPEFUL_TILES)
                if hopeful:
                    tiles[owner] = self.chance.choice(hopeful)
        return replace(choices, tiles=tiles)

    def _vary_chains(self, choices: Choices) -> Choices:
        """Drop, skew or cut a chain otherwise, or run other operators in stripes."""
        chains = list(choices.chains)
        if chains and self.chance.random() < 0.6:
            old = chains.pop(self.chance.randrange(len(chains)))
            kind = self.chance.randrange(3)
            if kind == 0:
                chains.append(replace(old, skewed=not old.skewed))
            elif kind == 1:
                chains.append(self._cut(old.first, old.last, old.skewed))
        else:
            count = len(self.region.operators)
            first = self.chance.randrange(count)
            last = min(first + self.chance.randint(2, _LONGEST_CHAIN), count)
            if last - first < 2 or not can_chain(self.region, first, last, self._readers):
                return choices
            chains = [one for one in chains if one.last <= first or last <= one.first]
            chains.append(self._cut(first, last, self.chance.random() < 0.5))
        return replace(choices, chains=tuple(sorted(chains, key=lambda chain: chain.first)))

    def _cut(self, first: int, last: int, skewed: bool) -> Chain:
        rows = self.region.operators[last - 1].output.height
        height = self.chance.choice([one for one in _HEIGHTS if one <= max(rows // 2, 1)])
        return Chain(first, last, (*range(0, rows, height), rows), skewed)


def _place_buffers(made: RegionPlan) -> tuple[dict[str, int], int]:
    """An arena for the region alone: its inputs and outputs all the time, what it spills."""
    region, last = made.region, max(made.owners, default=0)
    buffers = [
        Buffer(name, region.buffer_bytes[name], 0, last)
        for name in dict.fromkeys((*region.inputs, *region.outputs))
    ]
    buffers += [
        Buffer(one.buffer, one.nbytes, one.first_operator, one.last_operator)
        for one in made.spilled
    ]
    placed = plan(buffers, max(64, made.npu.memory.burst_bytes), effort=0)
    return placed.offsets, placed.total_bytes
