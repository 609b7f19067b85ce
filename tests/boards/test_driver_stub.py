"""The example of a vendor's driver runs a real model, on hardware played by the simulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.boards.on_board import run
from tilewright.compiler import compile_model
from tilewright.compiler.artifact.arguments import random_inputs
from tilewright.targets.description import BOARDS, parse_target
from tilewright.targets.simulator import SOURCES

HERE = Path(__file__).parent
STUB = HERE.parents[1] / "targets" / "driver_stub"
MODELS = HERE.parent / "models"
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")
C99, CPP = ("gcc", "-std=c99", *STRICT), ("g++", "-x", "c++", "-std=c++11", *STRICT)
# The simulator plays the hardware: the driver's own functions have its names.
RENAMED = [f"-D{name}=simulated_{name}" for name in ("npu_run", "npu_error", "npu_last_stats")]


@pytest.mark.parametrize("compiler", [C99, CPP], ids=["C99", "C++"])
def test_a_model_runs_through_the_example_driver(compiler: tuple[str, ...], tmp_path: Path) -> None:
    npu = (BOARDS / "mcu-16.toml").read_text().partition("[cpu]")[0]
    host = (BOARDS / "host.toml").read_text()
    target = parse_target(f"{npu}\n{host[host.index('[cpu]') :]}", "stub.toml")
    artifact = compile_model(MODELS / "dscnn_kws_int8.onnx", target)
    board = artifact.directory / "board"
    common = ["-O1", f"-I{board}", f"-I{HERE}", f"-I{STUB}"]
    simulator = [str(board / source.name) for source in SOURCES]
    run(["gcc", "-O2", "-ffp-contract=off", *common, *RENAMED, "-c", *simulator], tmp_path)
    run(["gcc", *common, *RENAMED, "-c", str(HERE / "fake_hardware.c")], tmp_path)
    objects = [*(f"{source.stem}.o" for source in SOURCES), "fake_hardware.o"]
    name = f"-DMODEL={artifact.manifest['c_name']}"
    sources = [str(HERE / "driver_main.c"), str(STUB / "npu_driver_stub.c")]
    run([*C99, *common, name, "-c", sources[0]], tmp_path)
    run([*compiler, *common, "-c", sources[1]], tmp_path)
    linked = ["driver_main.o", "npu_driver_stub.o", *objects, str(board / "libmodel.a")]
    run(["gcc", *linked, "-lm", "-pthread", "-o", "main"], tmp_path)
    (inputs,) = random_inputs(artifact.manifest, 0).values()
    (tmp_path / "inputs.bin").write_bytes(inputs.tobytes())
    printed = run(["./main"], tmp_path).splitlines()
    (expected,) = artifact.run(random_inputs(artifact.manifest, 0)).values()
    found = np.frombuffer((tmp_path / "outputs.bin").read_bytes(), expected.dtype)
    assert np.array_equal(found, expected.ravel())
    assert printed[0] == f"{artifact.statistics()['cycles']} cycles"
    streams = sum(step["device"] == "npu" for step in artifact.manifest["steps"])
    assert printed[1] == f"{3 * streams} {streams}"
    assert printed[2].startswith("4 ")
    assert printed[2].endswith(": the NPU did not answer in time; reset it")
