"""The bounds in a report are those that the ONNX file and the TOML give without the compiler."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import onnx
import pytest

from tilewright.compiler import compile_model
from tilewright.targets.description import load_target

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location(
    "recompute_bounds", ROOT / "benchmarks" / "recompute_bounds.py"
)
assert _spec is not None and _spec.loader is not None
recompute_bounds = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(recompute_bounds)


@pytest.mark.parametrize(
    ("network", "board"),
    [
        ("resnet8_cifar_int8", "mcu-16"),
        ("dscnn_kws_int8", "edge-128"),
        ("autoencoder_ad_int8", "edge-64"),
    ],
)
def test_the_report_and_the_script_agree(network: str, board: str) -> None:
    path = ROOT / "tests" / "models" / f"{network}.onnx"
    totals = compile_model(path, board).report["totals"]
    npu = tomllib.loads(load_target(board).source)["npu"]
    roofline, bound, left_out = recompute_bounds.recompute(onnx.load(path), npu)
    assert (totals["roofline_cycles"], totals["bound_cycles"]) == (roofline, bound)
    assert set(left_out) <= {"Softmax"}  # which runs on the CPU
