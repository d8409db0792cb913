"""Clients' faults in the log."""

from __future__ import annotations

import logging

import pytest

from escrowmq.server.faults import AT_ONCE, PERIOD_MS, Faults
from escrowmq.wire.endpoint import Peer

PEER = Peer("10.0.0.7", 5)


def test_each_error_is_a_warning_except_not_found(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    faults = Faults()
    faults.note(5, "connection 10.0.0.7:5", PEER, "alice", 406, "message of 11 bytes")
    faults.note(6, "connection 10.0.0.7:5", PEER, "alice", 404, "no queue 'q'")
    faults.note(7, "connection 10.0.0.7:5", PEER, "alice", "no-route", "no topic 't'")
    faults.note(8, "connection 10.0.0.7:5", PEER, "alice", "not-found", "no topic 't'")
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "connection 10.0.0.7:5, user 'alice': 406 message of 11 bytes"),
        ("INFO", "connection 10.0.0.7:5, user 'alice': 404 no queue 'q'"),
        ("INFO", "connection 10.0.0.7:5, user 'alice': no-route no topic 't'"),
        ("WARNING", "connection 10.0.0.7:5, user 'alice': not-found no topic 't'"),
    ]


def test_a_client_that_repeats_its_fault_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    faults = Faults()
    for _ in range(3 * AT_ONCE):
        faults.note(1_000_000, "x", PEER, None, 406, "again")
    assert len(caplog.records) == AT_ONCE
    faults.note(1_000_000 + PERIOD_MS, "x", PEER, None, 406, "later")
    assert caplog.messages[-2:] == [f"{2 * AT_ONCE} more errors of clients were not logged", "x, user None: 406 later"]
