"""Write measured numbers into a description, in place, with everything else as it was."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilewright.targets.errors import ProfileError
from tilewright.targets.probe import Fitted

_COMMENT_COLUMN = 34


def refit(source: str, fitted: Sequence[Fitted]) -> str:
    """The TOML text with each key's value replaced and its source given as measured."""
    lines = source.splitlines()
    for one in fitted:
        table, _, name = one.key.rpartition(".")
        _replace(lines, f"npu.{table}", name, one.measured)
    return "\n".join(lines) + "\n"


def _replace(lines: list[str], table: str, name: str, value: float) -> None:
    """In the table's lines; a key that stood at its default is added at the table's head."""
    try:
        start = next(
            i for i, line in enumerate(lines) if re.match(rf"\[{re.escape(table)}\]", line)
        )
    except StopIteration:
        raise ProfileError(
            f"[{table}]: is not written as a table of its own; give it a line [{table}]"
        ) from None
    measured = f"{f'{name} = {value:g}':<{_COMMENT_COLUMN - 1}} # measured"
    for index in range(start + 1, len(lines)):
        if lines[index].startswith("["):
            break
        if re.match(rf"{name}\s*=", lines[index]):
            lines[index] = measured
            return
    lines.insert(start + 1, measured)
