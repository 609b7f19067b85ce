"""Write docs/boards.md: every bundled board with its sizes, and six networks on each, modelled.

python benchmarks/boards_page.py docs/boards.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tilewright.compiler.compile import Options, compile_program
from tilewright.targets import Target, list_targets, load_target
from tilewright.targets.describe import machine_balance, peak_watts

MODELS = Path(__file__).resolve().parents[1] / "tests" / "models"
NETWORKS = {
    "MobileNetV1 VWW": "mobilenetv1_vww_int8",
    "DS-CNN KWS": "dscnn_kws_int8",
    "ResNet-8 CIFAR": "resnet8_cifar_int8",
    "autoencoder AD": "autoencoder_ad_int8",
    "MobileNetV2 KWS": "mobilenetv2_kws_int8",
    "gesture CNN": "gesture_cnn_int8",
}
INTRODUCTION = """# Boards

The bundled boards, each a file in [`targets/boards`](../targets/boards) with the public source of
every number, or the word "assumed", beside it. They are *like* the products they are named after:
what a vendor does not publish is assumed. [targets.md](targets.md) explains the keys, how to add a
board, and how to measure one. `benchmarks/boards_page.py` writes this page.

`rk3588` describes one of the chip's three NPU cores, 2 of its 6 TOPS; `ethos-u55-256` has the
numbers of Arm's Vela for that configuration.
"""
LATENCY = """## Latency of six networks

Milliseconds of one inference, modelled: cycles of the NPU simulated on the real command stream, CPU
kernels by formula. Each operator runs where the compiler expects it to be fastest, hand-overs
included; *italics*: the CPU alone, which these small networks leave a fast NPU no time to beat.
"""
ON_NPU = """## The same on the NPU

Microseconds of the NPU alone when everything that it takes runs there, times the lower bound, and
the microjoules it draws (multiply-accumulates, SRAM, DRAM, and idle power for that time).
"""


def page() -> str:
    boards = [load_target(name) for name in list_targets()]
    with_npu = [board for board in boards if board.npu is not None]
    lines = [INTRODUCTION, *_table(_npu_headings(), map(_npu_row, with_npu))]
    lines += ["", *_table(_cpu_headings(), map(_cpu_row, boards))]
    network_headings = ["board", *NETWORKS]
    totals = {
        (board.name, file, eager): _compile(file, board, eager)
        for board in tqdm(boards)
        for file in NETWORKS.values()
        for eager in ((False, True) if board.npu else (False,))
    }
    lines += ["", LATENCY]
    lines += _table(network_headings, (_latency_row(board, totals) for board in boards))
    lines += ["", ON_NPU]
    lines += _table(network_headings, (_npu_time_row(board, totals) for board in with_npu))
    return "\n".join(lines) + "\n"


def _compile(file: str, board: Target, eager: bool) -> dict[str, Any]:
    target = board
    if eager:  # a CPU so slow that whatever the NPU takes goes there
        slow = replace(board.cpu, cores=1, clock_mhz=1, int8_macs_per_cycle=0.01, crossing_us=0)
        target = replace(board, cpu=slow)
    return compile_program(MODELS / f"{file}.onnx", target, Options()).totals


def _table(headings: list[str], rows: Iterator[list[str]] | map[list[str]]) -> Iterator[str]:
    yield "| " + " | ".join(headings) + " |"
    yield "|---|" + "---:|" * (len(headings) - 1)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def _npu_headings() -> list[str]:
    return ["NPU of", "array", "MHz", "TOPS", "SRAM", "DRAM GB/s", "op/byte", "TOPS/W at peak"]


def _npu_row(board: Target) -> list[str]:
    npu = board.npu
    assert npu is not None
    return [
        f"`{board.name}`",
        f"{npu.array.rows} x {npu.array.columns}",
        f"{npu.clock_mhz:g}",
        f"{npu.peak_tops:.4g}",
        f"{npu.memory.sram_kib:,} KiB",
        f"{npu.memory.dram_gb_per_s:g}",
        f"{machine_balance(npu):,.0f}",
        f"{npu.peak_tops / peak_watts(npu):.3g}",
    ]


def _cpu_headings() -> list[str]:
    return ["CPU of", "cores", "MHz", "GFLOP/s", "int8 GMAC/s", "GB/s", "triple"]


def _cpu_row(board: Target) -> list[str]:
    cpu = board.cpu
    if cpu.is_native:
        return [f"`{board.name}`", "this machine's", "", "", "", "", ""]
    macs = cpu.cores * cpu.int8_macs_per_cycle * cpu.clock_mhz / 1000
    return [
        f"`{board.name}`",
        f"{cpu.cores} x {cpu.cpu}",
        f"{cpu.clock_mhz:g}",
        f"{cpu.peak_gflops:.4g}",
        f"{macs:.4g}",
        f"{cpu.dram_gb_per_s:g}",
        cpu.triple,
    ]


def _latency_row(board: Target, totals: dict[tuple[str, str, bool], dict[str, Any]]) -> list[str]:
    cells = [f"`{board.name}`"]
    for file in NETWORKS.values():
        found = totals[board.name, file, False]
        shown = f"{found['latency_ms']:.3f}"
        cells.append(f"*{shown}*" if board.npu is not None and not found["cycles"] else shown)
    return cells


def _npu_time_row(board: Target, totals: dict[tuple[str, str, bool], dict[str, Any]]) -> list[str]:
    npu, cells = board.npu, [f"`{board.name}`"]
    assert npu is not None
    for file in NETWORKS.values():
        found = totals[board.name, file, True]
        microseconds = found["cycles"] / npu.clock_mhz
        parts = found["energy_uj"]
        drawn = parts["mac"] + parts["sram"] + parts["dram"]
        drawn += npu.energy.idle_mw * microseconds / 1e3
        ratio = found["cycles"] / found["bound_cycles"]
        cells.append(f"{microseconds:,.1f} ({ratio:.2f} x), {float(f'{drawn:.3g}'):,g} uJ")
    return cells


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
