"""Errors that are found before the broker starts."""

from __future__ import annotations

from escrowmq.config import LimitsSection
from escrowmq.server.main import fitting


def test_the_limits_stay_when_the_system_allows_them() -> None:
    limits = LimitsSection(connections=100, unauthenticated_connections=50)
    assert fitting(limits, lambda wanted: wanted) == limits


def test_few_open_files_leave_room_for_logins_and_for_those_that_have_logged_in() -> None:
    limits = LimitsSection(connections=1000, unauthenticated_connections=500)
    fewer = fitting(limits, lambda _: 400)
    assert (fewer.connections, fewer.unauthenticated_connections) == (300, 100)
    none = fitting(limits, lambda _: 0)
    assert (none.connections, none.unauthenticated_connections) == (1, 1)
