"""One model in several runtimes, and their times side by side."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from benchmarks.cpu_table import ONNXRUNTIME, OURS
from tilewright.compiler import load_artifact
from tilewright.compiler.artifact import Artifact

try:
    import openvino
except ImportError:
    openvino = None

Inputs = Mapping[str, NDArray[Any]]
Run = Callable[[], Sequence[NDArray[Any]]]
ROUNDS = 12
BATCH_SECONDS = 0.03
PAUSE_SECONDS = 0.01  # until the threads of the runtime before no longer spin


def runtimes(model: onnx.ModelProto, place: Path, inputs: Inputs, threads: int) -> dict[str, Run]:
    """What runs `model` on `inputs`, by runtime; ours is the artifact saved at `place`."""
    artifact = load_artifact(place, threads=threads)
    runs: dict[str, Run] = {OURS: lambda: list(artifact.run(inputs).values())}
    for name, is_set in zip(ONNXRUNTIME, (False, True), strict=True):
        runs[name] = _onnxruntime(model, inputs, threads, is_set)
    if openvino is not None:
        try:
            runs["OpenVINO"] = _openvino(model, inputs, threads)
        except RuntimeError as error:
            print(f"OpenVINO does not run it: {str(error).splitlines()[0]}", flush=True)
    return runs


def _onnxruntime(model: onnx.ModelProto, inputs: Inputs, threads: int, is_set: bool) -> Run:
    """The default has all optimisations on. What is set besides: denormals are zero, and inputs
    and outputs are bound once instead of allocated by each call.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if is_set:
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    if not is_set:
        return lambda: session.run(names, inputs)
    binding = session.io_binding()
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(x) for name, x in inputs.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    outputs = [onnxruntime.OrtValue.ortvalue_from_numpy(x) for x in session.run(names, inputs)]
    for name, value in zip(names, outputs, strict=True):
        binding.bind_ortvalue_output(name, value)

    def run() -> list[NDArray[Any]]:
        session.run_with_iobinding(binding)
        return [value.numpy() for value in outputs]

    return run


def _openvino(model: onnx.ModelProto, inputs: Inputs, threads: int) -> Run:
    """Latency mode, in float32 where the processor would offer bfloat16, without copies."""
    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(model.SerializeToString()),
        "CPU",
        {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        },
    )
    request, count = compiled.create_infer_request(), len(compiled.outputs)

    def run() -> list[NDArray[Any]]:
        found = request.infer(dict(inputs), share_inputs=True, share_outputs=True)
        return [found[index] for index in range(count)]

    run()
    return run


def medians(runs: Mapping[str, Run]) -> dict[str, float]:
    """Milliseconds a call by name.

    In every round each runs a batch of calls, in turn forwards and backwards; a batch begins with
    a pause and a call that is not timed.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(ROUNDS):
        for name in list(runs) if round_ % 2 else reversed(list(runs)):
            time.sleep(PAUSE_SECONDS)
            runs[name]()
            end = time.perf_counter() + BATCH_SECONDS
            while (start := time.perf_counter()) < end:
                runs[name]()
                times[name].append(time.perf_counter() - start)
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


class OtherProcesses:
    """How many CPUs processes other than this one kept busy since this was made (Linux)."""

    def __init__(self) -> None:
        self._start, self._others = time.perf_counter(), self._busy_seconds()

    def busy_cpus(self) -> float:
        elapsed = time.perf_counter() - self._start
        return max(0.0, (self._busy_seconds() - self._others) / elapsed)

    @staticmethod
    def _busy_seconds() -> float:
        fields = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
        user, nice, system, _idle, _waiting, irq, softirq, steal = fields[:8]
        ticks = user + nice + system + irq + softirq + steal
        return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def first_over_second(place: Path, inputs: Inputs, threads: int, loads: int = 7) -> float:
    """The first call after loading over the second: the median of several loads."""
    ratios = []
    for _ in range(loads):
        with load_artifact(place, threads=threads) as artifact:
            first, second = (_seconds(lambda: artifact.run(inputs)) for _ in range(2))
            ratios.append(first / second)
    return statistics.median(ratios)


def costliest(artifact: Artifact, inputs: Inputs, repeats: int = 15) -> str:
    """The operator that takes longest, and its share, from runs of ever more steps."""
    until = [0.0]
    for count in range(1, len(artifact.manifest["steps"]) + 1):
        until.append(min(_until(artifact, inputs, count) for _ in range(repeats)))
    shares = np.diff(np.maximum.accumulate(until)) / max(until)
    step = artifact.manifest["steps"][int(np.argmax(shares))]
    kinds = " + ".join(artifact.report["operators"][index]["op"] for index in step["operators"])
    return f"`{step['name']}` ({kinds}), {shares.max():.0%}"


def _until(artifact: Artifact, inputs: Inputs, steps: int) -> float:
    for name, values in inputs.items():
        artifact.input(name)[...] = values
    return _seconds(lambda: artifact.run_until(steps))


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
