"""The ONNX standard's node tests: what passes keeps passing, and nothing gives a wrong value."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.onnx_judge import RIGHT, WRONG, judge_all
from tests.standard_node_tests import node_tests

PASSING = (Path(__file__).parents[1] / "node_tests_passing.txt").read_text().split()


def test_a_sample_passes() -> None:
    verdicts = judge_all([node_tests()[name].case() for name in PASSING[::16]])
    assert {name: one for name, one in verdicts.items() if one.kind != RIGHT} == {}


@pytest.mark.long
def test_what_passed_passes_and_nothing_is_wrong() -> None:
    tests = [test for test in node_tests().values() if not test.is_outside]
    verdicts = judge_all([test.case() for test in tests])
    assert {name: verdicts[name] for name in PASSING if verdicts[name].kind != RIGHT} == {}
    assert {name: one for name, one in verdicts.items() if one.kind == WRONG} == {}
