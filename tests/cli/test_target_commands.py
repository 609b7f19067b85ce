"""`tilewright target`: what it prints, and what it says about mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.compiler import cli

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_new_board_passes_its_check(capsys: Capture) -> None:
    assert cli.main(["target", "new", "mine"]) == 0
    assert "tilewright target check mine.toml" in capsys.readouterr().out
    assert cli.main(["target", "check", "mine.toml"]) == 0
    printed = capsys.readouterr().out
    assert "mine.toml: nothing wrong" in printed
    assert "8.192 TOPS int8 peak = 64 rows x 64 columns" in printed
    assert "operations a byte of DRAM" in printed
    assert "TOPS/W at peak" in printed


def test_a_new_board_overwrites_nothing(capsys: Capture) -> None:
    Path("mine.toml").write_text("mine")
    assert cli.main(["target", "new", "mine"]) == 2
    assert "mine.toml: exists already" in capsys.readouterr().err
    assert Path("mine.toml").read_text() == "mine"


def test_a_new_board_needs_a_name_that_is_a_file(capsys: Capture) -> None:
    assert cli.main(["target", "new", "../mine"]) == 2
    assert "../mine: a board's name has letters" in capsys.readouterr().err


def test_a_new_board_like_another(capsys: Capture) -> None:
    assert cli.main(["target", "new", "mine", "--like", "k210"]) == 0
    assert "rows = 9 " in Path("mine.toml").read_text()


def test_a_backend_that_is_not_installed(capsys: Capture) -> None:
    cli.main(["target", "new", "mine"])
    text = Path("mine.toml").read_text()
    Path("mine.toml").write_text(text.replace('# backend = "tilewright"', 'backend = "acme"', 1))
    assert cli.main(["target", "check", "mine.toml"]) == 2
    assert 'npu.backend = "acme": no such backend is installed' in capsys.readouterr().err


def test_the_schema_is_json(capsys: Capture) -> None:
    assert cli.main(["target", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert "npu" in schema["properties"]
    assert schema["required"] == ["name", "cpu"]
