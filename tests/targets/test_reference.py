"""The documents say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.targets.isa import INSTRUCTIONS
from tilewright.targets.isa.instructions import flag_fields, payload_fields
from tilewright.targets.isa.meanings import MEANINGS
from tilewright.targets.reference import TABLES, with_tables

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", sorted(TABLES))
def test_tables_in_the_documents_are_up_to_date(name: str) -> None:
    document = (DOCS / name).read_text()
    assert document == with_tables(document, TABLES[name]()), "see targets/reference.py"


def test_every_field_has_a_meaning_and_no_meaning_is_left_over() -> None:
    fields = {
        item.name
        for kind in INSTRUCTIONS.values()
        for item in (*payload_fields(kind), *flag_fields(kind))
    }
    assert fields == set(MEANINGS)
