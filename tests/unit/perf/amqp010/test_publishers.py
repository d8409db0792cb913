"""Publishers of sessions: numbers of commands, windows, transactions, branches."""

from __future__ import annotations

from itertools import repeat

import pytest

from escrowmq.perf.amqp010.connection import SessionNumbers
from escrowmq.perf.amqp010.encoding import transfer_block
from escrowmq.perf.amqp010.publishers import AnsweredPublisher, CommandSet, CommittingPublisher, SessionBranchPublisher
from escrowmq.perf.block import PublishBlock
from escrowmq.perf.errors import PerfError
from escrowmq.perf.messages import Variety, messages
from escrowmq.perf.totals import Totals
from escrowmq.perf.workload import ONE_PHASE, TWO_PHASE
from escrowmq.wire.amqp010.codec.spec import (
    DtxCommit,
    DtxEnd,
    DtxPrepare,
    DtxStart,
    ExecutionSync,
    MessageTransfer,
    TxCommit,
    XaStatus,
)
from tests.unit.perf.amqp010.test_encoding import received

OK = int(XaStatus.XA_OK)


def block() -> PublishBlock:
    made = list(messages(Variety(), 100, 10))
    return transfer_block(made, 3, "", repeat("q"), durable=True, explicit=False, frame_max=65_535)


def answered(totals: Totals, window: int, *, explicit: bool) -> AnsweredPublisher:
    return AnsweredPublisher(3, block(), totals, 20, False, window, SessionNumbers(), explicit=explicit)


def kinds(data: memoryview | None) -> list[type]:
    assert data is not None
    return [type(each.what) for each in received(bytes(data))]


def test_completions_count_messages_and_not_the_requests_for_them() -> None:
    totals = Totals()
    publisher = answered(totals, 4, explicit=False)
    assert kinds(publisher.take(0)) == [MessageTransfer] * 4 + [ExecutionSync]
    assert publisher.take(0) is None
    assert publisher.on_completed(0, 1, 1)
    assert not publisher.on_completed(0, 1, 1)  # told again
    assert totals.confirmed == 2
    assert kinds(publisher.take(2)) == [MessageTransfer] * 2 + [ExecutionSync]
    assert publisher.numbers.sent == 8
    assert publisher.on_completed(0, 4, 3)
    assert totals.confirmed == 4
    assert publisher.on_completed(6, 7, 3)  # the last one of the second write before the first
    assert publisher.on_completed(5, 5, 3)
    assert totals.confirmed == 6


def test_acceptances_confirm_messages_if_they_are_asked_for() -> None:
    totals = Totals()
    publisher = answered(totals, 4, explicit=True)
    assert kinds(publisher.take(0)) == [MessageTransfer] * 4
    assert not publisher.on_completed(0, 3, 1)
    assert publisher.on_accepted(0, 1, 1, rejected=False)
    assert publisher.on_accepted(2, 3, 1, rejected=True)
    assert (totals.confirmed, totals.rejected) == (4, 2)
    with pytest.raises(PerfError, match="answered command 9, but only 4"):
        publisher.on_accepted(4, 9, 2, rejected=False)


def test_an_acceptance_that_was_not_asked_for_is_an_error() -> None:
    publisher = answered(Totals(), 4, explicit=False)
    publisher.take(0)
    with pytest.raises(PerfError, match="need no acceptance"):
        publisher.on_accepted(0, 0, 1, rejected=False)


def test_a_publisher_is_finished_when_everything_is_answered() -> None:
    publisher = answered(Totals(), 100, explicit=False)
    while publisher.take(0) is not None:
        pass
    assert not publisher.finished
    publisher.on_completed(0, publisher.numbers.sent - 1, 1)
    assert publisher.finished


def test_a_set_of_commands_takes_answers_in_any_order() -> None:
    done = CommandSet(3)
    assert [done.add(5, 6, 20), done.add(5, 5, 20), done.add(3, 3, 20), done.add(0, 4, 20)] == [2, 0, 1, 1]
    assert done.floor == 7
    assert [done.add(9, 9, 20), done.add(3, 12, 20)] == [1, 5]
    assert done.floor == 13


def test_each_commit_is_awaited() -> None:
    totals, numbers = Totals(), SessionNumbers(sent=1)
    publisher = CommittingPublisher(3, block(), totals, 4, False, 2, b"")
    publisher.begin(numbers)
    for first in (1, 4):
        assert kinds(publisher.take(0)) == [MessageTransfer] * 2 + [TxCommit]
        assert publisher.take(0) is None
        assert not publisher.on_completed(first, first + 1, 1)
        assert publisher.on_completed(first, first + 2, 1)
    assert (totals.confirmed, publisher.finished, numbers.sent) == (4, True, 7)


def branches(phases: str, totals: Totals | None = None) -> SessionBranchPublisher:
    publisher = SessionBranchPublisher(3, block(), totals or Totals(), 4, False, 2, b"")
    publisher.begin(SessionNumbers(sent=1), phases)
    return publisher


def test_a_branch_is_committed_in_two_phases() -> None:
    totals = Totals()
    work = branches(TWO_PHASE, totals)
    data = work.take(0)
    assert kinds(data) == [DtxStart, MessageTransfer, MessageTransfer, DtxEnd, DtxPrepare]
    assert data is not None
    xids = {str(each.what.xid) for each in received(bytes(data)) if isinstance(each.what, DtxStart | DtxEnd)}
    assert work.take(1) is None
    assert [work.on_result(number, OK, 2) for number in (1, 4)] == [False, False]
    assert work.on_result(5, OK, 3)
    commit = work.take(3)
    assert kinds(commit) == [DtxCommit]
    assert commit is not None
    (one,) = received(bytes(commit))
    assert isinstance(one.what, DtxCommit)
    assert {str(one.what.xid)} == xids
    assert (work.room(4), totals.confirmed) == (0, 0)
    assert work.on_result(6, OK, 5)
    assert (work.room(6), totals.confirmed) == (2, 2)
    assert not work.finished


def test_a_branch_is_committed_in_one_phase() -> None:
    work = branches(ONE_PHASE)
    for last in (5, 10):
        assert kinds(work.take(0))[-2:] == [DtxEnd, DtxCommit]
        assert work.on_result(last, OK, 1)
    assert work.finished


def test_a_rollback_is_an_error() -> None:
    work = branches(TWO_PHASE)
    work.take(0)
    with pytest.raises(PerfError, match="answered 1 to command 5"):
        work.on_result(5, int(XaStatus.XA_RBROLLBACK), 1)


def test_the_brokers_commands_are_completed_now_and_then() -> None:
    work = branches(TWO_PHASE)
    assert work.completion() == b""
    work.numbers.received = 64
    assert work.completion()
    assert work.completion() == b""
