"""Several requests in flight: right outputs, overlap, a bounded queue, memory that stays flat."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.compiler.artifact import Artifact, load_artifact
from tilewright.compiler.artifact.native import Model
from tilewright.targets.errors import ArtifactError

TIMEOUT = 30  # seconds after which a deadlock is one


def request(value: float) -> dict[str, np.ndarray[Any, Any]]:
    return {"x": np.full((6, 5), value, np.float32)}


def test_every_request_gets_its_own_outputs(artifact: Artifact) -> None:
    futures = [artifact.run_async(request(value)) for value in range(200)]
    for value, future in enumerate(futures):
        assert np.array_equal(future.result(TIMEOUT)["y"], artifact.run(request(value))["y"])


def test_preparing_overlaps_running(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run waits for the second request's preparation: in turn, neither would end."""
    preparing = threading.Event()
    run = Model.run

    def slow_run(model: Model) -> None:
        assert preparing.wait(TIMEOUT)
        run(model)

    def prepare() -> dict[str, np.ndarray[Any, Any]]:
        preparing.set()
        return request(2)

    monkeypatch.setattr(Model, "run", slow_run)
    with artifact.dispatch(in_flight=2) as dispatcher:
        first, second = dispatcher.submit(request(1)), dispatcher.submit(prepare)
        assert first.result(TIMEOUT)["y"][0] == 5
        assert second.result(TIMEOUT)["y"][0] == 10


def test_runs_take_turns_on_the_one_npu(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most = [0], [0]
    run = Model.run

    def counted_run(model: Model) -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        run(model)
        running[0] -= 1

    monkeypatch.setattr(Model, "run", counted_run)
    with artifact.dispatch(in_flight=4) as dispatcher:
        for value in range(100):
            dispatcher.submit(request(value))
    assert most[0] == 1


def test_the_queue_is_bounded(artifact: Artifact) -> None:
    """With two in flight and three waiting, the sixth submission waits for the first to end."""
    gate, submitted = threading.Event(), threading.Semaphore(0)

    def prepare() -> dict[str, np.ndarray[Any, Any]]:
        assert gate.wait(TIMEOUT)
        return request(1)

    with artifact.dispatch(in_flight=2, waiting=3) as dispatcher:

        def submit_six() -> None:
            for _ in range(6):
                dispatcher.submit(prepare)
                submitted.release()

        thread = threading.Thread(target=submit_six)
        thread.start()
        for _ in range(5):
            assert submitted.acquire(timeout=TIMEOUT)
        assert not submitted.acquire(timeout=0.2)
        gate.set()
        assert submitted.acquire(timeout=TIMEOUT)
        thread.join()


def test_memory_stays_flat(artifact: Artifact) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with artifact.dispatch() as dispatcher:
        sizes = []
        last: Future[Any] | None = None
        for index in range(10_000):
            last = dispatcher.submit(request(index))
            if index in (1_000, 9_999):
                last.result(TIMEOUT)
                sizes.append(resident())
    assert sizes[1] - sizes[0] < 4 << 20


def test_a_wrong_request_fails_alone(artifact: Artifact) -> None:
    wrong = artifact.run_async({"z": np.zeros(1)})
    right = artifact.run_async(request(1))
    with pytest.raises(ArtifactError, match="has no input z"):
        wrong.result(TIMEOUT)
    assert right.result(TIMEOUT)["y"][0] == 5


def test_a_closed_dispatcher_and_silly_numbers_are_told(artifact: Artifact) -> None:
    dispatcher = artifact.dispatch()
    dispatcher.close()
    with pytest.raises(ArtifactError, match="was closed; it takes no more requests"):
        dispatcher.submit(request(1))
    with pytest.raises(ArtifactError, match="ask for 1 or more in flight"):
        artifact.dispatch(in_flight=0)


def test_closing_finishes_what_was_submitted(saved: Path) -> None:
    with load_artifact(saved) as artifact:
        future = artifact.run_async(request(3))
    assert future.done()
    assert future.result()["y"][0] == 15
