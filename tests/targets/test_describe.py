"""What a person is told about a board."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.targets import load_target
from tilewright.targets.describe import bottlenecks, check, describe, machine_balance
from tilewright.targets.description import parse_target


def test_peak_speed_and_how_it_follows() -> None:
    text = describe(load_target("edge-128"))
    assert (
        "32.77 TOPS int8 peak = 128 rows x 128 columns = 16,384 MACs x 2 operations x 1000 MHz"
        in text
    )
    assert "2,560 operations a byte of DRAM" in text


def test_balance_is_operations_a_byte() -> None:
    npu = load_target("mcu-16").npu
    assert npu is not None
    assert machine_balance(npu) == pytest.approx(2 * 256 * 400e6 / 1.6e9)


def test_a_cpu_only_board() -> None:
    text = describe(load_target("raspberry-pi-4"))
    assert "4 x cortex-a72" in text
    assert "48 GFLOP/s" in text
    assert "npu" not in text


def test_every_bundled_board_is_free_of_bottlenecks() -> None:
    for name in ("mcu-16", "edge-128"):
        assert bottlenecks(load_target(name)) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("dram_gb_per_s = 12.8", "dram_gb_per_s = 100", "takes less than DRAM delivers"),
        ("macs_per_cycle = 1152", "macs_per_cycle = 16", "depthwise reaches 16 of 16,384 MACs"),
        ("lanes = 128", "lanes = 8", "vector.lanes = 8 requantise fewer than a quarter"),
        ("accumulator_kib = 256", "accumulator_kib = 32", "the array waits for weights"),
        ("dram_gb_per_s = 12.8", "dram_gb_per_s = 0.01", "no operator that fits the SRAM"),
    ],
)
def test_bottlenecks(old: str, new: str, expected: str) -> None:
    source = load_target("edge-128").source
    assert old in source
    slower = parse_target(source.replace(old, new, 1), "x.toml")
    [warning] = [text for text in bottlenecks(slower) if expected in text]
    assert f"warning    {warning}" in describe(slower)


def test_heat_and_what_cooling_takes() -> None:
    board = load_target("edge-64")
    assert board.npu is not None
    # 85 C less 40 C over 20 K/W.
    assert "slowed from 85 C on: above 2.25 W for long, at 40 C around it" in describe(board)
    assert not any("cooling" in text for text in bottlenecks(board))
    hot = parse_target(
        board.source.replace("resistance_k_per_w = 20", "resistance_k_per_w = 200"), ""
    )
    # 4,096 MACs x 1 GHz x 0.1 pJ and 100 mW.
    [warning] = [text for text in bottlenecks(hot) if "cooling" in text]
    assert "draws 0.51 W, cooling takes 0.225 W" in warning


def test_check_lists_the_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    source = load_target("mcu-16").source
    path.write_text(source)
    assert check(path) == []
    path.write_text(source.replace("rows = 16", "rows = 0", 1))
    assert check(path) == [f"{path}: npu.array.rows = 0 is outside 1 to 1024 (reduction lanes)"]


def test_energy_at_peak() -> None:
    board = load_target("mcu-16")
    assert board.npu is not None
    # 256 MACs x 400 MHz x 0.15 pJ = 15.36 mW, and 3 mW idle.
    assert "11.2 TOPS/W" in describe(board)
    free = replace(board.npu, energy=replace(board.npu.energy, mac_pj=0.0))
    assert "TOPS/W" not in describe(replace(board, npu=free))


def test_check_lists_every_mistake_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    source = load_target("mcu-16").source
    for old, new in (
        ("rows = 16", "rows = 0"),
        ("columns = 16", "colums = 16"),
        ("sram_kib = 256", ""),
        ('["int8", "uint8"]', '["int9"]'),
    ):
        source = source.replace(old, new, 1)
    path.write_text(source)
    assert [mistake.removeprefix(f"{path}: ") for mistake in check(path)] == [
        "npu.array.colums = 16 is not a key; did you mean columns?",
        "npu.array.rows = 0 is outside 1 to 1024 (reduction lanes)",
        "npu.memory.sram_kib is missing (scratchpad: 1 to 65536)",
        'npu.support.dtypes = "int9" must be one of "int8", "uint8"; did you mean "int8"?',
    ]


def test_check_lists_every_impossible_combination(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    source = load_target("mcu-16").source.replace("subarrays = 1", "subarrays = 3", 1)
    path.write_text(source.replace("banks = 8", "banks = 7", 1))
    assert len(check(path)) == 2


def test_check_of_a_file_that_is_no_toml(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("= 3")
    [mistake] = check(path)
    assert mistake.startswith(f"{path}: not valid TOML:")
