"""The ledger: half messages by topic and message id, and their counts."""

from __future__ import annotations

from escrowmq.core.half.ledger import HalfLedger
from escrowmq.core.half.state import HalfState
from escrowmq.core.records.half import OriginFields

KEY = OriginFields("t", "g", "u", "c", 3)


def ledger(*idents: str) -> HalfLedger:
    made = HalfLedger()
    for number, ident in enumerate(idents, 1):
        made.add(number, ident, 10, 20, made.origins.of(KEY))
    return made


def test_a_half_message_is_found_by_topic_and_message_id() -> None:
    made = ledger("a", "b")
    assert (made.number("t", "b"), made.number("t", "c"), made.number("other", "b")) == (2, 0, 0)


def test_half_messages_of_several_topics_are_found_by_a_message_id() -> None:
    made = ledger("a", "b")
    made.add(3, "b", 10, 20, made.origins.of(KEY._replace(topic="other")))
    assert (made.numbers("b"), made.numbers("a"), made.numbers("c")) == ([2, 3], [1], [])


def test_decided_half_messages_are_found_until_they_are_forgotten() -> None:
    made = ledger("a")
    made.set(1, HalfState.COMMITTED, 30, 0)
    assert made.number("t", "a") == 1
    made.forget(1)
    assert made.number("t", "a") == 0
    assert made.rows.state(1) is None
    assert made.origins.all() == []
    assert made.states == {}


def test_the_undecided_ones_of_each_user_are_counted() -> None:
    made = ledger("a", "b", "c")
    made.set(1, HalfState.PARKED, 30, 15)
    made.set(2, HalfState.ROLLED_BACK, 30, 0)
    assert made.undecided == {"u": 2}
    assert made.states["t"] == {HalfState.PENDING: 1, HalfState.PARKED: 1, HalfState.ROLLED_BACK: 1}
    made.set(1, HalfState.COMMITTED, 40, 15)
    made.set(3, HalfState.COMMITTED, 40, 15)
    assert made.undecided == {}


def test_a_transaction_id_contains_the_number_and_depends_on_everything_else() -> None:
    made = ledger("a", "b")
    found = made.transaction_id("/", 2)
    assert found[:16] == f"{2:016X}"
    assert found != made.transaction_id("other", 2)
