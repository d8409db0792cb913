"""The producers of a group, and the choice among them."""

from __future__ import annotations

import pytest

from escrowmq.core.half.producers import TRIES, LiveProducer, Producers
from tests.unit.core.half.half_site import AskedProducer


def joined(*producers: AskedProducer) -> Producers:
    made = Producers(lambda *_: None)
    for producer in producers:
        made.join("/", "g", producer)
    return made


def anyone(producer: LiveProducer) -> bool:
    return True


@pytest.mark.rule("HALF-4")
def test_the_producer_that_sent_the_message_is_preferred() -> None:
    first, sender, last = (AskedProducer(label) for label in "abc")
    made = joined(first, sender, last)
    assert [next(made.choose("/", "g", "b", anyone)) for _ in range(4)] == [sender] * 4


@pytest.mark.rule("HALF-4")
def test_other_producers_of_the_group_are_asked_in_turn() -> None:
    first, last = AskedProducer("a"), AskedProducer("b")
    made = joined(first, last)
    assert [next(made.choose("/", "g", "gone", anyone)) for _ in range(4)] == [first, last, first, last]


def test_only_producers_that_may_decide_are_chosen() -> None:
    stranger, owner = AskedProducer("a", user="eve"), AskedProducer("b")
    made = joined(stranger, owner)
    assert list(made.choose("/", "g", "", lambda producer: producer.user == owner.user)) == [owner]


def test_a_check_is_offered_to_a_bounded_number_of_producers() -> None:
    made = joined(*(AskedProducer(str(i)) for i in range(3 * TRIES)))
    assert len(list(made.choose("/", "g", "", anyone))) == TRIES


def test_a_producer_leaves_one_group_or_all() -> None:
    producer = AskedProducer()
    made = joined(producer)
    made.join("/", "h", producer)
    made.part("/", "g", producer)
    made.part("/", "g", producer)
    assert (made.count("/", "g"), made.count("/", "h")) == (0, 1)
    made.leave(producer)
    made.leave(producer)
    assert made.count("/", "h") == 0
    assert list(made.choose("/", "h", "", anyone)) == []


def test_joining_twice_counts_once_and_is_told_once() -> None:
    told: list[tuple[str, str]] = []
    made = Producers(lambda vhost, group: told.append((vhost, group)))
    producer = AskedProducer()
    made.join("/", "g", producer)
    made.join("/", "g", producer)
    assert (made.count("/", "g"), told) == (1, [("/", "g")])
