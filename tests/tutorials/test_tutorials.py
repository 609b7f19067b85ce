"""Every tutorial runs as a reader would run it, and says what it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def output_of(script: str) -> str:
    done = subprocess.run(
        [sys.executable, f"tutorials/{script}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_every_script_is_listed_and_run() -> None:
    scripts = {path.name for path in (ROOT / "tutorials").glob("*.py")}
    listed = set(re.findall(r"\]\((\w+\.py)\)", (ROOT / "tutorials" / "README.md").read_text()))
    run = set(re.findall(r'output_of\("(\w+\.py)"\)', Path(__file__).read_text()))
    assert scripts == listed == run


def test_first_steps() -> None:
    text = output_of("first_steps.py")
    assert "conv_12          Conv         npu" in text
    assert "the saved artifact gives the same scores: True" in text


def test_describe_a_board() -> None:
    rows = [line.split() for line in output_of("describe_a_board.py").splitlines()[1:]]
    cycles = {name: int(value) for name, value, *_ in rows}
    assert set(cycles) == {"as-it-is", "fast-memory", "large-array"}
    assert cycles["fast-memory"] < cycles["as-it-is"]
