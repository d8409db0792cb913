"""Sizes and durations are formatted for people."""

from __future__ import annotations

import pytest

from escrowmq.human import duration, size


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (3440, "3.4 kB"), (120e6, "120 MB"), (2.5e9, "2.5 GB")],
)
def test_a_size_is_shown_in_a_fitting_unit(count: float, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0.35, "0.35 ms"),
        (12.3, "12 ms"),
        (1000, "1 s"),
        (27_313.8, "27 s"),
        (893_179.6, "15 min"),
        (9e6, "2.5 h"),
        (1e9, "12 d"),
    ],
)
def test_a_duration_is_shown_in_a_fitting_unit(milliseconds: float, text: str) -> None:
    assert duration(milliseconds) == text
