"""The headers of a dead letter as clients see them."""

from __future__ import annotations

from hypothesis import given

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.wire.amqp091.death import (
    dead_properties,
    delivered_properties,
    history_of,
    shortened,
    with_delivery_count,
    with_history,
)
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.table import FieldTable, FieldValue, Long, Timestamp
from tests.unit.wire.amqp091.test_shape import lists

EXPIRED = Death("q", "expired", 2, 5_999, "x", ("k", "shown", "blind"), 250)
REJECTED = Death("p", "rejected", 1, 1_000, "", ("first",), None)


def seen(envelope: Envelope) -> FieldTable:
    return Properties.decode(delivered_properties(envelope)).headers or {}


def test_without_a_history_the_properties_stay_unchanged() -> None:
    props = Properties(expiration="5", headers={"CC": ["a"], "h": 1}).encode()
    envelope = Envelope("", "q", props, extra_keys=("a",))
    assert delivered_properties(envelope) == props


def test_the_history_is_the_x_death_header() -> None:
    props = Properties(content_type="t", expiration="250", headers={"h": 1, "CC": ["shown"]}, app_id="a").encode()
    envelope = Envelope("dlx", "k", props, extra_keys=("shown", "blind"), deaths=(EXPIRED, REJECTED))
    decoded = Properties.decode(delivered_properties(envelope))
    assert (decoded.content_type, decoded.app_id, decoded.expiration) == ("t", "a", None)
    assert decoded.headers == {
        "h": 1,
        "CC": ["shown"],
        "x-death": [
            {
                "count": 2,
                "reason": "expired",
                "queue": "q",
                "time": 5,
                "exchange": "x",
                "routing-keys": ["k", "shown"],
                "original-expiration": "250",
            },
            {
                "count": 1,
                "reason": "rejected",
                "queue": "p",
                "time": 1,
                "exchange": "",
                "routing-keys": ["first"],
            },
        ],
        "x-first-death-exchange": "",
        "x-first-death-queue": "p",
        "x-first-death-reason": "rejected",
    }
    table = decoded.headers["x-death"]
    assert isinstance(table, list)
    assert isinstance(table[0], dict)
    assert isinstance(table[0]["count"], Long)
    assert isinstance(table[0]["time"], Timestamp)


def test_cc_is_removed_if_the_queue_has_a_dead_letter_routing_key() -> None:
    props = Properties(headers={"CC": ["shown"]}).encode()
    assert "CC" not in seen(Envelope("dlx", "other", props, deaths=(REJECTED,)))
    assert seen(Envelope("dlx", "k", props, extra_keys=("shown",), deaths=(REJECTED,)))["CC"] == ["shown"]


def test_a_history_sent_by_the_publisher_continues() -> None:
    earlier: list[FieldValue] = [
        {"queue": "q", "reason": "expired", "count": Long(3), "exchange": "old"},
        {"queue": "other", "reason": "maxlen", "count": Long(1)},
        "nonsense",
    ]
    sent: FieldTable = {"x-death": earlier, "x-first-death-queue": "very first"}
    envelope = Envelope("dlx", "k", Properties(headers=sent).encode(), deaths=(EXPIRED,))
    headers = seen(envelope)
    assert headers["x-first-death-queue"] == "very first"
    assert headers["x-death"] == [
        {"queue": "q", "reason": "expired", "count": 5, "exchange": "old"},
        {"queue": "other", "reason": "maxlen", "count": 1},
        "nonsense",
    ]


def test_an_x_death_header_of_another_type_is_tolerated() -> None:
    envelope = Envelope("dlx", "k", Properties(headers={"x-death": 1, "CC": 2}).encode(), deaths=(REJECTED,))
    deaths = seen(envelope)["x-death"]
    assert isinstance(deaths, list)
    assert len(deaths) == 1


def test_a_count_that_a_publisher_sent_never_overflows() -> None:
    sent: FieldTable = {"x-death": [{"queue": "q", "reason": "expired", "count": Long(2**63 - 2)}]}
    envelope = Envelope("", "q", Properties(headers=sent).encode(), deaths=(EXPIRED,))
    history = seen(envelope)["x-death"]
    assert isinstance(history, list)
    assert history[0] == {"queue": "q", "reason": "expired", "count": 2**63 - 1}


def test_delivery_counts_are_headers() -> None:
    entry = Entry(8, b"", Run(Envelope("", "s"), 1, 0))
    props = Properties(content_type="t", headers={"h": 1}).encode()
    entry.deliveries = 3
    assert Properties.decode(with_delivery_count(entry, props)).headers == {"h": 1, "x-delivery-count": 3}


@given(lists)
def test_adding_a_history_without_decoding_gives_the_same_octets(props: bytes) -> None:
    for keys in ((), ("further",)):
        died = Death("p", "rejected", 2, 1_700_000_000_000, "x", ("k", *keys), 5)
        envelope = Envelope("", "q", protocol=92, extra_keys=keys, deaths=(died,))
        assert with_history(envelope, props, history_of(envelope)) == dead_properties(envelope, props)


def queues_of(props: bytes) -> list[FieldValue]:
    deaths = (Properties.decode(props).headers or {}).get("x-death", [])
    assert isinstance(deaths, list)
    return [death["queue"] for death in deaths if isinstance(death, dict)]


def test_a_history_is_shortened_to_the_most_recent_deaths_and_the_first() -> None:
    deaths = tuple(Death(f"q{i:02}", "expired", 1, i, "", ("k",), None) for i in range(20))  # the most recent one first
    envelope = Envelope("", "q", Properties(headers={"h": "x" * 100}, app_id="a").encode(), deaths=deaths)
    whole = delivered_properties(envelope)
    assert queues_of(whole) == [f"q{i:02}" for i in range(20)]
    assert shortened(whole, len(whole)) is whole
    kept = []
    for room in range(len(whole) - 1, 100, -1):
        props = shortened(whole, room)
        found = Properties.decode(props)
        assert found.headers is not None
        assert (found.app_id, found.headers["h"]) == ("a", "x" * 100)
        assert found.headers["x-first-death-queue"] == "q19"
        names = queues_of(props)
        assert len(props) <= room or not names
        if len(names) > 1:
            assert names == [*[f"q{i:02}" for i in range(len(names) - 1)], "q19"]
        elif names:
            assert names == ["q00"]
        kept.append(len(names))
    assert kept == sorted(kept, reverse=True)
    assert set(kept) == set(range(20)), "no more are removed than necessary"


def test_what_the_publisher_sent_is_never_shortened() -> None:
    props = Properties(headers={"h": "x" * 1000, "x-death": "text"}).encode()
    assert shortened(props, 100) == props
