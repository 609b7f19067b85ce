"""Histograms that grow, and the ranges that the methods keep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tilewright.compiler.quantize.parameters import activation_for, quantise_weight
from tilewright.compiler.quantize.ranges import METHODS, Histogram, Range, choose_range

values = arrays(np.float32, st.integers(1, 200), elements=st.floats(-1e6, 1e6, width=32))


def filled(*parts: np.ndarray) -> Histogram:
    histogram = Histogram()
    for part in parts:
        histogram.add(part)
    return histogram


@settings(deadline=None, max_examples=50)
@given(values, values)
def test_a_histogram_does_not_depend_on_the_order(a: np.ndarray, b: np.ndarray) -> None:
    one, two = filled(a, b), filled(b, a)
    assert (one.low, one.high, one.bin_width) == (two.low, two.high, two.bin_width)
    assert np.array_equal(one.counts, two.counts)


@settings(deadline=None, max_examples=50)
@given(values, values)
def test_a_histogram_that_grew_is_one_of_all_values(a: np.ndarray, b: np.ndarray) -> None:
    grown, whole = filled(a, b), filled(np.concatenate([a, b]))
    assert grown.bin_width == whole.bin_width
    assert np.array_equal(grown.counts, whole.counts)
    assert grown.total == a.size + b.size


def test_what_is_not_finite_is_counted_apart() -> None:
    histogram = filled(np.array([1.0, np.nan, np.inf, -2.0]))
    assert (histogram.not_finite, histogram.low, histogram.high) == (2, -2.0, 1.0)


@pytest.mark.parametrize("method", METHODS)
def test_zero_is_always_inside(method: str) -> None:
    kept = choose_range(filled(np.random.default_rng(0).uniform(3, 5, 1000)), method)
    assert kept.low == 0.0
    assert activation_for(kept).dequantised(np.array([-128], np.int8))[0] == 0.0


def test_minmax_keeps_everything_and_percentile_leaves_outliers() -> None:
    data = np.concatenate([np.random.default_rng(0).uniform(-1, 1, 100_000), [50.0]])
    assert choose_range(filled(data), "minmax") == Range(float(data.min()), 50.0)
    assert choose_range(filled(data), "percentile").high < 1.1


@pytest.mark.parametrize("method", ["mse", "entropy"])
def test_outliers_are_clipped_where_that_costs_less(method: str) -> None:
    data = np.concatenate([np.random.default_rng(0).normal(0, 1, 200_000), [14.0]])
    kept = choose_range(filled(data), method)
    assert 2.5 < kept.high < 13


def test_mse_is_the_least_of_its_candidates_by_the_real_error() -> None:
    data = np.random.default_rng(0).laplace(0, 1, 50_000).astype(np.float32)
    histogram = filled(data)

    def error(method: str) -> float:
        activation = activation_for(choose_range(histogram, method))
        return float(((activation.dequantised(activation.quantised(data)) - data) ** 2).mean())

    assert error("mse") <= min(error(method) for method in METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_a_tensor_of_zeros_gets_a_scale(method: str) -> None:
    activation = activation_for(choose_range(filled(np.zeros(10)), method))
    assert (activation.scale, activation.zero) == (1.0, 0)


def test_a_bias_never_overflows_its_scale() -> None:
    weight = np.full((2, 3), 1e-12, np.float32)
    weight[1] = 0.0
    made = quantise_weight(
        weight,
        0,
        per_channel=True,
        input_scale=np.float32(0.01),
        bias=np.array([1000.0, 5.0]),
    )
    assert (np.array([1000.0, 5.0]) / (0.01 * made.scale) < 2**30 * 1.001).all()


@settings(deadline=None, max_examples=30)
@given(arrays(np.float32, (4, 6), elements=st.floats(-100, 100, width=32)))
def test_weights_are_within_half_a_step(weight: np.ndarray) -> None:
    made = quantise_weight(weight, 0, per_channel=True, input_scale=np.float32(1), bias=None)
    step = made.scale[:, None].astype(np.float64)
    assert (np.abs(made.dequantised - weight) <= 0.5 * step * 1.0001 + 1e-30).all()
