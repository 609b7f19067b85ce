"""From nothing to a board: the template, the schema for editors, boards of other packages."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright.targets import list_targets, load_target
from tilewright.targets.description import parse_target
from tilewright.targets.errors import TargetError
from tilewright.targets.json_schema import FILE, json_schema
from tilewright.targets.template import template

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMA = json.loads(json_schema())


@pytest.mark.parametrize("like", list_targets())
def test_a_template_is_a_sound_description_of_the_same_numbers(like: str) -> None:
    board = load_target(like)
    made = parse_target(template("mine", board), "mine.toml")
    assert made.name == "mine"
    assert (made.cpu, made.npu, made.memory) == (board.cpu, board.npu, board.memory)


def test_a_template_explains_every_key() -> None:
    lines = template("mine", load_target("edge-64")).splitlines()
    keys = [line for line in lines[5:] if " = " in line]
    assert all(line.lstrip("# ").count("#") == 1 for line in keys)
    for words in ("[npu.thermal]", "# order = ", "reduction lanes (1 to 1024); assumed"):
        assert any(words in line for line in lines), words


def test_a_template_without_an_npu_says_how_to_get_one() -> None:
    assert "# [npu]: for a board that has one" in template("mine", load_target("mini-pc"))


def test_the_schema_file_is_up_to_date() -> None:
    assert FILE.read_text() == json_schema(), "see targets/reference.py"


@pytest.mark.parametrize("name", list_targets())
def test_every_bundled_board_fits_the_schema(name: str) -> None:
    assert list(problems(tomllib.loads(load_target(name).source), SCHEMA)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rows = 16", "rows = 0"),
        ("rows = 16", "rows = 16.5"),
        ("rows = 16", ""),
        ("rows = 16", "rows = 16\nlines = 16"),
        ('reduction = "flattened"', 'reduction = "flat"'),
        ('["int8", "uint8"]', '["int9"]'),
    ],
)
def test_the_schema_finds_mistakes(old: str, new: str) -> None:
    source = load_target("mcu-16").source
    assert old in source
    assert list(problems(tomllib.loads(source.replace(old, new, 1)), SCHEMA))


def test_a_board_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "acme-1 = acme_boards")
    (tmp_path / "acme_boards").mkdir()
    (tmp_path / "acme_boards" / "__init__.py").write_text("")
    (tmp_path / "acme_boards" / "acme-1.toml").write_text(template("acme-1", load_target("mcu-16")))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "acme-1" in list_targets()
    assert load_target("acme-1").npu == load_target("mcu-16").npu


def test_a_board_of_a_broken_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "acme-2 = not_there")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(TargetError, match="acme-2: the entry point not_there cannot be loaded"):
        load_target("acme-2")


def install(folder: Path, entry: str) -> None:
    record = folder / "acme-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text(f"[tilewright.targets]\n{entry}\n")


_KINDS: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}


def problems(value: Any, schema: dict[str, Any]) -> list[str]:
    """What the parts of JSON schema that ours uses find wrong."""
    if not isinstance(value, _KINDS[schema["type"]]):
        return [f"{value} is no {schema['type']}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{value} is none of {schema['enum']}")
    if "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
        found.append(f"{value} is out of range")
    if schema["type"] == "array":
        found += [problem for item in value for problem in problems(item, schema["items"])]
    if schema["type"] == "object":
        known = schema["properties"]
        found += [f"{key} is missing" for key in schema["required"] if key not in value]
        found += [f"{key} is unknown" for key in value if key not in known]
        found += [p for key in value if key in known for p in problems(value[key], known[key])]
    return found
