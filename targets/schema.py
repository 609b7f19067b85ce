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


def read_table(kind: type[T], table: Any, where: str, path: str = "") -> T:
    """Build `kind` from a TOML table; `where` is the file, `path` the dotted name so far.

    Raises TargetError on a wrong type, value, unit, a missing or an unknown key.
    """
    if not isinstance(table, dict):
        raise TargetError(f"{where}: {path} = {_show(table)} must be a table [{path}]")
    items = {item.name: item for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    known = [n for n, item in items.items() if key_of(item) or table_of(kind, n)]
    for name, value in table.items():
        if name not in known:
            raise TargetError(f"{where}: {_unknown(name, value, known, path)}")
    values: dict[str, Any] = {}
    for name in known:
        dotted = f"{path}.{name}" if path else name
        inner = table_of(kind, name)
        if name not in table:
            if not _is_required(items[name]):
                continue
            raise TargetError(f"{where}: {_missing(dotted, key_of(items[name]))}")
        if inner:
            values[name] = read_table(inner, table[name], where, dotted)
        else:
            hint = typing.get_type_hints(kind)[name]
            values[name] = _read_key(items[name], hint, table[name], where, dotted)
    return kind(**values)


def type_name(hint: Any) -> str:
    """How the documentation and the errors call a key's type."""
    if isinstance(hint, types.UnionType):
        hint = next(option for option in typing.get_args(hint) if option is not type(None))
    if typing.get_origin(hint) is tuple:
        return "list of strings"
    return {int: "integer", float: "number", bool: "true or false", str: "string"}[hint]


def _is_required(item: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return item.default is missing and item.default_factory is missing


def _read_key(item: dataclasses.Field[Any], hint: Any, value: Any, where: str, dotted: str) -> Any:
    spec = key_of(item)
    assert spec is not None
    wanted = type_name(hint)
    if not _has_type(value, wanted):
        raise TargetError(f"{where}: {dotted} = {_show(value)} must be {_article(wanted)}")
    if wanted == "list of strings":
        for entry in value:
            _check_choice(entry, spec, where, dotted)
        return tuple(value)
    if wanted == "number":
        value = float(value)
    if spec.choices:
        _check_choice(value, spec, where, dotted)
    if spec.low is not None and spec.high is not None and not spec.low <= value <= spec.high:
        slip = _unit_slip(dotted, value, spec)
        raise TargetError(
            f"{where}: {dotted} = {_show(value)} is outside {spec.allowed} ({spec.meaning}){slip}"
        )
    return value


def _has_type(value: Any, wanted: str) -> bool:
    if wanted == "list of strings":
        return isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    if wanted == "true or false":
        return isinstance(value, bool)
    if wanted == "string":
        return isinstance(value, str)
    kinds = int if wanted == "integer" else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool)


def _check_choice(value: Any, spec: Key, where: str, dotted: str) -> None:
    if spec.choices and value not in spec.choices:
        near = difflib.get_close_matches(value, spec.choices, 1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise TargetError(f"{where}: {dotted} = {_show(value)} must be {spec.allowed}{hint}")


def _missing(dotted: str, spec: Key | None) -> str:
    if spec is None:
        return f"the table [{dotted}] is missing"
    allowed = f": {spec.allowed}" if spec.allowed else ""
    return f"{dotted} is missing ({spec.meaning}{allowed})"


def _unknown(name: str, value: Any, known: list[str], path: str) -> str:
    dotted = f"{path}.{name}" if path else name
    shown = f"{dotted} = {_show(value)}" if not isinstance(value, dict) else f"[{dotted}]"
    stem, unit = _split_unit(name)
    same_stem = [other for other in known if unit and _split_unit(other)[0] == stem]
    near = same_stem or difflib.get_close_matches(name, known, 1, cutoff=0.5)
    if not near:
        return f"{shown} is not a key here; known are {', '.join(known)}"
    return f"{shown} is not a key; did you mean {near[0]}{_converted(unit, value, near[0])}?"


def _converted(unit: str, value: Any, other: str) -> str:
    target = _split_unit(other)[1]
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
