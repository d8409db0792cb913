"""Half messages that arrive together are stored by one record."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.half.storing import HalfArrival, Stored
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.kinds import Kind
from tests.unit.core.half.half_site import GROUP, TOPIC, USER, HalfSite


def store(site: HalfSite, *idents: str, keys: str = "") -> list[Stored | BrokerError]:
    """Store half messages together. `keys` has the routing key of each, "q" unless it is given."""
    arrivals = [
        HalfArrival(ident, Envelope("", key, durable=True), ident.encode(), site.target)
        for ident, key in zip(idents, keys or "q" * len(idents), strict=True)
    ]
    return site.half.store_each("/", TOPIC, arrivals, group=GROUP, user=USER)


@pytest.mark.rule("HALF-1")
def test_those_that_arrive_together_are_one_record_and_survive_a_restart() -> None:
    site = HalfSite()
    site.store("first")
    before = len(site.records(*Kind))
    found = store(site, "a", "b", "c", keys="qqr")
    assert found == [Stored(number, site.journal.end_lsn, False) for number in (2, 3, 4)]
    assert len(site.records(*Kind)) == before + 1
    site.sync()
    again = site.again()
    assert [again.named(ident).content for ident in ("first", "a", "b", "c")] == [b"", b"a", b"b", b"c"]
    assert [again.named(ident).envelope.routing_key for ident in ("a", "b", "c")] == ["q", "q", "r"]


@pytest.mark.rule("HALF-11")
def test_a_message_that_arrives_twice_together_is_stored_once() -> None:
    site = HalfSite()
    first, second, third = store(site, "a", "a", "b")
    assert (first, second) == (Stored(1, site.journal.end_lsn, False), Stored(1, site.journal.end_lsn, True))
    assert third == Stored(2, site.journal.end_lsn, False)
    assert store(site, "b", "a") == [Stored(number, site.journal.end_lsn, True) for number in (2, 1)]


@pytest.mark.rule("FAIR-3")
def test_those_that_exceed_a_limit_are_refused_and_the_others_are_stored() -> None:
    site = HalfSite()
    site.half.options.per_user = 2
    found = store(site, "a", "", "b", "c")
    refused = [each.condition if isinstance(each, BrokerError) else None for each in found]
    assert refused == [None, Condition.INVALID_ARGUMENT, None, Condition.LIMIT_EXCEEDED]
    assert [half.message_id for half in site.half.each("/")] == ["a", "b"]


@pytest.mark.rule("HALF-4")
def test_all_of_them_are_checked_after_the_timeout() -> None:
    site = HalfSite()
    producer = site.join()
    store(site, "a", "b")
    site.after(site.half.options.check.timeout_ms)
    assert producer.asked == [("a", 1, b"a"), ("b", 1, b"b")]
