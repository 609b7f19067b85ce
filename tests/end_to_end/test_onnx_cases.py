"""Every small ONNX model is right or refused with a reason and a way round, and most are right."""

from __future__ import annotations

import pytest

from tests.onnx_cases import small_cases
from tests.onnx_judge import REFUSED, RIGHT, Verdict, judge_all

REFUSED_CASES = {
    "071_topk_runtime_k": "TopK_v: the number of results of TopK is computed at run time",
    "127_nms_basic": "NonMaxSuppression_y: the shape of its result depends on the data",
    "182_pad_runtime_pads": "Pad_y: the padding of Pad is computed at run time",
    "184_nonzero": "NonZero_y: the shape of its result depends on the data",
}


def check(verdicts: dict[str, Verdict]) -> None:
    for name, verdict in verdicts.items():
        start = REFUSED_CASES.get(name)
        assert verdict.kind == (REFUSED if start else RIGHT), (name, verdict)
        if start:
            assert verdict.reason.startswith(start), verdict
            assert "; " in verdict.reason, "it names no way round"


def test_a_third_of_the_cases() -> None:
    cases = small_cases()
    check(judge_all(cases[::3]))
    assert len(cases) - len(REFUSED_CASES) >= 120


@pytest.mark.long
def test_all_cases() -> None:
    check(judge_all(small_cases()))
