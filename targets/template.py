"""Write a new board's description: every key with its meaning, ready to be corrected."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from tilewright.targets.description import Target
from tilewright.targets.schema import Key, is_required, key_of, table_of

_COMMENT_COLUMN = 40


def template(name: str, like: Target) -> str:
    """A description named `name` with the numbers of `like`; every number says it is assumed.

    Keys and tables that may be left out and that `like` has not stand there commented out.
    """
    head = [
        f"# {name}: numbers of {like.name} to start from. Replace each, and write its source in",
        '# place of "assumed". `tilewright target check FILE` explains every mistake, `tilewright',
        "# target schema` prints a JSON schema by which editors complete and check keys.",
        f'name = "{name}"',
        'summary = "one line for people"',
    ]
    return "\n".join([*head, *_tables(Target, like, "")]) + "\n"


def _tables(kind: type[Any], value: Any, path: str) -> Iterator[str]:
    for item in dataclasses.fields(kind):
        inner = table_of(kind, item.name)
        if inner is None:
            continue
        dotted = f"{path}.{item.name}" if path else item.name
        held = getattr(value, item.name) if value is not None else None
        mark = "" if held is not None else "# "
        yield ""
        if held is None and not path:
            yield f"# [{dotted}]: for a board that has one, begin with `--like` such a board."
            continue
        yield f"{mark}[{dotted}]".ljust(_COMMENT_COLUMN) + f"# {_summary(inner)}"
        for field in dataclasses.fields(inner):
            spec = key_of(field)
            if spec is not None:
                yield _line(field, spec, held)
        yield from _tables(inner, held, dotted)


def _line(item: dataclasses.Field[Any], spec: Key, held: Any) -> str:
    """`key = value  # meaning (allowed); assumed`, commented out where it may be left out."""
    value = getattr(held, item.name) if held is not None else None
    is_left_out = held is None or (not is_required(item) and value == item.default)
    shown = _toml(value) if value not in (None, ()) else _toml(_example(spec, item))
    allowed = f" ({spec.allowed})" if spec.allowed else ""
    source = "" if isinstance(value, str | bool | tuple) else "; assumed"
    text = f"{'# ' if is_left_out else ''}{item.name} = {shown}"
    return f"{text} ".ljust(_COMMENT_COLUMN) + f"# {spec.meaning}{allowed}{source}"


def _example(spec: Key, item: dataclasses.Field[Any]) -> Any:
    """Something that may stand there, where nothing is known."""
    if item.default not in (None, dataclasses.MISSING):
        return item.default
    if spec.choices:
        return spec.choices[0]
    return "" if spec.low is None else spec.low


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return f"{value:g}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _summary(kind: type[Any]) -> str:
    text = (kind.__doc__ or "").partition("]")[2].strip().partition("\n")[0]
    return text.rstrip(".") or "what is drawn for each"
