"""Run the float model over samples and keep what calibration needs, in one pass.

Of every tensor a histogram and the mean of each channel are kept, never the values, so the memory
does not grow with the set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from tilewright.compiler.quantize.ranges import Histogram

Array = NDArray[Any]
Sample = Mapping[str, Array]


@dataclass
class Observation:
    """What was seen of one tensor; channels lie on axis 1."""

    histogram: Histogram = field(default_factory=Histogram)
    channel_sums: NDArray[np.float64] | None = None
    channel_low: NDArray[np.float64] | None = None
    channel_high: NDArray[np.float64] | None = None
    channel_count: int = 0

    def add(self, values: Array) -> None:
        self.histogram.add(values)
        if values.ndim < 2 or not np.isfinite(values).all():
            return
        rows = np.moveaxis(values, 1, 0).reshape(values.shape[1], -1)
        sums = rows.sum(axis=1, dtype=np.float64)
        low, high = rows.min(axis=1, initial=0), rows.max(axis=1, initial=0)
        if self.channel_sums is None or self.channel_low is None or self.channel_high is None:
            self.channel_sums, self.channel_low, self.channel_high = sums, low, high
        else:
            self.channel_sums = self.channel_sums + sums
            self.channel_low = np.minimum(self.channel_low, low)
            self.channel_high = np.maximum(self.channel_high, high)
        self.channel_count += rows.shape[1]

    @property
    def channel_means(self) -> NDArray[np.float64] | None:
        if self.channel_sums is None:
            return None
        return self.channel_sums / max(1, self.channel_count)


Observations = dict[str, Observation]


class Runner:
    """onnxruntime on a model with `tensors` for outputs."""

    def __init__(self, model: onnx.ModelProto, tensors: Sequence[str], *, exact: bool = True):
        """`exact` keeps every operator as it is written; without, onnxruntime optimises."""
        shown = onnx.ModelProto()
        shown.CopyFrom(model)
        inputs = {value.name for value in model.graph.input}
        self.passed = [name for name in tensors if name in inputs]
        self.tensors = [name for name in tensors if name not in inputs]
        if self.tensors:
            del shown.graph.output[:]
            shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in self.tensors)
        options = onnxruntime.SessionOptions()
        levels = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = (
            levels.ORT_DISABLE_ALL if exact else levels.ORT_ENABLE_BASIC
        )
        options.add_session_config_entry("session.x64quantprecision", "1")
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(
            shown.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def run(self, sample: Sample) -> dict[str, Array]:
        values = self.session.run(self.tensors, dict(sample)) if self.tensors else []
        found = dict(zip(self.tensors, (np.asarray(value) for value in values), strict=True))
        return {name: np.asarray(sample[name]) for name in self.passed} | found


def observe(
    model: onnx.ModelProto, tensors: Sequence[str], samples: Iterable[Sample]
) -> Observations:
    """What is seen of `tensors` over all samples."""
    runner = Runner(model, tensors, exact=False)
    observations: Observations = {name: Observation() for name in tensors}
    for sample in samples:
        for name, values in runner.run(sample).items():
            observations[name].add(values)
    return observations
