"""Where an artifact's time goes, and where a board's differs: by operator, and by total alone."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tilewright.compiler import cli, compile_model
from tilewright.compiler.power import power_totals
from tilewright.compiler.profile.against import compare, read_measured
from tilewright.compiler.profile.delayed_operator import locate
from tilewright.compiler.profile.heat import heat_course, heat_lines
from tilewright.compiler.profile.page import profile_page
from tilewright.targets import isa, load_target
from tilewright.targets.backend import EnergyParts
from tilewright.targets.board_timer import BoardTimer, command_timer
from tilewright.targets.errors import ProfileError
from tilewright.targets.groups import Thermal
from tilewright.targets.simulated_board import simulated_timer

MODEL = Path(__file__).parents[1] / "models" / "resnet8_cifar_int8.onnx"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("profile") / "resnet8"
    compile_model(MODEL, "mcu-16").save(place)
    return place


@pytest.fixture(scope="module")
def report(artifact: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((artifact / "report.json").read_text())
    return found


def test_the_timeline_covers_the_latency(report: dict[str, Any]) -> None:
    spans = report["timeline"]
    end = max(span["end_us"] for span in spans)
    # END is issued a few cycles after the last instruction.
    assert end == pytest.approx(report["totals"]["latency_ms"] * 1e3, rel=1e-3)
    assert {span["operator"] for span in spans} >= set(range(len(report["operators"])))
    assert {span["lane"] for span in spans} >= {"cpu", "crossing", "dma_in", "mac", "vector"}
    for lane in {span["lane"] for span in spans}:
        mine = sorted((s["start_us"], s["end_us"]) for s in spans if s["lane"] == lane)
        assert all(first[1] <= second[0] + 1e-6 for first, second in pairwise(mine))


def test_power_in_the_report(report: dict[str, Any]) -> None:
    totals = report["totals"]
    energy = totals["energy_uj"]
    parts = [energy[name] for name in ("mac", "sram", "dram", "idle")]
    assert energy["total"] == pytest.approx(sum(parts))
    npu = load_target("mcu-16").npu
    assert npu is not None
    assert energy["mac"] == pytest.approx(totals["macs"] * npu.energy.mac_pj / 1e6, rel=0.01)
    assert energy["idle"] == pytest.approx(npu.energy.idle_mw * totals["latency_ms"])
    of_operators = sum(row["energy_uj"] or 0 for row in report["operators"])
    npu_idle = npu.energy.idle_mw * totals["cycles"] / npu.clock_mhz / 1e3
    assert energy["total"] - energy["idle"] + npu_idle == pytest.approx(of_operators, rel=0.01)
    assert totals["average_power_mw"] == pytest.approx(energy["total"] / totals["latency_ms"])
    assert totals["peak_tops"] == pytest.approx(0.2048)
    utilised = totals["mac_utilization"] * totals["peak_tops"]
    assert totals["achieved_tops"] == pytest.approx(utilised)
    assert totals["thermal"] is None


class Page(HTMLParser):
    """Counts rows and rectangles, and notes what the page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.fetched += [name for name, _ in attrs if name in ("src", "href", "srcset")]


