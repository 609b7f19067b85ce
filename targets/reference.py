"""Write docs/instruction-set.md, docs/targets.md and board.schema.json from what they document.

Run `python -m tilewright.targets.reference DOCS` after a change of either; tests compare.
"""

from __future__ import annotations

import dataclasses
import inspect
import struct
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tilewright.targets import json_schema
from tilewright.targets.description import Target
from tilewright.targets.isa import INSTRUCTIONS, Instruction
from tilewright.targets.isa.instructions import (
    INSTRUCTION_BYTES,
    PAYLOAD_BYTES,
    flag_fields,
    payload_fields,
    word,
)
from tilewright.targets.isa.meanings import MEANINGS
from tilewright.targets.schema import Key, key_of, table_of, type_name

_BEGIN, _END = "<!-- begin generated -->\n", "<!-- end generated -->\n"


def with_tables(document: str, tables: str) -> str:
    """`document` with the part between the markers replaced."""
    before, rest = document.split(_BEGIN)
    after = rest.split(_END)[1]
    return before + _BEGIN + tables + _END + after


def instruction_tables() -> str:
    """A section for each instruction: what it does and every field with its place."""
    return "".join(map(_instruction_section, INSTRUCTIONS.values()))


def key_tables() -> str:
    """A section for each table of a description, with every key."""
    return "".join(_key_sections(Target, ""))


TABLES: dict[str, Callable[[], str]] = {
    "instruction-set.md": instruction_tables,
    "targets.md": key_tables,
}


def _instruction_section(kind: type[Instruction]) -> str:
    engine = kind.engine.name if kind.engine is not None else "none: the dispatcher runs it"
    lines = [f"### {kind.opcode.name} (opcode {kind.opcode:d})", "", f"Engine: {engine}.", ""]
    lines += [_own_docstring(kind), ""]
    rows = [*_flag_rows(kind), *_payload_rows(kind)]
    if rows:
        lines += ["| byte | type | field | meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines) + "\n"


def _own_docstring(kind: type[Instruction]) -> str:
    """The class's docstring, and the common one it shares with its siblings."""
    owners = [owner for owner in (kind, *kind.__bases__) if owner is not Instruction]
    texts = [owner.__doc__ or "" for owner in owners]
    # A class without a docstring gets its signature from `dataclass`.
    own = [
        text
        for owner, text in zip(owners, texts, strict=True)
        if not text.startswith(owner.__name__ + "(")
    ]
    return "\n\n".join(map(inspect.cleandoc, own))


def _flag_rows(kind: type[Instruction]) -> Iterator[str]:
    for bit, item in enumerate(flag_fields(kind)):
        yield f"| 1, bit {bit} | flag | `{item.name}` | {MEANINGS[item.name]} |"


def _payload_rows(kind: type[Instruction]) -> Iterator[str]:
    offset = INSTRUCTION_BYTES - PAYLOAD_BYTES
    for item in payload_fields(kind):
        place = word(item)
        shown = "i8 or u8" if place.format == "byte" else place.type_name
        yield f"| {offset} | {shown} | `{item.name}` | {MEANINGS[item.name]} |"
        offset += 1 if place.format == "byte" else struct.calcsize("<" + place.format)


def _key_sections(kind: type[Any], path: str) -> Iterator[str]:
    rows, inner = [], []
    hints = typing.get_type_hints(kind)
    for item in dataclasses.fields(kind):
        spec, table = key_of(item), table_of(kind, item.name)
        dotted = f"{path}.{item.name}" if path else item.name
        if spec is not None:
            rows.append(_key_row(item, spec, type_name(hints[item.name])))
        elif table is not None:
            inner.append((table, dotted))
    if rows:
        title = f"[{path}]" if path else "Top of the file"
        text = [f"### {title}", "", *_introduction(kind, path)]
        text += ["| key | type | allowed | default | meaning |", "|---|---|---|---|---|", *rows]
        yield "\n".join(text) + "\n\n"
    for table, dotted in inner:
        yield from _key_sections(table, dotted)


def _introduction(kind: type[Any], path: str) -> list[str]:
    text = inspect.cleandoc(kind.__doc__ or "").removeprefix(f"[{path}]").strip()
    return [text, ""] if path and text else []


def _key_row(item: dataclasses.Field[Any], spec: Key, wanted: str) -> str:
    if item.default is dataclasses.MISSING:
        default = "required"
    elif item.default in (None, ""):
        default = "none"
    else:
        default = f"`{str(item.default).lower()}`"
    allowed = spec.allowed.replace("one of ", "")
    return f"| `{item.name}` | {wanted} | {allowed} | {default} | {spec.meaning} |"


def main(docs: Path) -> None:
    """Bring the documents in the folder `docs` up to date."""
    for name, tables in TABLES.items():
        path = docs / name
        path.write_text(with_tables(path.read_text(), tables()))
    json_schema.FILE.write_text(json_schema.json_schema())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
