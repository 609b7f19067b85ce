"""Describe a board of your own and see how a network would run on it.

    python tutorials/describe_a_board.py

A board is one TOML file. This one takes `mcu-16` and asks: what would a faster memory bring, and
what a larger array? Every key is explained in docs/targets.md.
"""

import tempfile
from pathlib import Path

from tilewright.compiler import compile_model
from tilewright.targets.description import load_target

MODEL = Path(__file__).parents[1] / "tests" / "models" / "mobilenetv1_vww_int8.onnx"


def variant(name: str, changes: dict[str, str]) -> str:
    """The text of `mcu-16` under another name, with some of its lines changed."""
    text = load_target("mcu-16").source.replace('name = "mcu-16"', f'name = "{name}"')
    for old, new in changes.items():
        assert old in text, f"{old}: no such line"
        text = text.replace(old, new)
    return text


def main() -> None:
    boards = {
        "as-it-is": {},
        "fast-memory": {"dram_gb_per_s = 1.6 ": "dram_gb_per_s = 6.4 "},
        "large-array": {"rows = 16": "rows = 32", "columns = 16": "columns = 32"},
    }
    with tempfile.TemporaryDirectory() as directory:
        print("board         cycles    bound  array busy")
        for name, changes in boards.items():
            path = Path(directory) / f"{name}.toml"
            path.write_text(variant(name, changes))
            totals = compile_model(MODEL, path).report["totals"]
            busy = f"{totals['mac_utilization']:.0%}"
            print(f"{name:12} {totals['cycles']:7} {totals['bound_cycles']:8} {busy:>11}")


if __name__ == "__main__":
    main()
