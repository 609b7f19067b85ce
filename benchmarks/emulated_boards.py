"""What the networks of MLPerf Tiny take on the emulated boards, as a table for docs.

    python -m benchmarks.emulated_boards [MACHINE...]

Each is compiled, linked into the firmware of tests/boards and run in QEMU: the flash and RAM are of
the linked model, the stack is what the firmware saw, the bits are compared with this machine's.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.boards.on_board import MACHINES, describe_board, link_firmware, run_firmware
from tilewright.compiler import compile_model
from tilewright.compiler.artifact.arguments import random_inputs
from tilewright.targets.description import parse_target

MODELS = Path(__file__).parents[1] / "tests" / "models"
NETWORKS = (
    "autoencoder_ad_int8",
    "dscnn_kws_int8",
    "mobilenetv1_vww_int8",
    "resnet8_cifar_int8",
)


def main(machines: list[str]) -> None:
    print("| board | network | NPU | flash | RAM | of it arena | stack | same bits |")
    print("|---|---|---|---:|---:|---:|---:|---|")
    for machine in machines or MACHINES:
        for network in NETWORKS:
            for npu in (True, False):
                named = MACHINES[machine].npu if npu else "none"
                print(f"| {machine} | {network} | {named} | {_row(machine, network, npu)} |")


def _row(machine: str, network: str, npu: bool) -> str:
    target = parse_target(describe_board(machine, npu), f"{machine}.toml")
    with (
        tempfile.TemporaryDirectory() as scratch,
        compile_model(MODELS / f"{network}.onnx", target) as artifact,
    ):
        folder, tools = Path(scratch), MACHINES[machine]
        link_firmware(artifact, tools, folder)
        inputs = random_inputs(artifact.manifest, 0)
        run = run_firmware(artifact, tools, folder, inputs)
        same = all(
            np.array_equal(run.outputs[name], values)
            for name, values in artifact.run(inputs).items()
        )
        memory = artifact.report["memory"]
        flash = memory["linked"]["flash"] - memory["flash"]["npu_simulator"]
        simulated = memory["ram"]["npu_workspace"] + memory["ram"]["npu_device"]
        ram = memory["linked"]["ram"] - simulated
        stack = f"{run.stack_bytes:,}" if run.stack_bytes else "-"
        arena = memory["ram"]["arena"]
        return f"{flash:,} | {ram:,} | {arena:,} | {stack} | {'yes' if same else 'NO'}"


if __name__ == "__main__":
    main(sys.argv[1:])
