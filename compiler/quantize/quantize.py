"""From a float model and samples to an int8 model: calibration, repair, and the choice of both.

Whatever is switched to "auto" is decided by measuring: the outputs' signal to quantisation noise
on some samples, with and without.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx
from tqdm import tqdm

from tilewright.compiler.preprocessing import Preprocessing, store_preprocessing
from tilewright.compiler.quantize.bias_correction import bias_shifts
from tilewright.compiler.quantize.choose import GAIN_DB, Choice, ranges_by
from tilewright.compiler.quantize.data import Data, Sample, inputs_of, read_samples
from tilewright.compiler.quantize.equalise import equalise
from tilewright.compiler.quantize.evaluate import Evaluation, accuracy, agreement
from tilewright.compiler.quantize.float_model import FloatGraph, prepare_float_model
from tilewright.compiler.quantize.observe import Observation, Observations, Runner, observe
from tilewright.compiler.quantize.plan import Plan
from tilewright.compiler.quantize.ranges import METHODS, PERCENTILE, Range
from tilewright.compiler.quantize.sensitivity import Harm, fewest_in_float, rank_layers
from tilewright.compiler.quantize.units import find_units
from tilewright.compiler.quantize.warnings import Departure, departures, warnings_about
from tilewright.compiler.quantize.write_qdq import write_qdq
from tilewright.targets.errors import ModelError

JUDGED_SAMPLES = 24  # on which alternatives are compared, spread over the first ones
DROP_SAMPLES = 256  # on which --max-drop is measured
HELD_BYTES = 256 << 20  # of samples that are run more than once
SETTLED_SHARE = 0.005  # `samples="auto"`: ranges grew less than this over SETTLED_SAMPLES
SETTLED_SAMPLES = 64
EQUALISATION = "tilewright.equalisation"


@dataclass(frozen=True)
class QuantizeOptions:
    """What a user may ask for; see docs/quantization.md.

    `equalise` and `correct_bias`: None decides by measuring. `max_drop` in percentage points of
    top-1 agreement with the float model, or of accuracy where `labels` are given.
    """

    method: str = "auto"
    percentile: float = PERCENTILE
    per_channel: bool = True
    equalise: bool | None = None
    correct_bias: bool | None = None
    samples: int | str | None = None  # a number, "auto", or None for all
    preprocessing: Preprocessing | None = None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    input_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    in_float: Sequence[str] = ()  # nodes that are not quantised
    sensitivity: bool = False
    max_drop: float | None = None
    labels: Sequence[int] | None = None
    check_data: Data | None = None
    progress: bool = False


@dataclass(frozen=True)
class Quantized:
    """The model, and what was found on the way."""

    model: onnx.ModelProto
    samples: int
    method: str
    decibels: float  # of the outputs on the first samples
    choices: tuple[str, ...]
    warnings: tuple[str, ...]
    sensitivity: tuple[Harm, ...]
    in_float: tuple[str, ...]
    departures: tuple[Departure, ...]
    drop: float | None  # what is lost, in points, where `max_drop` was asked for


def quantize_model(model: onnx.ModelProto, data: Data, options: QuantizeOptions) -> Quantized:
    """`model` with int8 weights and activations, as a QDQ model.

    Raises ModelError for data that does not fit and for a model that is quantised already.
    """
    return _Quantization(model, options).run(data)


class _Quantization:
    def __init__(self, model: onnx.ModelProto, options: QuantizeOptions) -> None:
        if options.method not in ("auto", *METHODS):
            raise ModelError(f"there is no method {options.method!r}; there are auto, {METHODS}")
        self.options = options
        shapes = {name: tuple(shape) for name, shape in options.shapes.items()}
        self.model = prepare_float_model(model, shapes)
        self.inputs = inputs_of(self.model, options.preprocessing)
        self.units = find_units(FloatGraph(self.model))
        self.in_float = self._named_units(options.in_float)
        self.choices: list[str] = []
        self.factors: dict[str, list[float]] = {}

    def run(self, data: Data) -> Quantized:
        samples = read_samples(data, self.inputs)
        first = list(itertools.islice(samples, self._first_count()))
        if not first:
            raise ModelError("the calibration data holds no samples")
        judged = first[:: max(1, len(first) // JUDGED_SAMPLES)][:JUDGED_SAMPLES]
        evaluation = Evaluation(self.model, judged)
        self._equalise(judged, evaluation)
        observations, count = self._calibrate(itertools.chain(first, samples))
        _require_finite(observations)
        plan = self._choose(observations, evaluation)
        harms: list[Harm] = []
        if self.options.sensitivity or self.options.max_drop is not None:
            harms = rank_layers(plan, evaluation, progress=self.options.progress)
        plan, drop = self._limit_drop(plan, harms, first)
        written = self._written(plan)
        return Quantized(
            written,
            count,
            self.options.method,
            evaluation.decibels(plan),
            tuple(self.choices),
            tuple(self._warnings(observations, count)),
            tuple(harms),
            tuple(sorted(plan.in_float)),
            tuple(self._departures(plan)),
            drop,
        )

    def _first_count(self) -> int:
        """How many samples are held in memory, to be run again: fewer where they are large."""
        sizes = (
            math.prod(shape) * self.inputs.dtypes[name].itemsize
            for name, shape in self.inputs.shapes.items()
        )
        return max(JUDGED_SAMPLES, min(DROP_SAMPLES, HELD_BYTES // max(1, sum(sizes))))

    def _named_units(self, names: Sequence[str]) -> frozenset[str]:
        units = {name: self.units.named(name) for name in names}
        unknown = [name for name, unit in units.items() if unit is None]
        if unknown:
            raise ModelError(f"{unknown[0]}: the model has no such node that could be quantised")
        return frozenset(unit.name for unit in units.values() if unit is not None)

    def _tensors(self) -> list[str]:
        """What is observed: tensors with a scale, and the inputs of units as they are read."""
        read = [name for unit in self.units.units for name in unit.inputs]
        names = dict.fromkeys([*self.inputs.shapes, *self.units.tensors(), *read])
        graph = FloatGraph(self.model)
        return [name for name in names if name not in graph.constants and graph.is_float(name)]

    def _equalise(self, judged: Sequence[Sample], evaluation: Evaluation) -> None:
        if self.options.equalise is False:
            return
        observations = observe(self.model, self._tensors(), judged)
        changed, factors = equalise(self.model, self.units, observations)
        if not factors:
            return
        if self.options.equalise is None:
            before = self._rough_decibels(self.model, observations, evaluation)
            after = self._rough_decibels(
                changed, observe(changed, self._tensors(), judged), evaluation
            )
            if after < before + GAIN_DB:
                self.choices.append(f"equalisation left out: {after:.2f} dB, {before:.2f} without")
                return
            self.choices.append(f"equalisation: {after:.2f} dB, {before:.2f} without")
        self.model, self.factors = changed, factors

    def _rough_decibels(
        self, model: onnx.ModelProto, observations: Observations, evaluation: Evaluation
    ) -> float:
        plan = self._plan(model, ranges_by("minmax", observations, self.options.percentile))
        if self.options.correct_bias is not False:
            plan = replace(plan, bias_shift=bias_shifts(plan, observations))
        return evaluation.decibels(plan)

    def _plan(self, model: onnx.ModelProto, ranges: dict[str, Range]) -> Plan:
        return Plan(
            model,
            self.units,
            ranges,
            per_channel=self.options.per_channel,
            in_float=self.in_float,
        )

    def _calibrate(self, samples: Iterable[Sample]) -> tuple[Observations, int]:
        limit = self.options.samples if isinstance(self.options.samples, int) else None
        runner = Runner(self.model, self._tensors(), exact=False)
        observations: Observations = {name: Observation() for name in self._tensors()}
        settled = _Settled()
        count = 0
        for sample in self._counted(itertools.islice(samples, limit)):
            for name, values in runner.run(sample).items():
                observations[name].add(values)
            count += 1
            if self.options.samples == "auto" and settled.holds(observations, count):
                self.choices.append(f"ranges settled after {count} samples")
                break
        return observations, count

    def _counted(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        hidden = None if self.options.progress else True
        return iter(tqdm(samples, desc="calibrate", unit="sample", disable=hidden, leave=False))

    def _choose(self, observations: Observations, evaluation: Evaluation) -> Plan:
        """The best plan of the asked method, of all methods by "auto"."""
        asked = self.options
        method = "minmax" if asked.method == "auto" else asked.method
        ranges = ranges_by(method, observations, asked.percentile)
        choice = Choice(observations, evaluation, asked.percentile, asked.correct_bias)
        plan = choice.best(self._plan(self.model, ranges), asked.method)
        self.choices += choice.said
        return plan

    def _limit_drop(
        self, plan: Plan, harms: list[Harm], samples: Sequence[Sample]
    ) -> tuple[Plan, float | None]:
        limit, labels = self.options.max_drop, self.options.labels
        if limit is None:
            return plan, None
        if labels is not None and len(labels) < len(samples):
            raise ModelError(f"{len(labels)} labels for {len(samples)} samples; give one each")

        def drop(tried: Plan) -> float:
            written = write_qdq(tried)
            if labels is None:
                return 100.0 - agreement(self.model, written, samples)
            chosen = labels[: len(samples)]
            return accuracy(self.model, samples, chosen) - accuracy(written, samples, chosen)

        limited = fewest_in_float(plan, harms, drop, limit)
        return limited, drop(limited)

    def _written(self, plan: Plan) -> onnx.ModelProto:
        written = write_qdq(plan)
        if self.options.preprocessing is not None:
            store_preprocessing(written, self.options.preprocessing)
        if self.factors:
            written.metadata_props.add(
                key=EQUALISATION, value=json.dumps(self.factors, sort_keys=True)
            )
        return written

    def _warnings(self, observations: Observations, count: int) -> list[str]:
        declared = dict(self.options.input_ranges)
        how = self.options.preprocessing
        if how is not None and len(self.inputs.shapes) == 1:
            ends = [(edge - how.means()) * how.scales() for edge in (0.0, 255.0)]
            declared.setdefault(
                self.inputs.single,
                (float(min(e.min() for e in ends)), float(max(e.max() for e in ends))),
            )
        inputs = {name: observations[name] for name in self.inputs.shapes if name in observations}
        return warnings_about(inputs, count, declared)

    def _departures(self, plan: Plan) -> list[Departure]:
        if self.options.check_data is None:
            return []
        samples = read_samples(self.options.check_data, self.inputs)
        tensors = [name for name in self.units.tensors() if name in plan.ranges]
        return departures(plan.ranges, observe(self.model, tensors, samples))


class _Settled:
    """Whether the ranges have stopped growing: asked after every sample."""

    def __init__(self) -> None:
        self.before: dict[str, Range] = {}

    def holds(self, observations: Observations, count: int) -> bool:
        if count % SETTLED_SAMPLES:
            return False
        now = {name: observation.histogram.seen for name, observation in observations.items()}
        grown = [
            now[name].width - self.before[name].width <= SETTLED_SHARE * now[name].width
            for name in self.before
        ]
        self.before = now
        return bool(grown) and all(grown)


def _require_finite(observations: Observations) -> None:
    for name, observation in observations.items():
        if observation.histogram.not_finite:
            raise ModelError(
                f"{name}: the float model itself gives NaN or infinity there on the calibration "
                "data; calibrate with inputs it was made for"
            )
