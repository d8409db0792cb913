"""Plots over time show minutes without messages as zero, and group minutes if there are many."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from escrowmq.pipeline import plots

START = datetime(2026, 11, 21, 23, 3, tzinfo=UTC)


def test_minutes_without_messages_are_zero() -> None:
    minutes = {START: (5, 1), START + timedelta(minutes=3): (7, 9)}
    assert plots.steps(minutes) == (
        1,
        [START + timedelta(minutes=i) for i in range(5)],
        [5, 0, 0, 7],
        [1, 0, 0, 9],
    )


def test_many_minutes_are_grouped_into_steps() -> None:
    minutes = {START + timedelta(minutes=i): (1, 2) for i in range(1000)}
    step, edges, published, settled = plots.steps(minutes)
    assert (step, len(edges), edges[1] - edges[0]) == (5, 201, timedelta(minutes=5))
    assert published == [5] * 200
    assert settled == [10] * 200


def test_plots_are_embedded_images() -> None:
    for image in (plots.flow({START: (5, 1)}), plots.latency([("orders", 0.0, 0.0)])):
        assert image.startswith('<img alt="" src="data:image/png;base64,iVBOR')
