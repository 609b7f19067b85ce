"""The small ONNX models of tests/cases, as cases for `tests/onnx_judge.py`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.onnx_judge import Case

DIRECTORY = Path(__file__).parent / "cases"


def small_cases() -> list[Case]:
    """In the order of the index."""
    return [_case(entry) for entry in json.loads((DIRECTORY / "index.json").read_text())]


def _case(entry: dict[str, object]) -> Case:
    name = str(entry["case"])
    arrays = np.load(DIRECTORY / f"{name}.npz")
    inputs = {key.removeprefix("in:"): arrays[key] for key in arrays if key.startswith("in:")}
    outputs = sum(key.startswith("out:") for key in arrays)
    expected = [arrays[f"out:{number}"] for number in range(outputs)]
    rtol, atol = (float(str(entry[key])) for key in ("rtol", "atol"))
    return Case(name, DIRECTORY / f"{name}.onnx", inputs, expected, rtol, atol)
