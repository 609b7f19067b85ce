"""`tilewright tune`: never worse, same trials for a seed, same bits, goes on after a kill."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler import cli, compile_model
from tilewright.compiler.compile import Options
from tilewright.compiler.tune import Budget, tune_model
from tilewright.schedules.npu import tune
from tilewright.schedules.npu.choices import Choices
from tilewright.schedules.npu.planning import Chain
from tilewright.schedules.npu.tiling import Tile
from tilewright.schedules.tuning_db import TuningDb, TuningError
from tilewright.targets.description import load_target

MODEL = Path(__file__).parents[1] / "models" / "resnet8_cifar_int8.onnx"
BOARD = load_target("edge-128")
TRIALS = 20  # enough for the correction to be learned and used


def tuned(db: Path, trials: int, seed: int = 0) -> list[str]:
    """The choices on record after tuning."""
    tune_model(MODEL, BOARD, Options(), db, Budget(trials, None), seed)
    with TuningDb(db) as records:
        return [record.choices for record in records.records()]


def test_tuned_is_no_worse_and_gives_the_same_bits(tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    (result,) = tune_model(MODEL, BOARD, Options(), db, Budget(TRIALS, None), 0)
    assert result.best_cycles is not None and result.untuned_cycles is not None
    assert result.bound_cycles <= result.best_cycles <= result.untuned_cycles
    plain, better = compile_model(MODEL, BOARD), compile_model(MODEL, BOARD, db=db)
    assert better.report["totals"]["cycles"] <= plain.report["totals"]["cycles"]
    (port,) = plain.manifest["inputs"]
    data = np.random.default_rng(0).integers(0, 256, port["shape"]).astype(port["dtype"])
    expected, found = plain.run({port["name"]: data}), better.run({port["name"]: data})
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


def test_a_search_goes_on_where_it_ended_and_repeats_itself(tmp_path: Path) -> None:
    whole = tuned(tmp_path / "whole.db", 6)
    assert len(set(whole)) == 6
    assert tuned(tmp_path / "parts.db", 2) == whole[:2]
    assert tuned(tmp_path / "parts.db", 6) == whole
    assert tuned(tmp_path / "other.db", 6, seed=1) != whole


def test_a_failing_candidate_is_recorded_and_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = tune.RegionSearch._measure

    def fail_after_the_first(search: tune.RegionSearch, choices: Choices) -> int:
        if len(search._seen) > 1:
            raise RuntimeError("the board hangs")
        return measure(search, choices)

    monkeypatch.setattr(tune.RegionSearch, "_measure", fail_after_the_first)
    (result,) = tune_model(MODEL, BOARD, Options(), tmp_path / "t.db", Budget(3, None), 0)
    assert (result.trials, result.failed, result.best_cycles) == (3, 2, result.untuned_cycles)
    with TuningDb(tmp_path / "t.db") as db:
        assert [record.error for record in db.records()][1:] == [
            "RuntimeError: the board hangs"
        ] * 2


def test_a_run_that_measures_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_search: tune.RegionSearch, _choices: Choices) -> int:
        raise RuntimeError("the board hangs")

    monkeypatch.setattr(tune.RegionSearch, "_measure", fail)
    command = ["tune", str(MODEL), "--target", "edge-128", "--db", str(tmp_path / "t.db")]
    assert cli.main([*command, "--trials", "2"]) == 2
    assert "no trial could be measured" in capsys.readouterr().err


def test_a_board_without_npu_cannot_be_tuned_for(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match="host: has no NPU to tune for"):
        tune_model(MODEL, load_target("host"), Options(), tmp_path / "t.db", Budget(1, None), 0)


def test_choices_survive_as_text() -> None:
    chain = Chain(1, 3, (0, 4, 8), skewed=True)
    choices = Choices((chain,), 16, ("t1",), {2: Tile(1, 2, 3, 4, True)})
    assert Choices.from_text(choices.to_text()) == choices


@pytest.mark.long
def test_killed_twenty_times_it_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    command = [sys.executable, "-m", "tilewright.compiler.cli", "tune", str(MODEL)]
    command += ["--target", "edge-128", "--db", str(db), "--trials", "30"]
    for turn in range(20):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=1.5 + 0.35 * turn)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert tuned(db, 30) == tuned(tmp_path / "whole.db", 30)
