"""Every mistake a user can make in a description is told with file, key, value and way out."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tilewright.targets import list_targets, load_target
from tilewright.targets.description import parse_target
from tilewright.targets.errors import TargetError

MCU = load_target("mcu-16").source


def message_for(*replacements: tuple[str, str]) -> str:
    text = MCU
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new, 1)
    with pytest.raises(TargetError) as error:
        parse_target(text, "board.toml")
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_bundled_boards() -> None:
    assert {"mcu-16", "edge-128", "raspberry-pi-4", "host"} <= set(list_targets())
    for name in list_targets():
        assert load_target(name).name == name
        assert load_target(name).summary


@pytest.mark.parametrize("name", list_targets())
def test_every_number_has_its_source_beside_it(name: str) -> None:
    numbers = re.compile(r"\w+ = (\d|\[\d)")
    lines = [line for line in load_target(name).source.splitlines() if numbers.match(line)]
    assert lines
    assert [line for line in lines if "#" not in line] == []


def test_a_board_without_an_npu_is_cpu_only() -> None:
    assert load_target("raspberry-pi-4").npu is None


def test_the_native_cpu_counts_its_cores() -> None:
    assert load_target("host").cpu.cores == len(os.sched_getaffinity(0))


def test_derived_facts() -> None:
    npu = load_target("edge-128").npu
    assert npu is not None
    assert npu.macs_per_cycle == 16384
    assert npu.peak_tops == pytest.approx(32.768)
    assert npu.dram_bytes_per_cycle == pytest.approx(12.8)
    assert npu.sram_bytes == 2**20
    assert npu.aligned_channels(17) == 32
    assert npu.table_channels(130) == 160


def test_one_gigahertz_and_4096_macs_are_8192_gops() -> None:
    text = load_target("edge-128").source.replace("rows = 128", "rows = 32", 1)
    npu = parse_target(text, "x.toml").npu
    assert npu is not None
    assert npu.peak_tops == 8.192


def test_the_digest_is_the_npu_s_alone() -> None:
    board = load_target("mcu-16")
    renamed = parse_target(MCU.replace('"mcu-16"', '"other"').replace("cores = 1", "cores = 2"), "")
    slower = parse_target(MCU.replace("queue_depth = 8", "queue_depth = 4"), "")
    assert board.npu and renamed.npu and slower.npu
    assert board.npu.digest == renamed.npu.digest != slower.npu.digest


def test_arena_limit_leaves_the_reserve() -> None:
    assert load_target("mcu-16").memory.arena_limit_bytes == int(4096 * 1024 * 0.95)


def test_a_path_is_read_and_a_relative_one_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MCU.replace('name = "mcu-16"', 'name = "mine"'))
    assert load_target(path).name == "mine"
    assert load_target(os.path.relpath(path)).name == "mine"


def test_unknown_name() -> None:
    with pytest.raises(TargetError, match=r"mcu-61: no such target; did you mean mcu-16\?"):
        load_target("mcu-61")


def test_missing_file() -> None:
    with pytest.raises(TargetError, match=r"nowhere/x\.toml: no such file"):
        load_target("nowhere/x.toml")


def test_directory_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="cannot be read"):
        load_target(str(tmp_path) + os.sep)


def test_binary_file(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TargetError, match=r"x\.toml: cannot be read"):
        load_target(path)


def test_broken_toml_names_the_line() -> None:
    message = message_for(("rows = 16", "rows = = 16"))
    assert "board.toml: not valid TOML:" in message
    assert "start from `tilewright target new NAME`" in message
    assert "line 11" in message_for(("rows = 16", "rows = = 16"))


def test_unknown_key_and_the_nearest_right_one() -> None:
    message = message_for(("columns = 16", "colums = 16"))
    assert message == "board.toml: npu.array.colums = 16 is not a key; did you mean columns?"


def test_unknown_key_near_nothing() -> None:
    message = message_for(("columns = 16", "zzz = 16\ncolumns = 16"))
    assert "npu.array.zzz = 16 is not a key here; known are rows, columns" in message


def test_unknown_table() -> None:
    assert "[npu.energie] is not a key; did you mean energy?" in message_for(
        ("[npu.energy]", "[npu.energie]")
    )


def test_key_in_another_unit_is_converted() -> None:
    message = message_for(("sram_kib = 256", "sram_bytes = 262144"))
    assert "npu.memory.sram_bytes = 262144 is not a key; did you mean sram_kib = 256?" in message


def test_value_in_another_unit_is_recognised() -> None:
    message = message_for(("sram_kib = 256", "sram_kib = 262144"))
    assert "npu.memory.sram_kib = 262144 is outside 1 to 65536" in message
    assert "262144 looks like bytes: write 256" in message
    assert "0.4 looks like GHz: write 400" in message_for(("clock_mhz = 400", "clock_mhz = 0.4"))
    hertz = message_for(("clock_mhz = 400", "clock_mhz = 400000000"))
    assert "4e+08 looks like Hz: write 400" in hertz
    rate = message_for(("dram_gb_per_s = 1.6", "dram_gb_per_s = 12800"))
    assert "looks like MB/s: write 12.8" in rate


def test_wrong_type() -> None:
    assert "npu.array.rows = 16.5 must be an integer" in message_for(("rows = 16", "rows = 16.5"))
    assert 'npu.array.rows = "16" must be an integer' in message_for(("rows = 16", 'rows = "16"'))
    assert "npu.array.rows = true must be an integer" in message_for(("rows = 16", "rows = true"))
    assert "weight_double_buffer = 1 must be true or false" in message_for(
        ("weight_double_buffer = true", "weight_double_buffer = 1")
    )
    assert 'dtypes = "int8" must be a list of strings' in message_for(
        ('dtypes = ["int8", "uint8"]', 'dtypes = "int8"')
    )
    assert "name = 3 must be a string" in message_for(('name = "mcu-16"', "name = 3"))


def test_word_that_is_no_choice() -> None:
    message = message_for(('"flattened"', '"flatened"'))
    assert 'must be one of "flattened", "channels"; did you mean "flattened"?' in message
    assert 'npu.support.dtypes = "int4" must be one of' in message_for(
        ('["int8", "uint8"]', '["int4"]')
    )


def test_missing_key_says_what_it_means() -> None:
    message = message_for(("rows = 16 ", "# "))
    assert message == "board.toml: npu.array.rows is missing (reduction lanes: 1 to 1024)"


def test_missing_table() -> None:
    text = MCU[: MCU.index("[cpu]")]
    with pytest.raises(TargetError, match=r"the table \[cpu\] is missing"):
        parse_target(text, "board.toml")


def test_value_instead_of_a_table() -> None:
    with pytest.raises(TargetError, match=r"cpu = 3 must be a table \[cpu\]"):
        parse_target('name = "x"\ncpu = 3', "board.toml")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("subarrays = 1", "subarrays = 3", "subarrays = 3 does not divide npu.array.rows = 16"),
        (
            "weight_rows_per_cycle = 4",
            "weight_rows_per_cycle = 32",
            "weight_rows_per_cycle = 32 exceeds the 16 rows",
        ),
        ("macs_per_cycle = 64", "", 'mode = "unit" needs npu.depthwise.macs_per_cycle'),
        ('mode = "unit"', 'mode = "vector"', 'macs_per_cycle = 64 needs mode = "unit"'),
        ('"conv2d", "depthwise"', '"depthwise"', 'has "depthwise" without "conv2d"'),
        ("banks = 8", "banks = 7", "banks = 7 does not divide sram_kib = 256"),
        ("dma_bytes_per_cycle = 8", "dma_bytes_per_cycle = 4096", "exceeds what all banks take"),
        ("channel_alignment = 16", "channel_alignment = 12", "= 12 must be a power of two"),
        ("burst_bytes = 64", "burst_bytes = 65", "burst_bytes = 65 must be a power of two"),
        ('"thumbv8.1m.main-none', '"arm64-none', 'unknown architecture "arm64"'),
        ("cores = 1", "", 'cpu.cores is missing; only a "native" CPU counts its own'),
        ("vector_bits = 128", "vector_bits = 100", "vector_bits = 100 must be 0 or a power"),
    ],
)
def test_combinations_that_cannot_be(old: str, new: str, expected: str) -> None:
    assert expected in message_for((old, new))


def test_an_array_whose_weights_exceed_the_sram() -> None:
    message = message_for(("rows = 16", "rows = 512"), ("columns = 16", "columns = 512"))
    assert "(512 KiB with 512 rows x 512 columns); enlarge the SRAM or shrink the array" in message


def test_accumulators_smaller_than_a_pixel() -> None:
    message = message_for(
        ("accumulator_kib = 16", "accumulator_kib = 1"), ("columns = 16", "columns = 512")
    )
    assert "holds less than one pixel of npu.array.columns = 512 int32s (2048 bytes)" in message


def test_tables_hold_int32s() -> None:
    message = message_for(("[npu.tables]\nalignment = 16", "[npu.tables]\nalignment = 2"))
    assert "npu.tables.alignment = 2: int32 tables need 4 or more" in message
