"""Operations on the journal."""

from __future__ import annotations

import pytest

from escrowmq.admin.journal import JournalAdmin
from escrowmq.admin.operation import OperationRefused
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import pair


def test_a_snapshot_is_taken_after_compaction_if_asked_for() -> None:
    process = FakeProcess(pair()[0])
    operations = JournalAdmin(process).operations
    perform(operations, "journal.snapshot")
    perform(operations, "journal.compact")
    assert process.compacted == [False, True]


def test_the_reason_of_a_failed_snapshot_is_reported() -> None:
    process = FakeProcess(pair()[0])
    process.failure = "the disk is full"
    with pytest.raises(OperationRefused, match="the disk is full"):
        perform(JournalAdmin(process).operations, "journal.snapshot")
