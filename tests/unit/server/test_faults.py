"""Clients' faults in the log."""

from __future__ import annotations

import logging

import pytest

from escrowmq.server.faults import AT_ONCE, PERIOD_MS, Faults


def test_each_error_is_a_warning_except_not_found(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    faults = Faults()
    faults.note(5, "10.0.0.7:5 (alice)", 406, "message of 11 bytes")
    faults.note(6, "10.0.0.7:5 (alice)", 404, "no queue 'q'")
    faults.note(7, "10.0.0.7:5 (alice)", "no-route", "no topic 't'")
    faults.note(8, "10.0.0.7:5 (alice)", "not-found", "no topic 't'")
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "10.0.0.7:5 (alice): 406 message of 11 bytes"),
        ("INFO", "10.0.0.7:5 (alice): 404 no queue 'q'"),
        ("INFO", "10.0.0.7:5 (alice): no-route no topic 't'"),
        ("WARNING", "10.0.0.7:5 (alice): not-found no topic 't'"),
    ]


def test_a_client_that_repeats_its_fault_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    faults = Faults()
    for _ in range(3 * AT_ONCE):
        faults.note(1_000_000, "x", 406, "again")
    assert len(caplog.records) == AT_ONCE
    faults.note(1_000_000 + PERIOD_MS, "x", 406, "later")
    assert caplog.messages[-2:] == [f"{2 * AT_ONCE} more errors of clients were not logged", "x: 406 later"]
