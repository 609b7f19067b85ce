"""The report on a terminal: every figure says how it was come by and stands beside its bound."""

from __future__ import annotations

from tilewright.compiler.report_text import summary

REPORT = {
    "operators": [
        {"name": "conv1", "op": "Conv", "device": "npu", "cycles": 12000, "bound_cycles": 10000,
         "reason": None},
        {"name": "a/" * 30 + "softmax", "op": "Softmax", "device": "cpu", "cycles": None,
         "bound_cycles": None, "reason": "the NPU has no softmax"},
    ],
    "totals": {
        "macs": 1234567, "cycles": 12000, "bound_cycles": 10000, "roofline_cycles": 9000,
        "latency_ms": 0.5, "arena_bytes": 2048, "arena_bound_bytes": 1024, "weight_bytes": 77,
        "crossings": 1, "mac_utilization": 0.256,
    },
    "notes": [{"kind": "copy", "name": "concat", "bytes": 64, "cause": "the split is unaligned"}],
}  # fmt: skip


def test_summary() -> None:
    assert summary(REPORT).splitlines() == [
        "2 operators: 1 on the NPU, 1 on the CPU; "
        "cycles: what it adds to the simulated whole, bound: the least it takes alone",
        "operator                                      kind     on   cycles   bound  "
        "why on the CPU",
        "conv1                                         Conv     npu  12,000  10,000",
        "...a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/softmax  Softmax  cpu       -       -  "
        "the NPU has no softmax",
        "",
        "NPU time   12,000 cycles simulated, bounded below by 10,000 (1.20 x)",
        "roofline   9,000 cycles by formula",
        "latency    0.500 ms modelled",
        "arena      2,048 bytes planned, bounded below by 1,024 (2.00 x)",
        "weights    77 bytes stored",
        "work       1,234,567 MACs counted",
        "MAC array  25.6 % busy, simulated",
        "crossings  1 between CPU and NPU",
        "copy: name concat, bytes 64, cause the split is unaligned",
    ]


def test_a_cpu_only_report_has_no_npu_figures() -> None:
    totals = dict.fromkeys(REPORT["totals"]) | {"arena_bytes": 10, "arena_bound_bytes": 10}
    text = summary({"operators": REPORT["operators"][1:], "totals": totals, "notes": []})
    assert "NPU time" not in text
    assert "cycles" not in text
    assert text.splitlines()[0] == "1 operators: 0 on the NPU, 1 on the CPU"
    assert text.splitlines()[-1] == "arena      10 bytes planned, bounded below by 10 (1.00 x)"
