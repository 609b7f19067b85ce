"""Check a TOML table against a dataclass, with errors that name file, key, value and way out.

Each dataclass field carries a `Key` (made with `key`): what it means and what is allowed. The unit
is the end of the field's name, so a value a thousandfold off is told apart from a wrong one.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tilewright.targets.errors import TargetError

T = TypeVar("T")


class DescriptionError(TargetError):
    """A description with mistakes; its message is the first, `mistakes` are all."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__(mistakes[0])
        self.mistakes = mistakes


# Units by the ending of a key, in the base unit of their kind; the likeliest slip comes first.
_UNITS: dict[str, tuple[str, float]] = {
    "_mb_per_s": ("rate", 1e6),
    "_gb_per_s": ("rate", 1e9),
    "_gbit_per_s": ("rate", 1e9 / 8),
    "_bytes": ("size", 1),
    "_kib": ("size", 1024),
    "_mib": ("size", 2**20),
    "_kb": ("size", 1000),
    "_mb": ("size", 1e6),
    "_khz": ("clock", 1e3),
    "_mhz": ("clock", 1e6),
    "_ghz": ("clock", 1e9),
    "_hz": ("clock", 1),
}
_UNIT_NAMES = {
    "_bytes": "bytes", "_kib": "KiB", "_mib": "MiB", "_hz": "Hz", "_khz": "kHz", "_mhz": "MHz",
    "_ghz": "GHz", "_gb_per_s": "GB/s", "_mb_per_s": "MB/s", "_gbit_per_s": "Gbit/s",
    "_kb": "kB", "_mb": "MB",
}  # fmt: skip


@dataclass(frozen=True)
class Key:
    """What a key means and may hold: a range for numbers, choices for words."""

    meaning: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        if self.choices:
            return "one of " + ", ".join(f'"{choice}"' for choice in self.choices)
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        return ""


def key(
    meaning: str,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    default: Any = dataclasses.MISSING,
) -> Any:
    """A dataclass field that stands for one key of a description."""
    return field(default=default, metadata={"key": Key(meaning, low, high, choices)})


def key_of(item: dataclasses.Field[Any]) -> Key | None:
    """The key a field stands for; None for a table, or a field that is not read."""
    found = item.metadata.get("key")
    assert found is None or isinstance(found, Key)
    return found


def table_of(kind: type[Any], name: str) -> type[Any] | None:
    """The dataclass a field holds as a table of its own; None for a plain key."""
    hint = typing.get_type_hints(kind)[name]
    for option in [hint, *typing.get_args(hint)]:
        if dataclasses.is_dataclass(option) and isinstance(option, type):
            return option
    return None


def read_table(kind: type[T], table: Any, where: str) -> T:
    """Build `kind` from a TOML table; `where` is the file.

    Raises DescriptionError with every wrong type, value, unit, missing and unknown key.
    """
    mistakes: list[str] = []
    made = _read_table(kind, table, "", mistakes)
    if mistakes:
        raise DescriptionError([f"{where}: {mistake}" for mistake in mistakes])
    assert made is not None
    return made


def _read_table(kind: type[T], table: Any, path: str, mistakes: list[str]) -> T | None:
    """`kind` read from `table`, or None after adding to `mistakes`; `path` is its dotted name."""
    if not isinstance(table, dict):
        mistakes.append(f"{path} = {_show(table)} must be a table [{path}]")
        return None
    items = {item.name: item for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    known = [n for n, item in items.items() if key_of(item) or table_of(kind, n)]
    before = len(mistakes)
    mistakes += [_unknown(n, value, known, path) for n, value in table.items() if n not in known]
    guessed = {_nearest(name, known) for name in table if name not in known}
    values: dict[str, Any] = {}
    for name in known:
        dotted = f"{path}.{name}" if path else name
        inner = table_of(kind, name)
        if name not in table:
            if is_required(items[name]) and name not in guessed:
                mistakes.append(_missing(dotted, key_of(items[name])))
        elif inner:
            values[name] = _read_table(inner, table[name], dotted, mistakes)
        else:
            hint = typing.get_type_hints(kind)[name]
            values[name] = _read_key(items[name], hint, table[name], dotted, mistakes)
    return kind(**values) if len(mistakes) == before else None


def is_required(item: dataclasses.Field[Any]) -> bool:
    """Whether a description must have the key or table."""
    missing = dataclasses.MISSING
    return item.default is missing and item.default_factory is missing


def type_name(hint: Any) -> str:
    """How the documentation and the errors call a key's type."""
    if isinstance(hint, types.UnionType):
        hint = next(option for option in typing.get_args(hint) if option is not type(None))
    if typing.get_origin(hint) is tuple:
        return "list of numbers" if float in typing.get_args(hint) else "list of strings"
    return {int: "integer", float: "number", bool: "true or false", str: "string"}[hint]


def _read_key(
    item: dataclasses.Field[Any], hint: Any, value: Any, dotted: str, mistakes: list[str]
) -> Any:
    spec, wanted = key_of(item), type_name(hint)
    assert spec is not None
    if not _has_type(value, wanted):
        mistakes.append(f"{dotted} = {_show(value)} must be {_article(wanted)}")
    elif wanted == "list of strings":
        mistakes += [m for entry in value for m in _choice_mistakes(entry, spec, dotted)]
        return tuple(value)
    elif wanted == "list of numbers":
        mistakes += [m for entry in value for m in _range_mistakes(entry, spec, dotted)]
        return tuple(float(entry) for entry in value)
    else:
        mistakes += _choice_mistakes(value, spec, dotted) + _range_mistakes(value, spec, dotted)
    return float(value) if wanted == "number" and _has_type(value, wanted) else value


def _has_type(value: Any, wanted: str) -> bool:
    if wanted == "list of strings":
        return isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    if wanted == "list of numbers":
        return isinstance(value, list) and all(_has_type(entry, "number") for entry in value)
    if wanted == "true or false":
        return isinstance(value, bool)
    if wanted == "string":
        return isinstance(value, str)
    kinds = int if wanted == "integer" else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool)


