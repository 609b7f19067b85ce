"""Heat against its differential equation, and the published case of a load that slows itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.targets import load_target
from tilewright.targets.description import parse_target
from tilewright.targets.groups import Thermal
from tilewright.targets.schema import DescriptionError
from tilewright.targets.thermal import Load, clock_at, course, settle, unthrottled_duty

PHONE = Thermal(
    resistance_k_per_w=17.5,
    capacity_j_per_k=6,
    ambient_c=25,
    throttle_c=(60.0, 90.0),
    throttle_clock_percent=(100.0, 50.0),
)
# 4 W of which 0.4 W always: 0.09 J of switching in every 25 ms.
NETWORK = Load(0.025, 0.0, 0.09, 0.4)

thermals = st.builds(
    lambda resistance, capacity, first, second, slow: replace(
        PHONE,
        resistance_k_per_w=resistance,
        capacity_j_per_k=capacity,
        throttle_c=(first, first + second),
        throttle_clock_percent=(100.0, slow),
    ),
    st.floats(0.1, 100),
    st.floats(0.1, 100),
    st.floats(30, 90),
    st.floats(1, 40),
    st.floats(5, 100),
)
loads = st.builds(Load, st.floats(1e-4, 1), st.floats(0, 0.1), st.floats(0, 1), st.floats(0, 5))


def test_25_ms_cold_becomes_35_ms_within_ten_minutes() -> None:
    states = list(course(PHONE, NETWORK, 600))
    assert states[0].latency_seconds == 0.025
    assert states[-1].latency_seconds == pytest.approx(0.035, rel=0.01)
    settled = settle(PHONE, NETWORK)
    assert settled.latency_seconds == pytest.approx(0.035, rel=0.01)
    assert states[-1].temperature_c == pytest.approx(settled.temperature_c, abs=0.5)
    first_slowed = next(state for state in states if state.clock < 1)
    # 25 + 17.5 K/W x 4 W x (1 - exp(-t / 105 s)) reaches 60 degrees after 105 s x ln 2.
    assert first_slowed.seconds == pytest.approx(72.8, abs=1)


def test_the_duty_that_never_throttles() -> None:
    duty = unthrottled_duty(PHONE, NETWORK)
    # 35 K over 17.5 K/W are 2 W, 1.6 W of it for switching, which takes 3.6 W at full duty.
    assert duty == pytest.approx(1.6 / 3.6)
    hottest = PHONE.ambient_c + PHONE.resistance_k_per_w * NETWORK.watts(1.0, duty)
    assert clock_at(PHONE, hottest) == pytest.approx(1.0)


def test_the_clock_between_throttle_points() -> None:
    assert [clock_at(PHONE, c) for c in (20, 60, 75, 90, 120)] == [1.0, 1.0, 0.75, 0.5, 0.5]


@given(thermals, loads)
def test_a_settled_state_is_in_balance(thermal: Thermal, load: Load) -> None:
    settled = settle(thermal, load)
    rise = thermal.resistance_k_per_w * load.watts(settled.clock)
    assert settled.temperature_c - thermal.ambient_c == pytest.approx(rise, rel=1e-6, abs=1e-6)
    assert settled.latency_seconds >= load.latency_seconds(1.0)


@given(thermals, loads)
def test_a_cold_start_warms_up_and_never_overshoots_far(thermal: Thermal, load: Load) -> None:
    time_constant = thermal.resistance_k_per_w * thermal.capacity_j_per_k
    states = list(course(thermal, load, 2 * time_constant, steps=400))
    hottest = thermal.ambient_c + thermal.resistance_k_per_w * load.watts(1.0)
    assert all(thermal.ambient_c <= state.temperature_c <= hottest + 1e-6 for state in states)


@given(thermals, loads)
def test_at_the_unthrottled_duty_nothing_is_slowed(thermal: Thermal, load: Load) -> None:
    duty = unthrottled_duty(thermal, load)
    assert 0 <= duty <= 1
    warmest = thermal.ambient_c + thermal.resistance_k_per_w * load.watts(1.0, duty)
    if duty > 0:
        assert warmest <= thermal.throttle_c[0] + 1e-6


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("throttle_c = [85, 105]", "throttle_c = [85]", "each point needs its clock"),
        ("throttle_c = [85, 105]", "throttle_c = [105, 85]", "must rise"),
        ("throttle_c = [85, 105]", "throttle_c = [30, 105]", "would always be slowed"),
        ("throttle_c = [85, 105]", 'throttle_c = "85"', "must be a list of numbers"),
        ("throttle_clock_percent = [100, 40]", "throttle_clock_percent = [90, 40]", "with 100"),
        ("throttle_clock_percent = [100, 40]", "throttle_clock_percent = [100, 400]", "1 to 100"),
    ],
)
def test_impossible_throttle_points(old: str, new: str, expected: str) -> None:
    source = load_target("edge-64").source
    assert old in source
    with pytest.raises(DescriptionError, match=expected):
        parse_target(source.replace(old, new), "x.toml")
