"""A JSON schema of board descriptions, by which editors complete and check TOML files.

targets/reference.py writes it to targets/board.schema.json.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any

from tilewright.targets.description import Target
from tilewright.targets.schema import Key, is_required, key_of, table_of, type_name

FILE = Path(__file__).resolve().parent / "board.schema.json"
_TYPES = {
    "integer": "integer",
    "number": "number",
    "string": "string",
    "true or false": "boolean",
    "list of strings": "string",
    "list of numbers": "number",
}


def json_schema() -> str:
    """The schema as text, draft 7."""
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Tilewright board"}
    return json.dumps(head | _table(Target), indent=2) + "\n"


def _table(kind: type[Any]) -> dict[str, Any]:
    """Only known keys, all that are required."""
    properties, required = {}, []
    for item in dataclasses.fields(kind):
        inner, spec = table_of(kind, item.name), key_of(item)
        if inner is not None:
            summary = (inner.__doc__ or "").strip().partition("\n")[0]
            properties[item.name] = {"description": summary, **_table(inner)}
        elif spec is not None:
            properties[item.name] = _key(kind, item, spec)
        else:
            continue
        if is_required(item):
            required.append(item.name)
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required,
        "properties": properties,
    }


def _key(kind: type[Any], item: dataclasses.Field[Any], spec: Key) -> dict[str, Any]:
    wanted = type_name(typing.get_type_hints(kind)[item.name])
    value: dict[str, Any] = {"type": _TYPES[wanted]}
    if spec.low is not None:
        value |= {"minimum": spec.low, "maximum": spec.high}
    if spec.choices:
        value["enum"] = list(spec.choices)
    if wanted.startswith("list"):
        value = {"type": "array", "items": value}
    if item.default not in (None, dataclasses.MISSING):
        value["default"] = item.default
    return {"description": spec.meaning, **value}