def test_the_page_needs_nothing_else(
    artifact: Path, report: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "report.html"
    assert cli.main(["profile", str(artifact), "-o", str(path)]) == 0
    text = path.read_text()
    page = Page()
    page.feed(text)
    assert page.fetched == []
    assert "url(" not in text
    assert "@import" not in text
    assert "$" not in text
    assert page.tags["rect"] == len(report["timeline"])
    assert page.tags["tr"] == len(report["operators"]) + 1
    printed = capsys.readouterr().out
    assert all(row["name"] in printed for row in report["operators"])
    assert "of the operators' time:" in printed


def test_a_load_that_slows_itself_is_shown(report: dict[str, Any], tmp_path: Path) -> None:
    """A network of 25 ms and 4 W, which settles at 35 ms: the case of tests/targets."""
    npu = load_target("mcu-16").npu
    assert npu is not None
    thermal = Thermal(
        resistance_k_per_w=17.5, capacity_j_per_k=6, throttle_c=(60.0, 90.0),
        throttle_clock_percent=(100.0, 50.0),
    )  # fmt: skip
    warm = replace(npu, thermal=thermal, energy=replace(npu.energy, idle_mw=400))
    cycles = round(0.025 * npu.clock_mhz * 1e6)
    energy = EnergyParts(mac=50e3, sram=20e3, dram=20e3)
    totals = {"cycles": cycles, "latency_ms": 25.0} | power_totals(
        warm, energy, 10**9, 0.025, 0.025
    )
    assert totals["thermal"]["settled_latency_ms"] == pytest.approx(35, rel=0.01)
    assert totals["thermal"]["unthrottled_duty_percent"] == pytest.approx(100 * 1.6 / 3.6)
    states = heat_course(warm, totals)
    first, *_, last = heat_lines(states)
    assert first == "after   0 s of continuous load 25.000 ms at 25.0 C, clock 100%"
    assert last.startswith("after 600 s of continuous load 34.9")
    page = profile_page("warm", "mcu-16", report, None, states)
    assert "latency, ms: 25.000 to 34.9" in page
    assert heat_course(npu, totals) == heat_lines([]) == []


def test_a_page_that_cannot_be_written(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    assert cli.main(["profile", str(artifact), "-o", str(tmp_path / "no" / "x.html")]) == 2
    assert "x.html: cannot be written: No such file" in capsys.readouterr().err


def test_against_names_the_largest_disagreement(
    artifact: Path, report: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    rows = report["operators"]
    lines = [f"{row['name']},{row['time_us'] * 1.01}" for row in rows]
    lines[4] = f"{rows[4]['name']},{rows[4]['time_us'] + 50}"
    measured = tmp_path / "measured.csv"
    measured.write_text("name,time_us\n" + "\n".join(lines) + "\n")
    assert cli.main(["profile", str(artifact), "--against", str(measured)]) == 0
    printed = capsys.readouterr().out
    assert f"largest disagreements: {rows[4]['name']} +50.00 us" in printed
    assert f"{len(rows)} of {len(rows)} operators measured" in printed


def test_a_repeated_measurement_counts_by_its_median(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("time_us,name\n3,a\n900,a\n5,a\n1,b\n")
    assert read_measured(path) == {"a": 5.0, "b": 1.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,us\na,3\n", "has no column time_us; write a header line name,time_us"),
        ("name,time_us\na,x\n", ":2: 'x' is no time; write microseconds"),
        ("name,time_us\na,-1\n", ":2: -1 us is no time an operator can take"),
    ],
)
def test_measurements_that_cannot_be_read(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(ProfileError, match=re.escape(message)):
        read_measured(path)


def test_a_measured_name_that_is_unknown(report: dict[str, Any]) -> None:
    name = report["operators"][1]["name"]
    with pytest.raises(ProfileError, match=f"did you mean {re.escape(name)}"):
        compare(report["operators"], {f"{name}x": 1.0})


def with_delay(instruction: int, microseconds: float) -> BoardTimer:
    """A board whose driver stalls at one instruction of any stream long enough."""
    npu = load_target("mcu-16").npu
    assert npu is not None
    timer = simulated_timer(npu)

    def time(stream: bytes, constants: bytes, arena_bytes: int) -> float:
        reached = len(isa.decode(stream).instructions) - 1 > instruction
        return timer(stream, constants, arena_bytes) + microseconds * reached

    return time


def instructions_of(artifact: Path) -> list[isa.Instruction]:
    [stream] = (artifact / "board" / "streams").iterdir()
    return isa.decode(stream.read_bytes()).instructions


@pytest.mark.parametrize("share", [0.0, 0.31, 0.77, 1.0])
def test_bisect_finds_a_planted_delay(share: float, artifact: Path, report: dict[str, Any]) -> None:
    count = len(instructions_of(artifact)) - 1
    planted = round(share * (count - 1))
    found = locate(artifact, report, with_delay(planted, 12.5))
    assert f"instruction {planted} (" in found
    assert "takes 12.50 us longer than modelled, of 12.50 us" in found
    runs = int(found.rpartition("found with ")[2].split()[0])
    assert runs <= 2 + count.bit_length() + 1


def test_bisect_names_the_operator(artifact: Path, report: dict[str, Any]) -> None:
    kinds = [type(one).__name__ for one in instructions_of(artifact)]
    found = locate(artifact, report, with_delay(kinds.index("AveragePool"), 20))
    assert "(AveragePool): instruction" in found
    last = len(kinds) - 2
    assert "(Gemm): instruction" in locate(artifact, report, with_delay(last, 20))


def test_bisect_of_a_board_that_agrees(artifact: Path, report: dict[str, Any]) -> None:
    found = locate(artifact, report, with_delay(10**6, 1))
    assert found.startswith("no delay: the board is within 1%")


def test_bisect_through_a_command(artifact: Path, tmp_path: Path, capsys: Capture) -> None:
    """A board of its own process, whose vector engine takes longer to start."""
    npu = load_target("mcu-16").npu
    assert npu is not None
    slow = tmp_path / "slow.toml"
    source = load_target("mcu-16").source
    slow.write_text(source.replace("startup_cycles = 16", "startup_cycles = 400", 1))
    command = f"{sys.executable} -m tilewright.targets.simulated_board {slow}"
    assert cli.main(["profile", str(artifact), "--bisect", command]) == 0
    printed = capsys.readouterr().out
    assert "longer than modelled" in printed
    expected = simulated_timer(replace(npu, vector=replace(npu.vector, startup_cycles=400)))
    [stream] = (artifact / "board" / "streams").iterdir()
    constants = (artifact / "board" / "weights.bin").read_bytes()
    timed = command_timer(command)(stream.read_bytes(), constants, 1 << 20)
    assert timed == pytest.approx(expected(stream.read_bytes(), constants, 1 << 20))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-command-here", "cannot be run: No such file"),
        (f"{sys.executable} -c 'print()'", "the last word must be the microseconds taken"),
        (
            f"{sys.executable} -c 'raise SystemExit(\"no board\")'",
            "failed with exit code 1: no board",
        ),
    ],
)
def test_commands_that_time_nothing(command: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        command_timer(command)(b"", b"", 0)


def test_bisect_needs_npu_steps(tmp_path: Path) -> None:
    compile_model(MODEL, "host").save(tmp_path / "cpu")
    report = json.loads((tmp_path / "cpu" / "report.json").read_text())
    with pytest.raises(ProfileError, match="has no NPU steps"):
        locate(tmp_path / "cpu", report, with_delay(0, 1))
