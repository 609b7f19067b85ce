"""`tilewright target`: the boards that are described, and whether a description is right."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tilewright.targets.description import list_targets, load_target
from tilewright.targets.errors import TargetError


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("target", help="list, show and check boards")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="the bundled boards")
    listing.set_defaults(command=list_)
    showing = actions.add_parser("show", help="what a board has and can do")
    showing.add_argument("target", metavar="NAME_OR_TOML")
    showing.set_defaults(command=show)
    checking = actions.add_parser("check", help="explain what is wrong with a description")
    checking.add_argument("file", metavar="FILE")
    checking.set_defaults(command=check_)


def list_(_options: argparse.Namespace) -> None:
    names = list_targets()
    width = max(map(len, names))
    for name in names:
        print(f"{name:<{width}}  {load_target(name).summary}".rstrip())


def show(options: argparse.Namespace) -> None:
    from tilewright.targets.describe import describe

    print(describe(load_target(options.target)))


def check_(options: argparse.Namespace) -> None:
    from tilewright.targets.describe import check

    mistakes = check(Path(options.file))
    for mistake in mistakes[:-1]:
        print(mistake)
    if mistakes:
        raise TargetError(mistakes[-1])
    print(f"{options.file}: nothing wrong")
