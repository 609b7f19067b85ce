"""`tilewright target`: the boards that are described, and whether a description is right."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from tilewright.targets.description import list_targets, load_target
from tilewright.targets.errors import TargetError


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("target", help="list, show, check and describe boards")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="the bundled boards")
    listing.set_defaults(command=list_)
    showing = actions.add_parser("show", help="what a board has and can do")
    showing.add_argument("target", metavar="NAME_OR_TOML")
    showing.set_defaults(command=show)
    checking = actions.add_parser("check", help="explain what is wrong with a description")
    checking.add_argument("file", metavar="FILE")
    checking.set_defaults(command=check_)
    making = actions.add_parser("new", help="write a commented description to start from")
    making.add_argument("name", metavar="NAME", help="of the board; the file is NAME.toml")
    making.add_argument("--like", metavar="NAME_OR_TOML", default="edge-64", help="its numbers")
    making.set_defaults(command=new)
    schema = actions.add_parser("schema", help="print a JSON schema for editors")
    schema.set_defaults(command=print_schema)
    probing = actions.add_parser("probe", help="measure a board and fit its description")
    probing.add_argument(
        "timer",
        metavar="COMMAND",
        help="prints the microseconds that a command stream takes on the board; it gets the files "
        "of stream and constants and the arena's bytes",
    )
    probing.add_argument("--like", metavar="NAME_OR_TOML", required=True, help="what is known")
    probing.add_argument("-o", "--output", metavar="FILE", help="write the fitted description")
    probing.set_defaults(command=probe_)


def list_(_options: argparse.Namespace) -> None:
    names = list_targets()
    width = max(map(len, names))
    for name in names:
        print(f"{name:<{width}}  {load_target(name).summary}".rstrip())


def show(options: argparse.Namespace) -> None:
    from tilewright.targets.describe import describe

    print(describe(load_target(options.target)))


def check_(options: argparse.Namespace) -> None:
    from tilewright.targets.describe import check, describe

    mistakes = check(Path(options.file))
    for mistake in mistakes[:-1]:
        print(mistake)
    if mistakes:
        raise TargetError(mistakes[-1])
    target = load_target(Path(options.file).resolve())
    if target.npu is not None:
        from tilewright.schedules.backends import backend_of

        backend_of(target.npu)
    print(f"{options.file}: nothing wrong")
    print(describe(target))


def new(options: argparse.Namespace) -> None:
    from tilewright.targets.template import template

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", options.name):
        raise TargetError(
            f"{options.name}: a board's name has letters, digits, '.', '-' and '_' only; give the "
            "name alone, NAME.toml is written here"
        )
    text = template(options.name, load_target(options.like))
    _write_new(Path(f"{options.name}.toml"), text)


def probe_(options: argparse.Namespace) -> None:
    from tqdm import tqdm

    from tilewright.compiler.report_text import table
    from tilewright.targets.board_timer import command_timer
    from tilewright.targets.probe import probe
    from tilewright.targets.refit import refit

    target = load_target(options.like)
    if target.npu is None:
        raise TargetError(f"{options.like}: has no NPU to measure; choose a board with [npu]")
    with tqdm(desc="streams timed", file=sys.stderr, disable=None, leave=False) as bar:
        timer = command_timer(options.timer)

        def counted(stream: bytes, constants: bytes, arena_bytes: int) -> float:
            bar.update()
            return timer(stream, constants, arena_bytes)

        fitted = probe(target.npu, counted)
    rows = [
        [f"npu.{one.key}", f"{one.described:g}", f"{one.measured:g}", f"{one.difference:+.1%}"]
        for one in fitted
    ]
    print("\n".join(table(("key", "described", "measured", "difference"), rows, range(1, 4))))
    if options.output:
        _write_new(Path(options.output), refit(target.source, fitted))


def _write_new(path: Path, text: str) -> None:
    """Raises TargetError where something is there, or nothing can be."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise TargetError(f"{path}: exists already; remove it or choose another name") from None
    except OSError as error:
        raise TargetError(f"{path}: cannot be written: {error.strerror}") from None
    print(f"{path}: written; `tilewright target check {path}` explains it")


def print_schema(_options: argparse.Namespace) -> None:
    from tilewright.targets.json_schema import json_schema

    print(json_schema(), end="")
