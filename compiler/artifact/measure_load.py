"""Throughput and latency of an artifact under load, measured on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.compiler.artifact.dispatch import Dispatcher, Inputs


@dataclass(frozen=True)
class LoadFigures:
    """Milliseconds are from submitting a request to its outputs, its wait for a place included."""

    requests: int
    seconds: float
    milliseconds: Sequence[float]

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds

    def percentile(self, percent: float) -> float:
        return float(np.percentile(self.milliseconds, percent))


def measure_load(
    dispatcher: Dispatcher, inputs: Inputs, requests: int, progress: Iterator[int]
) -> LoadFigures:
    """Submit `requests` requests as fast as the dispatcher takes them; `progress` counts them."""
    taken = np.zeros(requests)

    def note(index: int, start: float) -> Any:
        def done(_: Future[Any]) -> None:
            taken[index] = 1000 * (time.perf_counter() - start)

        return done

    begin = time.perf_counter()
    last: Future[Any] | None = None
    for index in progress:
        start = time.perf_counter()
        last = dispatcher.submit(inputs)
        last.add_done_callback(note(index, start))
    if last is not None:
        last.result()
    dispatcher.close()
    return LoadFigures(requests, time.perf_counter() - begin, taken.tolist())
