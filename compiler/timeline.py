"""When each part of the board works on which operator, modelled: the report's `timeline`."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.compiler.program import TimeSpan
from tilewright.targets.backend import Simulation


@dataclass
class Timeline:
    """Steps one after the other, as the runtime takes them; hand-overs between devices included."""

    crossing_us: float
    spans: list[TimeSpan] = field(default_factory=list)
    _now: float = 0.0
    _device: str = ""

    def add_cpu(self, operator: int, duration_us: float) -> None:
        self._enter("cpu")
        self.spans.append(TimeSpan("cpu", operator, self._now, self._now + duration_us))
        self._now += duration_us

    def add_npu(self, first_operator: int, run: Simulation, clock_mhz: float) -> None:
        """A region whose operators are the report's rows from `first_operator` on."""
        self._enter("npu")
        self.spans += [
            TimeSpan(
                span.engine,
                first_operator + span.operator,
                self._now + span.start / clock_mhz,
                self._now + span.end / clock_mhz,
            )
            for span in run.spans
        ]
        self._now += run.cycles / clock_mhz

    def _enter(self, device: str) -> None:
        if self._device and device != self._device:
            self.spans.append(TimeSpan("crossing", None, self._now, self._now + self.crossing_us))
            self._now += self.crossing_us
        self._device = device
