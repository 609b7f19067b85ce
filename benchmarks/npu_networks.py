"""Write docs/benchmarks-npu.md: four bundled int8 networks on four bundled boards.

    python benchmarks/npu_networks.py

Cycles are simulated, of what runs on the NPU; the bounds are formulas (docs/schedules.md).
"""

from __future__ import annotations

import math
from pathlib import Path

from tilewright.compiler import compile_model

ROOT = Path(__file__).parents[1]
NETWORKS = ("resnet8_cifar_int8", "dscnn_kws_int8", "mobilenetv1_vww_int8", "autoencoder_ad_int8")
BOARDS = ("mcu-16", "edge-64", "edge-128", "ethos-u55-256")
HEAD = """# Networks on described NPUs

Written by `python benchmarks/npu_networks.py`, with the default compile, untuned. `cycles` are
simulated on a board as its description has it, no board was measured. `bound` and `roofline` are
lower bounds of the same operators (docs/schedules.md); `benchmarks/recompute_bounds.py` recomputes
both from the ONNX file and the TOML alone. `SRAM` is the most that is taken at once, in bytes.

| board | network | cycles | bound | roofline | cycles / bound | SRAM |
| --- | --- | --- | --- | --- | --- | --- |
"""


def main() -> None:
    lines, ratios = [], []
    for board in BOARDS:
        for network in NETWORKS:
            report = compile_model(ROOT / f"tests/models/{network}.onnx", board).report
            totals = report["totals"]
            if totals["cycles"] is None:
                lines.append(f"| {board} | {network} | runs on the CPU | | | | |")
                continue
            ratio = totals["cycles"] / totals["bound_cycles"]
            ratios.append(ratio)
            sram = max(row["sram_peak_bytes"] or 0 for row in report["operators"])
            lines.append(
                f"| {board} | {network} | {totals['cycles']:,} | {totals['bound_cycles']:,} | "
                f"{totals['roofline_cycles']:,} | {ratio:.2f} | {sram:,} |"
            )
            print(lines[-1], flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    foot = f"\nGeometric mean of cycles / bound over the {len(ratios)} rows: {mean:.2f}.\n"
    page = ROOT / "docs" / "benchmarks-npu.md"
    page.write_text(HEAD + "\n".join(lines) + "\n" + foot, encoding="utf-8")


if __name__ == "__main__":
    main()
