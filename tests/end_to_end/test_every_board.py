"""Every bundled board compiles the bundled networks, and its bits are those of numpy."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from tests.reference import run_reference
from tests.test_reference import random_inputs
from tilewright.compiler import compile_model
from tilewright.targets import Target, list_targets, load_target

MODELS = Path(__file__).parents[1] / "models"
QUANTISED = sorted(path.stem for path in MODELS.glob("*_int8.onnx"))
NPU_BOARDS = [name for name in list_targets() if load_target(name).npu is not None]
CPU_BOARDS = [name for name in list_targets() if load_target(name).npu is None]
SMALL = "dscnn_kws_int8"


def eager(board: str) -> Target:
    """The board with a CPU so slow that all its NPU takes goes there, however small."""
    target = load_target(board)
    slow = replace(target.cpu, cores=1, clock_mhz=1, int8_macs_per_cycle=0.01, crossing_us=0)
    return replace(target, cpu=slow)


@functools.cache
def expectation(name: str) -> tuple[dict[str, NDArray], dict[str, NDArray]]:  # type: ignore[type-arg]
    network = onnx.load(MODELS / f"{name}.onnx")
    inputs = random_inputs(network, 1)
    return inputs, run_reference(network, inputs)


def agrees_with_numpy(name: str, target: Target) -> bool:
    artifact = compile_model(MODELS / f"{name}.onnx", target)
    inputs, expected = expectation(name)
    found = artifact.run(inputs)
    if target.npu is not None:
        assert any(row["device"] == "npu" for row in artifact.report["operators"])
    return all(np.array_equal(found[n], expected[n].reshape(found[n].shape)) for n in expected)


def test_there_are_boards_of_every_class() -> None:
    assert len(NPU_BOARDS) >= 8
    assert len(CPU_BOARDS) >= 5


@pytest.mark.parametrize("board", ["k210", "rk3588", "tpu-256"])
def test_a_small_network_on_unlike_npus(board: str) -> None:
    assert agrees_with_numpy(SMALL, eager(board))


@pytest.mark.long
@pytest.mark.parametrize("board", NPU_BOARDS)
@pytest.mark.parametrize("name", QUANTISED)
def test_every_network_on_every_npu(name: str, board: str) -> None:
    assert agrees_with_numpy(name, eager(board))


@pytest.mark.long
@pytest.mark.parametrize("board", CPU_BOARDS)
@pytest.mark.parametrize("name", QUANTISED)
def test_every_network_on_every_cpu(name: str, board: str) -> None:
    assert agrees_with_numpy(name, load_target(board))
