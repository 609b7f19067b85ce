"""A board as plain data, found by name among the bundled ones or by the path of its file."""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from tilewright.targets.consistency import check_consistency
from tilewright.targets.errors import TargetError
from tilewright.targets.groups import Cpu, Memory, Npu
from tilewright.targets.schema import key, read_table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Cpu", "Memory", "Npu", "Target", "list_targets", "load_target", "parse_target"]

BOARDS = Path(__file__).resolve().parent / "boards"
PLUG_INS = "tilewright.targets"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A board. `source` is the text of its description, `origin` the file it came from."""

    name: str = key("of the board")
    cpu: Cpu
    npu: Npu | None = None
    memory: Memory = field(default_factory=Memory)
    summary: str = key("one line for people", default="")
    source: str = field(default="", compare=False)
    origin: str = field(default="", compare=False)


def list_targets() -> list[str]:
    """Names of the bundled boards, and of those that installed packages bring."""
    return sorted({path.stem for path in BOARDS.glob("*.toml")} | _plug_ins().keys())


def load_target(name_or_path: str | os.PathLike[str]) -> Target:
    """The board of that name, or described in that file.

    Raises TargetError: unknown name, unreadable file, or a description that is wrong.
    """
    text = os.fspath(name_or_path)
    if (BOARDS / f"{text}.toml").is_file() and os.sep not in text:
        return read_target(BOARDS / f"{text}.toml")
    if text in _plug_ins():
        return read_target(_plug_in_path(_plug_ins()[text]))
    if text.endswith(".toml") or os.sep in text or Path(text).is_file():
        return read_target(Path(text))
    near = difflib.get_close_matches(text, list_targets(), 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise TargetError(
        f"{text}: no such target; {hint}known are {', '.join(list_targets())}, "
        "or give the path of a .toml file"
    )


def _plug_ins() -> dict[str, EntryPoint]:
    """Boards of other packages: an entry point's name is the board's, its value a module."""
    return {entry.name: entry for entry in entry_points(group=PLUG_INS)}


def _plug_in_path(entry: EntryPoint) -> Path:
    """NAME.toml beside the module that the entry point names."""
    try:
        module = entry.load()
        folder = Path(module.__file__).parent
    except Exception as error:
        raise TargetError(
            f"{entry.name}: the entry point {entry.value} cannot be loaded: "
            f"{type(error).__name__}: {error}; mend or remove its package"
        ) from error
    return folder / f"{entry.name}.toml"


def read_target(path: Path) -> Target:
    """The board described in the file `path`."""
    try:
        source = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise TargetError(f"{path}: no such file; `tilewright target list` names boards") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TargetError(f"{path}: cannot be read: {error}") from None
    return parse_target(source, str(path))


def parse_target(source: str, origin: str) -> Target:
    """The board described by TOML text; `origin` stands in the errors as the file."""
    try:
        table: dict[str, Any] = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise TargetError(
            f"{origin}: not valid TOML: {error}; mend that place, or start from `tilewright "
            "target new NAME`"
        ) from None
    target = read_table(Target, table, origin)
    target = dataclasses.replace(target, source=source, origin=origin)
    if target.cpu.is_native and not target.cpu.cores:
        target = dataclasses.replace(
            target, cpu=dataclasses.replace(target.cpu, cores=_usable_cores())
        )
    check_consistency(target.cpu, target.npu, origin)
    return target


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
