"""docs/boards.md shows every board; benchmarks/boards_page.py writes it."""

from __future__ import annotations

from pathlib import Path

from tilewright.targets import list_targets, load_target

PAGE = Path(__file__).parents[2] / "docs" / "boards.md"


def test_every_board_has_its_row_of_sizes_and_latencies() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    named = [row.split("`")[1] for row in rows]
    for name in list_targets():
        # CPU and latency for each; the NPU's sizes and its own times where there is one.
        assert named.count(name) == (4 if load_target(name).npu else 2), name
    assert set(named) == set(list_targets())


def test_the_sizes_are_those_of_the_descriptions() -> None:
    rows = {
        line.split("`")[1]: [cell.strip() for cell in line.split("|")[1:-1]]
        for line in PAGE.read_text().partition("CPU of")[0].splitlines()
        if line.startswith("| `")
    }
    for name, cells in rows.items():
        npu = load_target(name).npu
        assert npu is not None
        assert cells[1] == f"{npu.array.rows} x {npu.array.columns}"
        assert cells[3] == f"{npu.peak_tops:.4g}"
        assert cells[4] == f"{npu.memory.sram_kib:,} KiB"
