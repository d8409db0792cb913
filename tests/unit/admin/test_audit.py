"""The lines and records that administration leaves in the log and in the journal."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from escrowmq.admin.audit import LONGEST_REASON, REASONED, audited
from escrowmq.admin.operation import OperationRefused
from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from tests.harness.server import SimServer
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import server


def audited_in(made: SimServer) -> dict[str, Any]:
    """Return operations of which some are audited. That of `queue.purge` wants to know who asked."""
    process = FakeProcess(made)

    async def operation(**arguments: Any) -> int:
        if arguments.get("name") == "bad":
            raise ValueError
        return len(arguments)

    async def durable(**arguments: Any) -> None:
        del arguments
        await process.durably(lambda: None)
        await process.durably(lambda: None)

    async def checking(name: str, by: str) -> str:
        return f"{name} of {by}"

    operations = dict.fromkeys(("user.add", "user.list", "tx.commit"), operation)
    return audited(operations | {"vhost.add": durable, "queue.purge": checking}, process)


def recorded(made: SimServer) -> list[dict[str, Any]]:
    """Return the records of operations that are appended from now on, without their time."""
    found: list[dict[str, Any]] = []
    append = made.broker.log.append

    class Log:
        """Notes what is appended."""

        def append(self, kind: Kind, *payload: bytes) -> int:
            if kind is Kind.OPERATED:
                fields = decode_change(b"".join(payload))
                assert fields.pop("time_ms") == made.broker.engine.now
                found.append(fields)
            return append(kind, *payload)

    made.broker.log = Log()  # type: ignore[assignment]
    return found


def test_a_change_that_succeeded_is_logged_without_its_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made = server()
    operations, records = audited_in(made), recorded(made)
    assert perform(operations, "user.add", name="alice", password="s3cret", tags=["administrator"]) == 3
    assert perform(operations, "user.list") == 0
    with pytest.raises(ValueError):
        perform(operations, "user.add", name="bad")
    assert caplog.messages == ["user.add name='alice' tags=['administrator']"]
    arguments = {"name": "alice", "tags": ["administrator"]}
    assert records == [{"operation": "user.add", "arguments": arguments, "by": "", "why": ""}]


def test_the_line_and_the_record_name_the_user_who_asked_and_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made = server()
    records = recorded(made)
    assert perform(audited_in(made), "tx.commit", xid="x", by="alice", why="its manager is gone") == 1
    assert caplog.messages == ["tx.commit xid='x' by='alice' why='its manager is gone'"]
    (record,) = records
    assert record == {"operation": "tx.commit", "arguments": {"xid": "x"}, "by": "alice", "why": "its manager is gone"}


def test_an_operation_with_several_durable_steps_has_one_record() -> None:
    made = server()
    records = recorded(made)
    perform(audited_in(made), "vhost.add", name="v", by="alice")
    assert [each["operation"] for each in records] == ["vhost.add"]


def test_an_operation_that_checks_permissions_is_told_who_asks() -> None:
    assert perform(audited_in(server()), "queue.purge", name="q", by="alice") == "q of alice"


@pytest.mark.parametrize("why", [{}, {"why": ""}, {"why": " "}, {"why": "x" * (LONGEST_REASON + 1)}])
def test_a_heuristic_decision_needs_a_reason(why: dict[str, str]) -> None:
    made = server()
    records = recorded(made)
    with pytest.raises(OperationRefused, match="a reason"):
        perform(audited_in(made), "tx.commit", xid="x", **why)
    assert records == []
    assert "half.drop" in REASONED
