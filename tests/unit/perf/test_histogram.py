"""Percentiles are within the documented error of the true ones."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.perf.histogram import Histogram


@given(
    values=st.lists(st.integers(0, 2**45), min_size=1, max_size=300),
    percent=st.sampled_from([0.0, 50, 95, 99, 99.9, 100]),
)
def test_a_percentile_is_never_below_the_true_one_and_at_most_a_128th_above(values: list[int], percent: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    true = sorted(values)[max(math.ceil(len(values) * percent / 100) - 1, 0)]
    found = histogram.percentile(percent)
    assert true <= found <= true * (1 + 1 / 128)


@given(st.lists(st.integers(0, 300), min_size=1))
def test_small_values_are_exact(values: list[int]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    exact = [value for value in values if value < 256]
    if len(exact) == len(values):
        assert histogram.percentile(100) == max(values)
        assert histogram.percentile(0) == min(values)


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 50)), min_size=1, max_size=20))
def test_a_value_counted_n_times_equals_n_values(pairs: list[tuple[int, int]]) -> None:
    together, apart = Histogram(), Histogram()
    for value, times in pairs:
        together.record(value, times)
        for _ in range(times):
            apart.record(value)
    assert together.summary() == apart.summary()


def test_an_empty_histogram_has_nothing() -> None:
    assert set(Histogram().summary().values()) == {0}


def test_a_negative_time_counts_as_zero() -> None:
    histogram = Histogram()
    histogram.record(-5)
    assert (histogram.count, histogram.maximum) == (1, 0)


def test_the_summary_is_in_microseconds() -> None:
    histogram = Histogram()
    histogram.record(2_000_000)
    assert histogram.summary()["max"] == 2000


@given(first=st.lists(st.integers(0, 2**30)), second=st.lists(st.integers(0, 2**30)))
def test_histograms_that_are_added_count_all_values(first: list[int], second: list[int]) -> None:
    apart, other, together = Histogram(), Histogram(), Histogram()
    for histogram, values in ((apart, first), (other, second), (together, first + second)):
        for value in values:
            histogram.record(value)
    apart.add(other)
    assert apart.summary() == together.summary()
