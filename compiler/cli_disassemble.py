"""`tilewright disassemble`: an artifact's command streams as text."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("disassemble", help="print the NPU's command streams")
    parser.add_argument("artifact", metavar="DIR", help="an artifact, directory or .tar")
    parser.set_defaults(command=disassemble_)


def disassemble_(options: argparse.Namespace) -> None:
    from tilewright.compiler.artifact import load_artifact
    from tilewright.targets.assembler import disassemble

    with load_artifact(Path(options.artifact)) as artifact:
        steps = [step for step in artifact.manifest["steps"] if step["device"] == "npu"]
        for step in steps:
            print(f"; {step['name']}")
            print(disassemble((artifact.directory / step["stream"]).read_bytes()))
    if not steps:
        print("; no step of this artifact runs on the NPU")
