"""An inbox returns its deliveries in order, one at a time or in bulk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.client.deliveries import Batch, Inbox
from escrowmq.client.incoming import Run
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.spec import BasicDeliver

PROPS = Properties(type="t").encode()


def run(tags: range, consumer: str = "c") -> Run:
    found = Run(BasicDeliver(consumer, tags.start, False, "e", f"k{tags.start}"), PROPS)
    found.tags += tags
    found.bodies += [b"%d" % tag for tag in tags]
    return found


@given(
    st.lists(st.integers(1, 6), max_size=6),
    st.lists(st.one_of(st.none(), st.integers(0, 9), st.just("pop")), max_size=12),
)
def test_deliveries_are_taken_in_order(sizes: list[int], takes: list[int | str | None]) -> None:
    inbox, wanted, start = Inbox(), [], 1
    for size in sizes:
        inbox.add(run(range(start, start + size)))
        wanted += [(tag, f"k{start}") for tag in range(start, start + size)]
        start += size
    got: list[tuple[int, str]] = []
    for take in takes:
        if take == "pop":
            if inbox.count:
                method, properties, body = inbox.pop()
                assert body == b"%d" % method.delivery_tag
                assert properties == Properties(type="t")
                got.append((method.delivery_tag, method.routing_key))
        else:
            assert not isinstance(take, str)
            batch = Batch(inbox.take(take))
            assert len(batch) == len(batch.tags) == len(batch.bodies)
            assert batch.bodies == [b"%d" % tag for tag in batch.tags]
            got += [(tag, part.deliver.routing_key) for part in batch.runs for tag in part.tags]
        assert inbox.count == len(wanted) - len(got)
    assert got == wanted[: len(got)]


def test_an_empty_inbox_returns_nothing() -> None:
    assert Inbox().take(None) == []
    with pytest.raises(IndexError):
        Inbox().pop()


def test_the_deliveries_of_a_cancelled_consumer_are_removed() -> None:
    inbox = Inbox()
    for start, consumer in ((1, "a"), (11, "b"), (21, "a")):
        inbox.add(run(range(start, start + 3), consumer))
    inbox.pop()
    assert inbox.without("a") == [2, 3, 21, 22, 23]
    assert [inbox.pop().method.delivery_tag for _ in range(inbox.count)] == [11, 12, 13]
