"""`tilewright diff`: two artifacts of one model compared, as a check after an upgrade."""

from __future__ import annotations

import argparse
from typing import Any

from tilewright.targets.errors import VerificationError

_SEEDS = 3


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "diff", help="compare two artifacts; exit code 1 where a limit is exceeded"
    )
    parser.add_argument("old", metavar="OLD", help="an artifact, directory or .tar")
    parser.add_argument("new", metavar="NEW", help="an artifact of the same model")
    parser.add_argument(
        "--random", type=int, default=0, metavar="SEED", help=f"the first of {_SEEDS} seeds"
    )
    for option, kind, metavar, meaning in (
        ("--max-latency-percent", float, "P", "the modelled latency may grow by this much"),
        ("--max-memory-percent", float, "P", "arena, weights, flash and RAM, each"),
        ("--max-output-difference", float, "X", "of any element of any output"),
        ("--max-moved", int, "N", "nodes that may have changed the device"),
    ):
        parser.add_argument(option, type=kind, metavar=metavar, help=meaning)
    parser.set_defaults(command=diff)


def diff(options: argparse.Namespace) -> None:
    from tilewright.compiler.artifact import load_artifact
    from tilewright.compiler.artifact_diff import Limits, compare_artifacts, differences_text

    seeds = range(options.random, options.random + _SEEDS)
    with load_artifact(options.old) as old, load_artifact(options.new) as new:
        differences = compare_artifacts(old, new, seeds)
    print(differences_text(differences))
    limits = Limits(
        options.max_latency_percent,
        options.max_memory_percent,
        options.max_output_difference,
        options.max_moved,
    )
    exceeding = differences.exceeding(limits)
    if exceeding:
        raise VerificationError(f"{options.new}: {'; '.join(exceeding)}")
