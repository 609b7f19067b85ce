"""How far a quantised model is from the float model it was made from, on a few samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx

from tilewright.compiler.quantize.observe import Runner, Sample
from tilewright.compiler.quantize.plan import Plan
from tilewright.compiler.quantize.write_qdq import write_qdq

BEST_DB = 150.0  # what no difference at all counts as


class Evaluation:
    """The float model's outputs on `samples`, to hold quantised models against."""

    def __init__(self, model: onnx.ModelProto, samples: Sequence[Sample]) -> None:
        self.outputs = [value.name for value in model.graph.output]
        self.samples = samples
        runner = Runner(model, self.outputs, exact=False)
        self.expected = [runner.run(sample) for sample in samples]

    def decibels(self, plan: Plan) -> float:
        """Signal to quantisation noise of the outputs, their mean where there are several."""
        signal = dict.fromkeys(self.outputs, 0.0)
        noise = dict.fromkeys(self.outputs, 0.0)
        runner = Runner(write_qdq(plan), self.outputs)
        for sample, expected in zip(self.samples, self.expected, strict=True):
            found = runner.run(sample)
            for name in self.outputs:
                wanted = expected[name].astype(np.float64)
                signal[name] += float((wanted**2).sum())
                noise[name] += float(((found[name] - wanted) ** 2).sum())
        return sum(decibels(signal[name], noise[name]) for name in self.outputs) / len(self.outputs)


def decibels(signal: float, noise: float) -> float:
    """10 log10(signal / noise), held between -BEST_DB and BEST_DB."""
    if noise == 0.0:
        return BEST_DB
    if signal == 0.0 or not math.isfinite(noise):
        return -BEST_DB
    return max(-BEST_DB, min(BEST_DB, 10 * math.log10(signal / noise)))


def agreement(model: onnx.ModelProto, other: onnx.ModelProto, samples: Sequence[Sample]) -> float:
    """The share of samples, in percent, whose largest output is the same in both models."""
    name = model.graph.output[0].name
    one, two = Runner(model, [name], exact=False), Runner(other, [name])
    same = [one.run(s)[name].argmax(-1) == two.run(s)[name].argmax(-1) for s in samples]
    return 100.0 * float(np.mean(np.concatenate([np.ravel(part) for part in same])))


def accuracy(model: onnx.ModelProto, samples: Sequence[Sample], labels: Sequence[int]) -> float:
    """The share of samples, in percent, whose largest output is their label."""
    name = model.graph.output[0].name
    runner = Runner(model, [name])
    right = [
        int(runner.run(s)[name].reshape(-1).argmax()) == int(label)
        for s, label in zip(samples, labels, strict=True)
    ]
    return 100.0 * float(np.mean(right))
