"""The sends of a publishing channel: without limit, within a window, by transaction, at a rate."""

from __future__ import annotations

from struct import unpack_from

import pytest

from escrowmq.perf.block import WRITE_BYTES, PublishBlock
from escrowmq.perf.errors import PerfError
from escrowmq.perf.pace import SECOND, Pace
from escrowmq.perf.publisher import ConfirmingPublisher, Publisher, TransactingPublisher
from escrowmq.perf.totals import Totals

UNIT = 108
BODY_AT = 7
COMMIT = b"commit"


def block(count: int) -> PublishBlock:
    return PublishBlock([bytes(UNIT)] * count, [BODY_AT] * count)


def transacting(count: int | None, size: int = 3, totals: Totals | None = None) -> TransactingPublisher:
    return TransactingPublisher(1, block(6), totals or Totals(), count, False, size, COMMIT)


def test_a_publisher_is_finished_after_its_count() -> None:
    totals = Totals()
    publisher = Publisher(1, block(4), totals, 10, stamped=False)
    taken = []
    while (data := publisher.take(5)) is not None:
        taken.append(len(data) // UNIT)
    assert taken == [4, 4, 2]
    assert publisher.finished
    assert (totals.published, totals.published_at) == (10, 5)


def test_without_a_count_a_publisher_continues_until_it_is_stopped() -> None:
    publisher = Publisher(1, block(4), Totals(), None, stamped=False)
    publisher.take(0)
    assert not publisher.finished
    publisher.stop()
    assert publisher.take(0) is None
    assert publisher.finished


def test_a_window_is_never_exceeded() -> None:
    publisher = ConfirmingPublisher(1, block(4), Totals(), 20, stamped=False, window=5)
    while publisher.take(0) is not None:
        pass
    assert publisher.published == 5
    assert publisher.on_confirm(3, multiple=True, now=0) == 3
    while publisher.take(0) is not None:
        pass
    assert publisher.published == 8


def test_a_publisher_is_finished_only_when_everything_is_confirmed() -> None:
    totals = Totals()
    publisher = ConfirmingPublisher(1, block(4), totals, 2, stamped=False, window=5)
    publisher.take(100)
    finished = []
    for tag, now in ((2, 300), (1, 350)):
        publisher.on_confirm(tag, multiple=False, now=now)
        finished.append(publisher.finished)
    assert finished == [False, True]
    assert totals.answer.count == 1
    assert totals.answer.maximum == 250


def test_a_transaction_is_followed_by_its_commit_and_nothing_until_the_answer() -> None:
    totals = Totals()
    publisher = transacting(5, totals=totals)
    data = publisher.take(10)
    assert data is not None
    assert bytes(data[3 * UNIT :]) == COMMIT
    assert publisher.take(11) is None
    publisher.stop()
    assert not publisher.finished
    publisher.on_commit_ok(40)
    assert (totals.confirmed, totals.answer.maximum) == (3, 30)
    assert publisher.finished


def test_the_last_transaction_may_be_smaller() -> None:
    publisher = transacting(4)
    publisher.take(0)
    publisher.on_commit_ok(0)
    data = publisher.take(0)
    assert data is not None
    assert len(data) == UNIT + len(COMMIT)


def test_a_paced_message_carries_the_time_at_which_it_was_due() -> None:
    publisher = Publisher(1, block(8), Totals(), None, stamped=True)
    publisher.pace = Pace(1000, 0)
    assert publisher.due_at() == 0
    data = publisher.take(2_500_000)
    assert data is not None
    times = [unpack_from(">Q", data, i * UNIT + BODY_AT)[0] for i in range(len(data) // UNIT)]
    assert times == [0, 1_000_000, 2_000_000]
    assert publisher.due_at() == 3_000_000


def test_a_full_window_waits_for_a_confirm_and_not_for_the_time() -> None:
    publisher = ConfirmingPublisher(1, block(8), Totals(), None, stamped=True, window=1)
    publisher.pace = Pace(1000, 0)
    publisher.take(SECOND)
    assert publisher.published == 1
    assert publisher.due_at() is None
    publisher.on_confirm(1, multiple=False, now=SECOND)
    assert publisher.due_at() == 1_000_000


def test_unexpected_answers_are_errors() -> None:
    publisher = Publisher(1, block(1), Totals(), None, stamped=False)
    with pytest.raises(PerfError, match="is not in confirm mode"):
        publisher.on_confirm(1, multiple=False, now=0)
    with pytest.raises(PerfError, match="which sent none"):
        publisher.on_commit_ok(0)
    with pytest.raises(PerfError, match="which sent none"):
        transacting(1).on_commit_ok(0)


def test_the_size_of_one_write_is_limited() -> None:
    publisher = Publisher(1, block(5000), Totals(), None, stamped=False)
    data = publisher.take(0)
    assert data is not None
    assert len(data) <= WRITE_BYTES < len(data) + UNIT


def test_transactions_go_through_the_block_in_turn() -> None:
    publisher = TransactingPublisher(1, PublishBlock([b"a", b"b", b"c", b"d"], [0] * 4), Totals(), None, False, 2, b"!")
    taken = []
    for _ in range(3):
        data = publisher.take(0)
        assert data is not None
        taken.append(bytes(data))
        publisher.on_commit_ok(0)
    assert taken == [b"ab!", b"cd!", b"ab!"]
