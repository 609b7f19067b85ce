"""Compile ONNX models with known answers for the host and say what came of each.

Many small models are compiled as one, side by side in one graph, for most of a small compilation
is the C compiler's. A group that fails is halved until the model at fault is alone. Each group is
judged in a child process: a crash, a hang or a hunger for memory is a verdict too, and TVM need
not be loaded again.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tilewright.compiler import compile_model
from tilewright.compiler.frontend import import_to_relax, load_model, prepare
from tilewright.compiler.frontend.opset import opset_of
from tilewright.targets.errors import TilewrightError

Array = NDArray[Any]
RIGHT, REFUSED, WRONG, FAULT = "right", "refused", "wrong", "fault"
GROUP = 32


@dataclass(frozen=True)
class Case:
    """A model with inputs and the outputs they must give."""

    name: str
    model: onnx.ModelProto | Path
    inputs: Mapping[str, Array]
    expected: Sequence[Array]
    rtol: float
    atol: float


@dataclass(frozen=True)
class Verdict:
    """`kind` is one of the four above; `reason` is empty for what is right."""

    kind: str
    reason: str = ""


def judge_all(cases: Iterable[Case], group: int = GROUP) -> dict[str, Verdict]:
    """The verdict on each case by name."""
    found: dict[str, Verdict] = {}
    listed = list(cases)
    for start in range(0, len(listed), group):
        found |= judge_group(listed[start : start + group])
    return found


def judge_group(cases: Sequence[Case]) -> dict[str, Verdict]:
    """Together where that works, else by halves."""
    found = in_child(lambda: _together(cases))
    if isinstance(found, Verdict):
        if len(cases) == 1:
            return {cases[0].name: found}
        half = len(cases) // 2
        return judge_group(cases[:half]) | judge_group(cases[half:])
    return found


def _together(cases: Sequence[Case]) -> dict[str, Verdict]:
    """Verdicts of all; an exception where the fault may lie with any of several."""
    found: dict[str, Verdict] = {}
    ready: list[tuple[int, Case, onnx.ModelProto]] = []
    for case in cases:
        try:
            ready.append(_prepared(case))
        except TilewrightError as error:
            found[case.name] = Verdict(REFUSED, str(error))
        except Exception as error:
            found[case.name] = _fault(error)
    for _, part in groupby(sorted(ready, key=lambda one: one[0]), lambda one: one[0]):
        found |= _run([(case, model) for _, case, model in part])
    return found


def _prepared(case: Case) -> tuple[int, Case, onnx.ModelProto]:
    model = load_model(case.model) if isinstance(case.model, Path) else case.model
    prepared = prepare(model, {name: value.shape for name, value in case.inputs.items()})
    import_to_relax(prepared)
    return opset_of(prepared), case, prepared


def _run(cases: Sequence[tuple[Case, onnx.ModelProto]]) -> dict[str, Verdict]:
    joined = onnx.ModelProto.FromString(cases[0][1].SerializeToString())
    joined.ClearField("graph")
    joined.graph.name = "cases"
    inputs: dict[str, Array] = {}
    for number, (case, model) in enumerate(cases):
        _append(joined, model, f"{number}|")
        inputs |= {f"{number}|{name}": value for name, value in case.inputs.items()}
    try:
        outputs = compile_model(joined, "host").run(inputs)
    except Exception as error:
        if len(cases) > 1:
            raise
        refused = isinstance(error, TilewrightError)
        return {cases[0][0].name: Verdict(REFUSED, str(error)) if refused else _fault(error)}
    return {
        case.name: _compared(case, [outputs[f"{number}|{one.name}"] for one in model.graph.output])
        for number, (case, model) in enumerate(cases)
    }


def _append(joined: onnx.ModelProto, model: onnx.ModelProto, prefix: str) -> None:
    """The graph of `model`, which is flat, with every name prefixed."""
    graph = onnx.GraphProto.FromString(model.graph.SerializeToString())
    for node in graph.node:
        node.name = prefix + node.name
        for names in (node.input, node.output):
            names[:] = [prefix + name if name else "" for name in names]
    for named in (graph.input, graph.output, graph.value_info, graph.initializer):
        for one in named:
            one.name = prefix + one.name
    joined.graph.MergeFrom(graph)
    joined.graph.name = "cases"
    known = {entry.domain for entry in joined.opset_import}
    joined.opset_import.extend(one for one in model.opset_import if one.domain not in known)


def _compared(case: Case, outputs: Sequence[Array]) -> Verdict:
    if len(outputs) != len(case.expected):
        return Verdict(WRONG, f"{len(outputs)} outputs instead of {len(case.expected)}")
    for number, (found, wanted) in enumerate(zip(outputs, case.expected, strict=True)):
        if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            return Verdict(
                WRONG,
                f"output {number} is {found.dtype} {list(found.shape)} instead of "
                f"{wanted.dtype} {list(wanted.shape)}",
            )
        if not _near(found, wanted, case.rtol, case.atol):
            return Verdict(WRONG, f"output {number} has other values")
    return Verdict(RIGHT)


def _near(found: Array, wanted: Array, rtol: float, atol: float) -> bool:
    if wanted.dtype.kind in "biu":
        return np.array_equal(found, wanted)
    if wanted.dtype == np.float16:  # two steps of its own, after a few operators
        rtol, atol = max(rtol, 2e-3), max(atol, 1e-3)
    kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
    return np.allclose(found.astype(kind), wanted.astype(kind), rtol, atol, equal_nan=True)


def _fault(error: Exception) -> Verdict:
    last = traceback.extract_tb(error.__traceback__)[-1]
    fact = " ".join(str(error).split())[-300:]
    return Verdict(FAULT, f"{type(error).__name__}: {fact} ({last.name})")


def in_child(
    work: Callable[[], dict[str, Verdict]], seconds: float = 120.0, gibibytes: int = 0
) -> dict[str, Verdict] | Verdict:
    """What `work` returns in a forked process, or what happened to that process.

    With `gibibytes` the child may grow by no more than that much address space.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(work, writing, gibibytes)
    os.close(writing)
    text = b"".join(_received(reading, time.monotonic() + seconds))
    os.close(reading)
    done, status = os.waitpid(child, os.WNOHANG)
    if not done and not text:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return Verdict(FAULT, f"no answer in {seconds:g} s")
    if not done:
        _, status = os.waitpid(child, 0)
    if not text:
        return Verdict(FAULT, f"the process ended with status {status}")
    answer = json.loads(text)
    if "fault" in answer:
        return Verdict(FAULT, answer["fault"])
    return {name: Verdict(*fields) for name, fields in answer.items()}


def _received(reading: int, deadline: float) -> Iterator[bytes]:
    while select.select([reading], [], [], max(deadline - time.monotonic(), 0))[0]:
        part = os.read(reading, 65536)
        if not part:
            return
        yield part


def _work(work: Callable[[], dict[str, Verdict]], writing: int, gibibytes: int) -> None:
    """Never returns."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    try:
        warnings.simplefilter("ignore")
        if gibibytes:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + (gibibytes << 30)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        answer: dict[str, Any] = {
            name: [verdict.kind, verdict.reason] for name, verdict in work().items()
        }
    except BaseException as error:
        answer = {"fault": f"{type(error).__name__}: {error}"}
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(json.dumps(answer).encode())
    os._exit(0)
