"""Tuning records in one SQLite file: appended, never changed, safe under many writers.

A record belongs to a workload, a target and a version of the schedules; it is found by exactly
those three. Each is one transaction in write-ahead mode, so that a process killed at any instant
loses at most the record it was writing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import astuple, dataclass, fields
from importlib.metadata import version
from pathlib import Path

from tilewright.targets.errors import TilewrightError

_FORMAT = 1  # one more whenever schedules change what the same choices mean
_SECONDS_TO_WAIT = 60.0  # for another writer
_COLUMNS = """
    id INTEGER PRIMARY KEY, workload TEXT NOT NULL, target TEXT NOT NULL, version TEXT NOT NULL,
    choices TEXT NOT NULL, cycles INTEGER, error TEXT, source TEXT NOT NULL, seed INTEGER NOT NULL
"""


class TuningError(TilewrightError):
    """A tuning database or a tuning run that cannot be used."""


@dataclass(frozen=True)
class Record:
    """`cycles` measured by `source` ("simulator"), or the `error` that came instead."""

    workload: str
    target: str
    version: str
    choices: str
    cycles: int | None
    error: str | None
    source: str
    seed: int


_FIELDS = ", ".join(field.name for field in fields(Record))


def schedules_version() -> str:
    """Records of another version are not used."""
    return f"{version('tilewright')}/{_FORMAT}"


class TuningDb:
    """Opened for a while; use it as a context manager."""

    def __init__(self, path: Path, create: bool = False) -> None:
        """Raises TuningError where there is no database and none is to be made."""
        self.path = path
        if not create and not path.is_file():
            raise TuningError(f"{path}: no such tuning database; make one with tilewright tune")
        try:
            self._connection = sqlite3.connect(path, _SECONDS_TO_WAIT, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS records ({_COLUMNS})")
            self._connection.execute(
                "CREATE INDEX IF NOT EXISTS by_key ON records (workload, target, version)"
            )
            self._connection.execute(f"SELECT {_FIELDS} FROM records LIMIT 1")
        except sqlite3.Error as error:
            raise TuningError(f"{path}: no tuning database ({error}); name another file") from None

    def __enter__(self) -> TuningDb:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def add(self, record: Record) -> None:
        marks = ", ".join("?" for _ in fields(Record))
        statement = f"INSERT INTO records ({_FIELDS}) VALUES ({marks})"
        self._connection.execute(statement, astuple(record))

    def records(
        self, workload: str | None = None, target: str | None = None, version: str | None = None
    ) -> Iterator[Record]:
        """Those that match what is given, oldest first."""
        given = {"workload": workload, "target": target, "version": version}
        wanted = {name: value for name, value in given.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in wanted) or "1"
        statement = f"SELECT {_FIELDS} FROM records WHERE {where} ORDER BY id"
        for row in self._connection.execute(statement, tuple(wanted.values())):
            yield Record(*row)

    def best(self, workload: str, target: str) -> Record | None:
        """The fewest cycles measured for this version; the oldest among equals."""
        found = self.records(workload, target, schedules_version())
        measured = [record for record in found if record.cycles is not None]
        return min(measured, key=lambda record: record.cycles or 0, default=None)

    def export(self, path: Path) -> int:
        """Write all records as lines of JSON; says how many."""
        lines = [json.dumps(vars(record), sort_keys=True) for record in self.records()]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return len(lines)

    def take_in(self, path: Path) -> int:
        """Add what an export or another database holds and this one does not; says how many."""
        known = set(self.records())
        new = [record for record in _read(path) if record not in known]
        self._connection.execute("BEGIN IMMEDIATE")
        for record in new:
            self.add(record)
        self._connection.execute("COMMIT")
        return len(new)

    def prune(self) -> int:
        """Drop other versions' records and all but the best of each workload; says how many."""
        best = "SELECT id, MIN(cycles) FROM records WHERE version = ? AND cycles IS NOT NULL "
        keep = f"SELECT id FROM ({best} GROUP BY workload, target)"
        statement = f"DELETE FROM records WHERE id NOT IN ({keep})"
        return self._connection.execute(statement, (schedules_version(),)).rowcount


def _read(path: Path) -> list[Record]:
    if not path.is_file():
        raise TuningError(f"{path}: no such file; name an export or a tuning database")
    if path.read_bytes()[:15] == b"SQLite format 3":
        with TuningDb(path) as other:
            return list(other.records())
    with closing(path.open(encoding="utf-8")) as lines:
        try:
            return [Record(**json.loads(line)) for line in lines]
        except (ValueError, TypeError) as error:
            raise TuningError(
                f"{path}: no export of a tuning database ({error}); export it again"
            ) from None
