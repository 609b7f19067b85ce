"""Several requests in flight: while one runs on the NPU, the next is prepared on the CPU.

Each request in flight has an arena and a context of its own, so inputs are prepared and written,
and outputs read, beside another's run. The runs themselves take turns, since there is one NPU.
Nothing grows with the number of requests: who submits more than are allowed to wait, waits.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from numpy.typing import ArrayLike, NDArray

from tilewright.compiler.artifact.arguments import port_view, write_inputs
from tilewright.compiler.artifact.native import Bytes, Model, aligned_bytes
from tilewright.targets.errors import ArtifactError

Inputs = Mapping[str, ArrayLike]
Outputs = dict[str, NDArray[Any]]
IN_FLIGHT, WAITING = 2, 8


class Dispatcher:
    """Runs requests in the order they are submitted; made by `Artifact.dispatch`."""

    def __init__(
        self,
        directory: Path,
        manifest: Mapping[str, Any],
        threads: int,
        *,
        in_flight: int = IN_FLIGHT,
        waiting: int = WAITING,
    ) -> None:
        if in_flight < 1 or waiting < 0:
            raise ArtifactError(
                f"{in_flight} requests in flight and {waiting} waiting cannot be served; "
                "ask for 1 or more in flight, 0 or more waiting"
            )
        self._manifest = manifest
        self._turn = threading.Lock()
        self._places = threading.Semaphore(in_flight + waiting)
        self._slots: queue.SimpleQueue[tuple[Bytes, Model]] = queue.SimpleQueue()
        for _ in range(in_flight):
            arena = aligned_bytes(manifest["arena"]["bytes"], manifest["arena"]["alignment"])
            self._slots.put((arena, Model(directory, manifest, arena, threads)))
        self._in_flight = in_flight
        self._workers = ThreadPoolExecutor(in_flight, thread_name_prefix="tilewright")

    def submit(self, inputs: Inputs | Callable[[], Inputs]) -> Future[Outputs]:
        """The outputs to come. A function as `inputs` is called on a thread of the dispatcher.

        Waits while as many requests as may are in flight or waiting. What is wrong with a request
        is raised by `result()`.
        """
        self._places.acquire()
        try:
            future = self._workers.submit(self._serve, inputs)
        except RuntimeError:
            self._places.release()
            raise ArtifactError("the dispatcher was closed; it takes no more requests") from None
        future.add_done_callback(lambda _: self._places.release())
        return future

    def close(self) -> None:
        """Waits for the requests that were submitted, and ends the threads."""
        self._workers.shutdown(wait=True)
        while not self._slots.empty():
            self._slots.get()[1].close()

    def __enter__(self) -> Dispatcher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _serve(self, inputs: Inputs | Callable[[], Inputs]) -> Outputs:
        arrays = inputs() if callable(inputs) else inputs
        arena, model = slot = self._slots.get()
        try:
            write_inputs(self._manifest, arena, arrays)
            with self._turn:
                model.run()
            return {
                port["name"]: port_view(arena, port).copy() for port in self._manifest["outputs"]
            }
        finally:
            self._slots.put(slot)
