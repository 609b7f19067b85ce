"""A model on a board: cross-compiled, linked into firmware, run in QEMU, the same bits as here."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.boards.on_board import MACHINES, Machine, describe_board, link_firmware, run_firmware
from tilewright.compiler import compile_model
from tilewright.compiler.artifact import Artifact
from tilewright.compiler.artifact.arguments import random_inputs
from tilewright.compiler.artifact.elf import ElfObject
from tilewright.targets.description import parse_target

MODELS = Path(__file__).parents[1] / "models"
MLPERF_TINY = (
    "autoencoder_ad_int8",
    "dscnn_kws_int8",
    "mobilenetv1_vww_int8",
    "resnet8_cifar_int8",
)
QUICK_FLOAT = [("cortex-m4", "mnist_conv_fp32")]
LONG = pytest.mark.long
FLOAT = ("gesture_cnn_fp32", "mnist_conv_fp32")
QUICK = [(machine, "dscnn_kws_int8") for machine in ("aarch64", "riscv64", "cortex-m4")]
STACK_BYTES = 16 * 1024


def board(name: str) -> Machine:
    machine = MACHINES[name]
    if machine.missing:
        pytest.skip(f"{machine.missing} not installed; docs/emulated-boards.md names the packages")
    return machine


@functools.cache
def compiled(model: str, machine: str, with_npu: bool) -> Artifact:
    text = describe_board(machine, with_npu)
    return compile_model(MODELS / f"{model}.onnx", parse_target(text, f"{machine}.toml"))


def cases(quick: Callable[[str, str], bool]) -> list[Any]:
    return [
        pytest.param(machine, model, id=f"{machine}-{model}")
        if quick(machine, model)
        else pytest.param(machine, model, id=f"{machine}-{model}", marks=LONG)
        for machine in MACHINES
        for model in MLPERF_TINY
    ]


@pytest.mark.parametrize("with_npu", [True, False], ids=["npu", "cpu"])
@pytest.mark.parametrize(
    ("machine", "model"),
    cases(lambda machine, model: machine == "cortex-m55" or (machine, model) in QUICK),
)
def test_the_same_bits_as_on_the_host(
    machine: str, model: str, with_npu: bool, tmp_path: Path
) -> None:
    tools = board(machine)
    artifact = compiled(model, machine, with_npu)
    assert bool(artifact.manifest["npu_workspace_bytes"]) is with_npu
    firmware = link_firmware(artifact, tools, tmp_path)
    for seed in range(3):
        inputs = random_inputs(artifact.manifest, seed)
        expected = artifact.run(inputs)
        found = run_firmware(artifact, tools, tmp_path, inputs)
        for name, values in expected.items():
            assert np.array_equal(found.outputs[name], values)
        assert found.cycles == artifact.statistics().get("cycles", 0)
        assert found.stack_bytes < STACK_BYTES
    check_sizes(artifact, firmware)


@pytest.mark.parametrize(
    ("machine", "model"),
    [
        pytest.param(machine, model, marks=() if (machine, model) in QUICK_FLOAT else LONG)
        for machine in MACHINES
        for model in FLOAT
    ],
)
def test_float_networks_agree_with_the_host(machine: str, model: str, tmp_path: Path) -> None:
    """Not to the bit: one machine's kernels add in another order, or round a product first."""
    tools = board(machine)
    artifact = compiled(model, machine, False)
    link_firmware(artifact, tools, tmp_path)
    inputs = random_inputs(artifact.manifest, 0)
    found = run_firmware(artifact, tools, tmp_path, inputs)
    for name, values in artifact.run(inputs).items():
        assert np.abs(found.outputs[name] - values).max() <= 1e-4 * max(1, np.abs(values).max())


def check_sizes(artifact: Artifact, firmware: Path) -> None:
    """What the report says of flash and RAM is what the firmware's ELF file holds."""
    memory = artifact.report["memory"]
    assert memory["linked"]["ram"] == memory["predicted"]["ram"]
    # Gaps for alignment, less the strings that the linker keeps once.
    assert abs(memory["linked"]["flash"] - memory["predicted"]["flash"]) < 1024
    sizes = ElfObject(firmware.read_bytes()).symbol_sizes()
    for name, size in memory["ram"].items():
        if name != "relocated":
            assert sizes.get(f"model_{name}", 0) == size
    assert sizes[f"{artifact.manifest['c_name']}_weights"] == memory["flash"]["weights"]
    places = ElfObject(firmware.read_bytes()).symbol_values()
    if "model_flash_end" in places:
        held = places["model_flash_end"] - places["model_flash_begin"]
        # Functions that this firmware does not call are not linked.
        assert 0 <= memory["linked"]["flash"] - held < 1024


def test_the_shared_library_serves_a_board_with_a_loader(tmp_path: Path) -> None:
    tools = board("aarch64")
    artifact = compiled("dscnn_kws_int8", "aarch64", True)
    dynamic = replace(
        tools,
        link=("-pthread", "-Wl,-rpath,$ORIGIN"),
        emulator=("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "./firmware"),
    )
    shutil.copy(artifact.directory / "board/libmodel.so", tmp_path)
    link_firmware(artifact, dynamic, tmp_path, library="libmodel.so")
    inputs = random_inputs(artifact.manifest, 0)
    found = run_firmware(artifact, dynamic, tmp_path, inputs)
    for name, values in artifact.run(inputs).items():
        assert np.array_equal(found.outputs[name], values)
