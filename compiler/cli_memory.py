"""`tilewright memory`: what several artifacts take together on one board."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Any

from tilewright.compiler.report_text import table


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "memory", help="flash and RAM of artifacts that share one arena and one NPU"
    )
    parser.add_argument("artifacts", nargs="+", metavar="DIR", help="an artifact")
    parser.set_defaults(command=memory)


def memory(options: argparse.Namespace) -> None:
    from tilewright.compiler.artifact import load_artifact
    from tilewright.compiler.artifact.shared_memory import shared_memory

    with ExitStack() as stack:
        artifacts = [stack.enter_context(load_artifact(one)) for one in options.artifacts]
        together = shared_memory(artifacts)
        rows = [
            (
                str(one.manifest["name"]),
                _count(one.manifest["arena"]["bytes"]),
                _count(one.manifest["weights"]["bytes"]),
                _count((one.report["memory"]["linked"] or {}).get("flash")),
                _count((one.report["memory"]["linked"] or {}).get("ram")),
            )
            for one in artifacts
        ]
    sums = (together.arena, together.weights, together.flash, together.ram)
    total = ("together", *map(_count, sums))
    headings = ("model", "arena", "weights", "flash, linked", "RAM, linked")
    print("\n".join(table(headings, [*rows, total], (1, 2, 3, 4))))
    print(f"\nin bytes; with an arena each: {together.arenas_apart:,}")


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
