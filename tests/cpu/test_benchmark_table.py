"""The tables of docs/benchmarks-cpu.md say what the numbers given to them say."""

from __future__ import annotations

import pytest

from benchmarks.cpu_table import OURS, Row, geometric_mean, summary, table


def row(threads: int, ours: float, **others: float) -> Row:
    times = {OURS: ours, "onnxruntime": 2.0, "onnxruntime, set": 1.0, **others}
    return Row("net", threads, times, 1.05, 0.25, "1e-06", "conv (Conv), 40 %" if ours > 1 else "")


def test_the_ratio_is_to_the_fastest_that_ran() -> None:
    assert row(1, 0.5).over_best == 0.5
    assert row(1, 0.5, OpenVINO=0.25).over_best == 2.0
    assert row(1, 0.5, OpenVINO=0.25).over_onnxruntime == 0.5
    assert row(1, 1.2).misses and not row(1, 1.1).misses


def test_a_line_has_every_time_and_marks_a_miss() -> None:
    lines = table([row(1, 0.5), row(2, 1.5, OpenVINO=123.4)]).splitlines()
    assert lines[2] == "| net | 1 | 0.5 | 2 | 1 | - | 0.50 | 1.05 | 0.2 | 1e-06 |  |"
    assert lines[3] == (
        "| net | 2 | 1.5 | 2 | 1 | 123 | **1.50** | 1.05 | 0.2 | 1e-06 | conv (Conv), 40 % |"
    )
    assert len({line.count("|") for line in lines}) == 1


def test_means_are_geometric_and_by_number_of_threads() -> None:
    assert geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)
    one, two = summary([row(1, 0.5), row(1, 2.0), row(2, 0.5, OpenVINO=0.25)]).splitlines()
    assert one == (
        "- 1 thread, 2 rows: geometric mean of ours / best 1.00, of ours / onnxruntime 1.00; "
        "above 1.1: net; other processes kept 0.2 CPUs busy (median)"
    )
    assert two == (
        "- 2 threads, 1 rows: geometric mean of ours / best 2.00, of ours / onnxruntime 0.50; "
        "above 1.1: net; other processes kept 0.2 CPUs busy (median)"
    )
