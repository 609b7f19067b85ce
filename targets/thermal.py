"""How warm an NPU gets and how slow that makes it: one thermal resistance, one heat capacity.

    C dT/dt = P - (T - ambient) / R

A governor lowers the clock along [npu.thermal]'s throttle points. A slower clock stretches the
NPU's part of an inference and leaves its switching energy as it is (the voltage does not follow),
so power falls as temperature rises and there is one temperature at which the two agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tilewright.targets.groups import Thermal


@dataclass(frozen=True)
class Load:
    """One inference: seconds at full clock on the NPU and elsewhere, joules of switching, watts
    drawn all the time."""

    npu_seconds: float
    other_seconds: float
    switching_joules: float
    idle_watts: float

    def latency_seconds(self, clock: float) -> float:
        """Of one inference with the NPU at the fraction `clock` of its full speed."""
        return self.other_seconds + self.npu_seconds / clock

    def watts(self, clock: float, duty: float = 1.0) -> float:
        """Average power while inferences take the fraction `duty` of the time."""
        return self.idle_watts + duty * self.switching_joules / self.latency_seconds(clock)


@dataclass(frozen=True)
class State:
    """`seconds` after a cold start."""

    seconds: float
    temperature_c: float
    clock: float
    latency_seconds: float


def clock_at(thermal: Thermal, temperature: float) -> float:
    """The fraction of the full clock that the governor allows, linear between its points."""
    points = [*zip(thermal.throttle_c, thermal.throttle_clock_percent, strict=True)]
    if temperature <= points[0][0]:
        return 1.0
    for (low, faster), (high, slower) in pairwise(points):
        if temperature <= high:
            return (faster + (slower - faster) * (temperature - low) / (high - low)) / 100
    return points[-1][1] / 100


def settle(thermal: Thermal, load: Load) -> State:
    """Where a continuous load ends: power and cooling agree.

    Cooling rises and power falls with temperature, so bisection finds the only such point.
    """
    low = thermal.ambient_c
    high = low + thermal.resistance_k_per_w * load.watts(1.0)
    for _ in range(60):
        middle = (low + high) / 2
        cooling = (middle - thermal.ambient_c) / thermal.resistance_k_per_w
        if load.watts(clock_at(thermal, middle)) > cooling:
            low = middle
        else:
            high = middle
    return _state(thermal, load, float("inf"), (low + high) / 2)


def course(thermal: Thermal, load: Load, seconds: float, steps: int = 600) -> Iterator[State]:
    """A continuous load from a cold start, in equal steps; each step's equation solved exactly.

    Within a step the power is constant, so temperature nears its end exponentially.
    """
    step = seconds / steps
    kept = math.exp(-step / (thermal.resistance_k_per_w * thermal.capacity_j_per_k))
    temperature = thermal.ambient_c
    for index in range(steps + 1):
        state = _state(thermal, load, index * step, temperature)
        yield state
        end = thermal.ambient_c + thermal.resistance_k_per_w * load.watts(state.clock)
        temperature = end + (temperature - end) * kept


def unthrottled_duty(thermal: Thermal, load: Load) -> float:
    """The largest fraction of the time that inferences may take without ever being slowed.

    The heat capacity evens out single inferences: they are far shorter than R x C.
    """
    allowed = (thermal.throttle_c[0] - thermal.ambient_c) / thermal.resistance_k_per_w
    switching = load.watts(1.0) - load.idle_watts
    if switching <= 0:
        return 1.0 if allowed >= load.idle_watts else 0.0
    return min(1.0, max(0.0, (allowed - load.idle_watts) / switching))


def _state(thermal: Thermal, load: Load, seconds: float, temperature: float) -> State:
    clock = clock_at(thermal, temperature)
    return State(seconds, temperature, clock, load.latency_seconds(clock))
