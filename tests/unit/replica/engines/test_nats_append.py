"""What an append to NATS is when some of its entries are stored, refused or unanswered."""

from __future__ import annotations

import pytest

from escrowmq.replica.engines.nats_append import PUBLISH_BYTES, WINDOW_ENTRIES, AppendRefused, NatsAppend
from escrowmq.replica.engines.nats_client import WINDOW_BYTES
from escrowmq.replica.errors import AppendUnknown


def published(append: NatsAppend) -> list[int]:
    """Publish all entries that may be published, and return their numbers."""
    found: list[int] = []
    while append.may_publish:
        found += [index for index, _ in append.next_entries()]
    return found


def test_positions_come_in_the_order_of_the_entries() -> None:
    append = NatsAppend([b"a", b"b"])
    assert published(append) == [0, 1]
    append.store(1, 8)
    done = append.is_done
    append.store(0, 7)
    assert (done, append.is_done, append.result()) == (False, True, [7, 8])


@pytest.mark.parametrize(
    ("entry", "count", "first"),
    [(b"x", WINDOW_ENTRIES + 3, WINDOW_ENTRIES), (bytes(WINDOW_BYTES // 4), 6, 4), (bytes(WINDOW_BYTES + 1), 3, 1)],
)
def test_entries_beyond_the_window_wait_for_answers(entry: bytes, count: int, first: int) -> None:
    append = NatsAppend([entry] * count)
    assert published(append) == list(range(first))
    assert not append.may_publish
    append.store(0, 0)
    assert published(append) == [first]
    assert not append.is_done


def test_answers_can_be_read_between_large_entries() -> None:
    append = NatsAppend([b"", b"x", bytes(PUBLISH_BYTES - 1), b"x", bytes(PUBLISH_BYTES + 1), b"x"])
    found = []
    while append.may_publish:
        found.append([index for index, _ in append.next_entries()])
    assert found == [[0, 1, 2], [3], [4], [5]]


def test_an_append_that_was_refused_as_a_whole_may_be_repeated() -> None:
    append = NatsAppend([b"a", b"b"])
    published(append)
    append.refuse("the stream has no leader")
    done = append.is_done
    append.refuse("the stream has no leader")
    assert (done, append.is_done) == (False, True)
    with pytest.raises(AppendRefused, match="no leader"):
        append.result()
    append.begin_again()
    assert published(append) == [0, 1]
    append.store(0, 3)
    append.store(1, 4)
    assert append.result() == [3, 4]


def test_nothing_more_is_published_after_a_refusal() -> None:
    append = NatsAppend([b"x"] * (WINDOW_ENTRIES + 1))
    published(append)
    append.refuse("the stream has no leader")
    assert not append.may_publish


def test_a_part_that_was_stored_makes_the_outcome_unknown() -> None:
    append = NatsAppend([b"a", b"b"])
    published(append)
    append.store(0, 3)
    append.refuse("the stream has no leader")
    assert append.is_done
    with pytest.raises(AppendUnknown, match="only a part of an append: the stream has no leader"):
        append.result()


def test_the_first_failure_is_told() -> None:
    append = NatsAppend([b"a"])
    published(append)
    append.fail(AppendUnknown("the connection was closed"))
    append.fail(AppendUnknown("later"))
    with pytest.raises(AppendUnknown, match="the connection was closed"):
        append.result()
