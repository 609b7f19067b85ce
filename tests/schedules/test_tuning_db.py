"""Tuning records: found by exactly their key, merged without doubles, safe from kills."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.schedules.tuning_db import Record, TuningDb, TuningError, schedules_version

RECORD = Record("work", "board", schedules_version(), "{}", 100, None, "simulator", 0)

WRITER = """
import sys
from pathlib import Path
from tilewright.schedules.tuning_db import Record, TuningDb, schedules_version
with TuningDb(Path(sys.argv[1]), create=True) as db:
    for trial in range(int(sys.argv[3])):
        key = sys.argv[2], "board", schedules_version()
        db.add(Record(*key, str(trial), trial, None, "test", 0))
        print(trial, flush=True)
"""


def start_writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def test_the_best_is_of_this_workload_target_and_version(tmp_path: Path) -> None:
    with TuningDb(tmp_path / "t.db", create=True) as db:
        db.add(replace(RECORD, cycles=None, error="broken"))
        assert db.best("work", "board") is None
        for other in ({"workload": "other"}, {"target": "other"}, {"version": "0.0/0"}):
            db.add(replace(RECORD, cycles=1, **other))
        assert db.best("work", "board") is None
        for cycles in (120, 90, 95):
            db.add(replace(RECORD, cycles=cycles))
        assert db.best("work", "board") == replace(RECORD, cycles=90)


def test_exports_and_databases_are_taken_in_once(tmp_path: Path) -> None:
    one, two, lines = tmp_path / "1.db", tmp_path / "2.db", tmp_path / "out.jsonl"
    with TuningDb(one, create=True) as db:
        db.add(RECORD)
        db.add(replace(RECORD, cycles=50))
        assert db.export(lines) == 2
    with TuningDb(two, create=True) as db:
        db.add(RECORD)
        assert db.take_in(lines) == 1
        assert db.take_in(one) == 0
        assert [record.cycles for record in db.records()] == [100, 50]


def test_pruning_keeps_the_best_of_this_version(tmp_path: Path) -> None:
    with TuningDb(tmp_path / "t.db", create=True) as db:
        for cycles in (120, 90, 95, None):
            db.add(replace(RECORD, cycles=cycles))
            db.add(replace(RECORD, cycles=cycles, version="0.0/0"))
        assert db.prune() == 7
        assert list(db.records()) == [replace(RECORD, cycles=90)]


def test_what_is_no_database_is_told(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match=r"t\.db: no such tuning database; make one"):
        TuningDb(tmp_path / "t.db")
    (tmp_path / "text").write_text("no database at all, but long enough to be read as one")
    with pytest.raises(TuningError, match="text: no tuning database"):
        TuningDb(tmp_path / "text")
    with (
        TuningDb(tmp_path / "t.db", create=True) as db,
        pytest.raises(TuningError, match="text: no export of a tuning database"),
    ):
        db.take_in(tmp_path / "text")


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    writers = [start_writer(path, name, 60) for name in "abcd"]
    assert all(writer.communicate() and writer.returncode == 0 for writer in writers)
    with TuningDb(path) as db:
        for name in "abcd":
            assert [record.cycles for record in db.records(name)] == list(range(60))


def test_a_killed_writer_loses_at_most_the_record_in_flight(tmp_path: Path) -> None:
    path, told = tmp_path / "t.db", {}
    for turn in range(20):
        writer = start_writer(path, f"w{turn}", 100_000)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.003 * (turn % 5))
        writer.kill()
        told[f"w{turn}"] = 1 + writer.stdout.read().count("\n")
        writer.wait()
    with TuningDb(path) as db:
        for name, printed in told.items():
            kept = len(list(db.records(name)))
            assert printed <= kept <= printed + 1
