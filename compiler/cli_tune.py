"""`tilewright tune`, and `tilewright db` for the records it leaves."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tilewright.compiler.cli_compile import shape_argument

_UNITS = {"s": 1, "m": 60, "h": 3600}


def add_commands(commands: Any) -> None:
    tune = commands.add_parser("tune", help="search for faster schedules of a model's NPU regions")
    tune.add_argument("model", metavar="MODEL", help="an ONNX file")
    tune.add_argument("--target", required=True, metavar="NAME_OR_TOML", help="a board")
    tune.add_argument("--db", required=True, metavar="FILE", help="the tuning database")
    tune.add_argument("--trials", type=_count, metavar="N", help="trials for each region")
    tune.add_argument("--time", type=_seconds, metavar="8h", help="for how long: 30s, 20m, 8h")
    tune.add_argument("--seed", type=int, default=0, help="of the search (default: 0)")
    tune.add_argument(
        "--shape", action="append", default=[], type=shape_argument, metavar="NAME=1,3,224,224",
        help="fix an input's shape; once for each input",
    )  # fmt: skip
    tune.set_defaults(command=tune_, parser=tune)

    db = commands.add_parser("db", help="list, move and prune tuning records")
    actions = db.add_subparsers(metavar="ACTION", required=True)
    for name, text, other in (
        ("list", "what is recorded, by workload and target", None),
        ("prune", "keep the best of each workload and this version only", None),
        ("export", "write all records as lines of JSON", "OUT"),
        ("import", "add the records of an export", "IN"),
        ("merge", "add the records of another database", "OTHER"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("db", metavar="FILE", help="the tuning database")
        if other:
            action.add_argument("other", metavar=other)
        action.set_defaults(command=db_, action=name)


def tune_(options: argparse.Namespace) -> None:
    if options.trials is None and options.time is None:
        options.parser.error("give --trials N, --time 8h, or both")
    from tilewright.compiler.compile import Options
    from tilewright.compiler.tune import Budget, tune_model
    from tilewright.targets.description import load_target

    wishes = Options(shapes=dict(options.shape), progress=sys.stderr.isatty())
    budget = Budget(options.trials, options.time)
    target = load_target(options.target)
    print(f"seed {options.seed}")
    tuned = tune_model(options.model, target, wishes, Path(options.db), budget, options.seed)
    for one in tuned:
        print(
            f"{one.name}: {one.untuned_cycles} -> {one.best_cycles} cycles simulated "
            f"(bound {one.bound_cycles}), {one.trials} trials, {one.known} of them known, "
            f"{one.failed} failed"
        )


def db_(options: argparse.Namespace) -> None:
    from tilewright.schedules.tuning_db import TuningDb

    path = Path(options.db)
    with TuningDb(path, create=options.action in ("import", "merge")) as db:
        if options.action == "list":
            _list(db)
        elif options.action == "prune":
            print(f"{path}: {db.prune()} records dropped")
        elif options.action == "export":
            print(f"{options.other}: {db.export(Path(options.other))} records written")
        else:
            print(f"{path}: {db.take_in(Path(options.other))} records added")


def _list(db: Any) -> None:
    keys = Counter((r.workload, r.target, r.version) for r in db.records())
    print("workload      target        version    records  failed  best cycles")
    for (workload, target, version), count in sorted(keys.items()):
        found = list(db.records(workload, target, version))
        cycles = [record.cycles for record in found if record.cycles is not None]
        print(
            f"{workload[:12]}  {target[:12]}  {version:9}  {count:7}  {count - len(cycles):6}  "
            f"{min(cycles, default='-'):>11}"
        )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of trials; write for instance 200")
    return int(text)


def _seconds(text: str) -> float:
    unit = _UNITS.get(text[-1:], 0)
    try:
        seconds = float(text[:-1]) * unit
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write for instance 30s, 20m or 8h")
    return seconds
