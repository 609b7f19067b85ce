"""A package of someone else's brings an instruction set; nothing of ours knows it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.reference import run_reference
from tests.test_reference import random_inputs
from tilewright.compiler import compile_model
from tilewright.schedules.backends import backend_of
from tilewright.targets import Target, load_target
from tilewright.targets.description import parse_target
from tilewright.targets.errors import TargetError

PACKAGE = Path(__file__).parent / "table_machine"
MODELS = Path(__file__).parents[1] / "models"


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """As pip would: the module can be imported, its entry point is on record."""
    record = folder / "table_machine-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: table-machine\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text(f"[tilewright.backends]\ntable = {value}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.syspath_prepend(str(PACKAGE))


def table_board() -> Target:
    """mcu-16 with the other instruction set, and a CPU slow enough to hand everything over."""
    source = load_target("mcu-16").source
    source = source.replace("[npu]\n", '[npu]\nbackend = "table"\n', 1)
    source = source.replace("crossing_us = 5", "crossing_us = 0", 1)
    source = source.replace("int8_macs_per_cycle = 8", "int8_macs_per_cycle = 0.01", 1)
    return parse_target(source.replace("dram_gb_per_s = 1.6  ", "dram_gb_per_s = 0.01 "), "t.toml")


@pytest.mark.parametrize(
    "name",
    ["resnet8_cifar_int8", pytest.param("mobilenetv2_kws_int8", marks=pytest.mark.long)],
)
def test_a_network_runs_on_it_bit_for_bit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, monkeypatch, "table_machine:TableMachine")
    network = onnx.load(MODELS / f"{name}.onnx")
    artifact = compile_model(MODELS / f"{name}.onnx", table_board())
    rows = artifact.report["operators"]
    on_npu = [row for row in rows if row["device"] == "npu"]
    assert {row["op"] for row in on_npu} >= {"Add"}
    assert "conv2d is not what a table can do" in {row["reason"] for row in rows}
    stream = next((artifact.directory / "board").rglob("streams/*.bin"))
    assert stream.read_bytes().startswith(b"TAB1")
    for seed in range(3):
        inputs = random_inputs(network, seed)
        for output, expected in run_reference(network, inputs).items():
            found = artifact.run(inputs)[output]
            assert np.array_equal(found, expected.reshape(found.shape))


def test_what_is_not_installed() -> None:
    with pytest.raises(TargetError, match=r'"table": no such backend .* known are tilewright'):
        backend_of(table_board().npu)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("table_machine:Nothing", "cannot be loaded: AttributeError"),
        ("no_such_module:TableMachine", "cannot be loaded: ModuleNotFoundError"),
        ("table_machine:TablePlan", "cannot be loaded: TypeError"),
        ("pathlib:Path", "is not a tilewright.targets.backend.Backend"),
    ],
)
def test_what_is_installed_and_wrong(
    value: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, monkeypatch, value)
    with pytest.raises(TargetError, match=reason):
        backend_of(table_board().npu)  # type: ignore[arg-type]
