"""The table of operations, and the status."""

from __future__ import annotations

import logging

import pytest

from escrowmq.admin.audit import LOGGED
from escrowmq.admin.service import AdminService
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import pair


def test_the_status_adds_totals_to_the_figures_of_the_process() -> None:
    server, client = pair()
    client.declare(1, "q")
    client.publish(1, "q", b"message")
    status = perform(AdminService(FakeProcess(server)).operations, "status")
    assert status == {
        "pid": 1,
        "queues": {"count": 1, "ready": 1, "unsettled": 0, "consumers": 0, "delayed": 0},
        "transactions": {"branches": 0, "in_doubt": 0, "in_doubt_seconds": 0, "heuristic": 0},
        "half_messages": {"pending": 0, "pending_seconds": 0, "parked": 0, "parked_seconds": 0},
        "replication": None,
    }


def test_every_operation_that_is_to_be_logged_exists() -> None:
    assert LOGGED.keys() <= AdminService(FakeProcess(pair()[0])).operations.keys()


def test_a_change_leaves_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    perform(AdminService(FakeProcess(pair()[0])).operations, "vhost.add", name="orders")
    assert "vhost.add name='orders'" in caplog.messages
