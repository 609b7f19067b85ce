"""`tilewright profile`: where an artifact's time goes, and where a board disagrees."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tilewright.targets.errors import ArtifactError, ProfileError


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "profile", help="where an artifact's time goes: table, timeline, report.html"
    )
    parser.add_argument("artifact", metavar="DIR", help="an artifact's directory")
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="report.html", help="the page to write"
    )
    parser.add_argument(
        "--against",
        metavar="CSV",
        help="a board's times (columns name,time_us): show the largest disagreements",
    )
    parser.add_argument(
        "--bisect",
        metavar="COMMAND",
        help="find a delay by a command that prints the microseconds a command stream takes; "
        "it gets the files of stream and constants and the arena's bytes",
    )
    parser.set_defaults(command=profile)


def profile(options: argparse.Namespace) -> None:
    artifact = Path(options.artifact)
    report, name = _read(artifact)
    if options.against:
        _against(report, Path(options.against))
    elif options.bisect:
        _bisect(artifact, report, options.bisect)
    else:
        _profile(artifact, report, name, Path(options.output))


def _read(artifact: Path) -> tuple[dict[str, Any], str]:
    """The report, and the model's name."""
    from tilewright.compiler.artifact.layout import REPORT
    from tilewright.compiler.artifact.manifest import read_manifest

    manifest = read_manifest(artifact)
    try:
        report = json.loads((artifact / REPORT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{artifact / REPORT}: cannot be read: {error}") from None
    return report, str(manifest["name"])


def _profile(artifact: Path, report: dict[str, Any], name: str, page: Path) -> None:
    from tilewright.compiler.artifact.layout import TARGET
    from tilewright.compiler.profile.heat import heat_course, heat_lines
    from tilewright.compiler.profile.page import profile_page
    from tilewright.compiler.profile.text import profile_table
    from tilewright.targets.description import read_target

    target = read_target(artifact / TARGET)
    macs = target.npu.macs_per_cycle if target.npu else None
    states = heat_course(target.npu, report["totals"])
    print("\n".join([*profile_table(report, macs), *heat_lines(states)]))
    try:
        page.write_text(profile_page(name, target.name, report, macs, states), encoding="utf-8")
    except OSError as error:
        raise ProfileError(f"{page}: cannot be written: {error.strerror}") from None
    print(f"{page}: written")


def _against(report: dict[str, Any], measured: Path) -> None:
    from tilewright.compiler.profile.against import compare, comparison_table, read_measured

    found = compare(report["operators"], read_measured(measured))
    print("\n".join(comparison_table(found, len(report["operators"]))))


def _bisect(artifact: Path, report: dict[str, Any], command: str) -> None:
    from tilewright.compiler.profile.delayed_operator import locate
    from tilewright.targets.board_timer import command_timer

    print(locate(artifact, report, command_timer(command)))
