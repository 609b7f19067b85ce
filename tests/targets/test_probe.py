"""Hidden boards are recovered by timing alone."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.compiler import cli
from tilewright.targets import list_targets, load_target
from tilewright.targets.board_timer import BoardTimer
from tilewright.targets.description import Npu, parse_target
from tilewright.targets.errors import ProfileError
from tilewright.targets.probe import probe
from tilewright.targets.refit import refit
from tilewright.targets.simulated_board import simulated_timer

NPU_BOARDS = [name for name in list_targets() if load_target(name).npu is not None]


def npu_of(name: str) -> Npu:
    npu = load_target(name).npu
    assert npu is not None
    return npu


def hidden_board(npu: Npu, seed: int) -> Npu:
    """The same memories and modes; every number that times show drawn anew."""
    draw = random.Random(seed)
    subarrays = draw.choice([1, 2, 4])
    rows = subarrays * draw.randrange(3, 65)
    return replace(
        npu,
        array=replace(
            npu.array,
            rows=rows,
            columns=draw.randrange(4, 130),
            subarrays=subarrays,
            weight_rows_per_cycle=draw.choice([1, 2, 4]),
        ),
        depthwise=replace(npu.depthwise, macs_per_cycle=draw.randrange(8, 600)),
        vector=replace(
            npu.vector, lanes=draw.randrange(4, 200), startup_cycles=draw.randrange(8, 60)
        ),
        memory=replace(
            npu.memory,
            dram_gb_per_s=draw.uniform(1, 40),
            dma_bytes_per_cycle=draw.randrange(4, 64),
            dma_latency_cycles=draw.randrange(20, 600),
            burst_bytes=draw.choice([16, 32, 64, 128]),
        ),
    )


def real(timer: BoardTimer, seed: int) -> BoardTimer:
    """A board that takes 35 us to launch a stream, and whose times vary by 0.3 %."""
    draw = random.Random(seed)
    return lambda *stream: timer(*stream) * draw.uniform(0.997, 1.003) + 35.0


@pytest.mark.parametrize("name", NPU_BOARDS)
def test_a_board_as_described_is_found_as_described(name: str) -> None:
    fitted = probe(npu_of(name), simulated_timer(npu_of(name)))
    assert len(fitted) >= 9
    for one in fitted:
        assert abs(one.difference) < 0.02, one


@pytest.mark.parametrize("seed", range(6))
def test_a_hidden_board_is_recovered_within_ten_percent(seed: int) -> None:
    described = npu_of("edge-64")
    hidden = hidden_board(described, seed)
    fitted = probe(described, real(simulated_timer(hidden), seed))
    assert {one.key for one in fitted} >= {
        "array.rows", "array.columns", "array.subarrays", "array.weight_rows_per_cycle",
        "depthwise.macs_per_cycle", "vector.lanes", "vector.startup_cycles",
        "memory.dram_gb_per_s", "memory.dma_latency_cycles", "memory.burst_bytes",
    }  # fmt: skip
    for one in fitted:
        group, _, key = one.key.partition(".")
        true = getattr(getattr(hidden, group), key)
        assert one.measured == pytest.approx(true, rel=0.1), one


def test_a_port_narrower_than_the_dram_is_seen() -> None:
    described = npu_of("edge-64")
    hidden = replace(described, memory=replace(described.memory, dma_bytes_per_cycle=12))
    fitted = {one.key: one.measured for one in probe(described, simulated_timer(hidden))}
    assert fitted["memory.dma_bytes_per_cycle"] == 12
    assert fitted["memory.dram_gb_per_s"] == pytest.approx(25.6, rel=0.01)


def test_a_description_with_what_was_measured_reads_back() -> None:
    described = load_target("edge-64")
    hidden = hidden_board(npu_of("edge-64"), 3)
    fitted = probe(npu_of("edge-64"), simulated_timer(hidden))
    source = refit(described.source, fitted)
    found = parse_target(source, "x.toml").npu
    assert found is not None
    assert found.array.rows == hidden.array.rows
    assert found.memory.dram_gb_per_s == pytest.approx(hidden.memory.dram_gb_per_s, rel=0.01)
    assert found.support == described.npu.support  # type: ignore[union-attr]
    assert source.count("# measured") == len(fitted)


def test_a_key_left_out_is_added() -> None:
    source = load_target("edge-64").source.replace("subarrays = 4 ", "# subarrays = 4 ", 1)
    found = refit(source, probe(npu_of("edge-64"), simulated_timer(npu_of("edge-64"))))
    assert parse_target(found, "x.toml").npu.array.subarrays == 4  # type: ignore[union-attr]


def test_times_that_do_not_depend_on_the_stream() -> None:
    with pytest.raises(ProfileError, match="does the command time the stream it is given"):
        probe(npu_of("mcu-16"), lambda _stream, _constants, _arena: 5.0)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a timer in this process: the command's own way is tested with `profile --bisect`."""
    from tilewright.targets import board_timer

    hidden = hidden_board(npu_of("edge-64"), 5)
    asked = []

    def timer_of(command: str) -> BoardTimer:
        asked.append(command)
        return simulated_timer(hidden)

    monkeypatch.setattr(board_timer, "command_timer", timer_of)
    path = tmp_path / "fitted.toml"
    assert cli.main(["target", "probe", "./time.sh", "--like", "edge-64", "-o", str(path)]) == 0
    assert asked == ["./time.sh"]
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["npu.array.rows", "64", str(hidden.array.rows)] in [line[:3] for line in lines]
    assert cli.main(["target", "check", str(path)]) == 0
    assert cli.main(["target", "probe", "./time.sh", "--like", "host"]) == 2
    assert "host: has no NPU to measure" in capsys.readouterr().err
    assert cli.main(["target", "probe", "no-such-x", "--like", "edge-64", "-o", str(path)]) == 2