def _choice_mistakes(value: Any, spec: Key, dotted: str) -> list[str]:
    if not spec.choices or value in spec.choices:
        return []
    near = difflib.get_close_matches(value, spec.choices, 1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    return [f"{dotted} = {_show(value)} must be {spec.allowed}{hint}"]


def _range_mistakes(value: Any, spec: Key, dotted: str) -> list[str]:
    if spec.low is None or spec.high is None or spec.low <= value <= spec.high:
        return []
    slip = _unit_slip(dotted, value, spec)
    return [f"{dotted} = {_show(value)} is outside {spec.allowed} ({spec.meaning}){slip}"]


def _missing(dotted: str, spec: Key | None) -> str:
    if spec is None:
        return f"the table [{dotted}] is missing"
    allowed = f": {spec.allowed}" if spec.allowed else ""
    return f"{dotted} is missing ({spec.meaning}{allowed})"


def _unknown(name: str, value: Any, known: list[str], path: str) -> str:
    dotted = f"{path}.{name}" if path else name
    shown = f"{dotted} = {_show(value)}" if not isinstance(value, dict) else f"[{dotted}]"
    near = _nearest(name, known)
    if near is None:
        return f"{shown} is not a key here; known are {', '.join(known)}"
    return f"{shown} is not a key; did you mean {near}{_converted(name, value, near)}?"


def _nearest(name: str, known: list[str]) -> str | None:
    """The key that was likely meant: of the same stem in another unit, or spelled alike."""
    stem, unit = _split_unit(name)
    same_stem = [other for other in known if unit and _split_unit(other)[0] == stem]
    near = same_stem or difflib.get_close_matches(name, known, 1, cutoff=0.5)
    return near[0] if near else None


def _converted(name: str, value: Any, other: str) -> str:
    """The value in the unit of the key `other`, where the units tell."""
    unit, target = _split_unit(name)[1], _split_unit(other)[1]
    if not unit or not target or unit == target or not isinstance(value, int | float):
        return ""
    if _UNITS[unit][0] != _UNITS[target][0]:
        return ""
    return f" = {value * _UNITS[unit][1] / _UNITS[target][1]:g}"


def _split_unit(name: str) -> tuple[str, str]:
    for unit in _UNITS:
        if name.endswith(unit):
            return name.removesuffix(unit), unit
    return name, ""


def _unit_slip(dotted: str, value: float, spec: Key) -> str:
    """The unit that would make the value right, when there is one."""
    unit = _split_unit(dotted)[1]
    if not unit or spec.low is None or spec.high is None:
        return ""
    kind, factor = _UNITS[unit]
    for other, (other_kind, other_factor) in _UNITS.items():
        meant = value * other_factor / factor
        if other_kind == kind and other != unit and spec.low <= meant <= spec.high:
            return f"; {value:g} looks like {_UNIT_NAMES[other]}: write {meant:g}"
    return ""


def _article(wanted: str) -> str:
    if wanted == "true or false":
        return wanted
    return f"an {wanted}" if wanted[0] in "aeiou" else f"a {wanted}"


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return f'"{value}"' if isinstance(value, str) else str(value)
