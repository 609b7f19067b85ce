"""Compile a real network for a board with an NPU, run it here, and read the report.

    python tutorials/first_steps.py

The network is ResNet-8 for 32x32 pictures, quantised to int8. The board, `mcu-16`, is described
in targets/boards/mcu-16.toml; here its NPU is simulated, bit for bit and cycle by cycle.
"""

import tempfile
from pathlib import Path

import numpy as np

from tilewright.compiler import compile_model, load_artifact

MODEL = Path(__file__).parents[1] / "tests" / "models" / "resnet8_cifar_int8.onnx"


def main() -> None:
    # One call does it all. It raises a TilewrightError, one line long, for whatever you can mend.
    artifact = compile_model(MODEL, target="mcu-16")

    # numpy in, numpy out, by the model's own names. A wrong name, shape or dtype is an error.
    picture = np.random.default_rng(0).integers(-128, 128, (1, 32, 32, 3), dtype=np.int8)
    scores = artifact.run({"input": picture})["output"]
    print("scores", scores)

    # Every operator has a row: where it runs, what it costs, the least it could cost, and for an
    # operator on the CPU the reason.
    for row in artifact.report["operators"]:
        where = f"{row['cycles']} cycles" if row["device"] == "npu" else row["reason"]
        print(f"{row['name']:16} {row['op']:12} {row['device']}  {where}")

    # Each total stands beside its bound.
    totals = artifact.report["totals"]
    print(f"{totals['cycles']} cycles simulated, at least {totals['bound_cycles']} needed")
    print(f"{totals['arena_bytes']} bytes of arena, at least {totals['arena_bound_bytes']} needed")

    # What is saved runs without TVM: a C library, weights, command streams, manifest, report.
    with tempfile.TemporaryDirectory() as directory:
        artifact.save(Path(directory) / "resnet8")
        again = load_artifact(Path(directory) / "resnet8").run({"input": picture})["output"]
    print("the saved artifact gives the same scores:", np.array_equal(again, scores))


if __name__ == "__main__":
    main()
