"""Filters and distribution modes of sources, from the attach to the deliveries."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.wire.amqp10.codec.performatives import (
    MIXED_MODE,
    RECEIVER,
    UNSETTLED_MODE,
    Attach,
    Disposition,
    Flow,
    Transfer,
)
from escrowmq.wire.amqp10.codec.sections import APPLICATION_PROPERTIES, MESSAGE_ANNOTATIONS, encode_section
from escrowmq.wire.amqp10.codec.states import Modified
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.codec.types import Described, Symbol, Timestamp, ULong
from escrowmq.wire.amqp10.errors import INVALID_FIELD, LIMIT_EXCEEDED, NOT_IMPLEMENTED
from escrowmq.wire.amqp10.filters import MOST
from tests.harness.client import SimClient
from tests.unit.wire.amqp10.clients import Client, body, connected

SELECTOR = "apache.org:selector-filter:string"


def fill(client: Client, count: int, address: str = "q") -> None:
    """Publish messages with their number as content, and as the application property `n`."""
    client.sender(address, 0)
    for n in range(count):
        payload = encode_section(APPLICATION_PROPERTIES, {"n": n, "parity": "odd" if n % 2 else "even"})
        if n % 5:
            payload = encode_section(MESSAGE_ANNOTATIONS, {Symbol("x-stream-filter-value"): f"v{n % 5}"}) + payload
        client.send(0, Transfer(0, n, b"%d" % n, 0, True), payload=payload + b"\x00\x53\x75\xa0\x01%d" % n)
    client.inbox.clear()


def got(client: Client) -> list[int]:
    """Take the contents of deliveries out of the inbox, and leave the rest."""
    found = [message for message in client.inbox if isinstance(message.performative, Transfer)]
    rest = [message for message in client.inbox if not isinstance(message.performative, Transfer)]
    client.inbox.clear()
    client.inbox.extend(rest)
    return [int(body(message.payload)) for message in found]


def source(key: str, descriptor: Any, value: Any, address: str = "q") -> Source:
    filtered = value if descriptor is None else Described(descriptor, value)
    return Source(address, filter={Symbol(key): filtered})


@pytest.mark.rule("MSG-3")
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (source("jms-selector", Symbol(SELECTOR), "n > 6"), [7, 8, 9]),
        (source("jms-selector", ULong(0x468C00000004), "parity = 'odd' AND n < 5"), [1, 3]),
        (source("jms-selector", None, "n IN (2, 4)"), [2, 4]),
        (source("f", Symbol("amqp:sql-filter"), "n % 4 = 0"), [0, 4, 8]),
        (source("f", ULong(0x120), "properties.subject IS NOT NULL"), []),
        (source("f", Symbol("amqp:application-properties-filter"), {"parity": "&p:o"}), [1, 3, 5, 7, 9]),
        (source("f", ULong(0x174), {"n": 3}), [3]),
        (source("f", ULong(0x173), {Symbol("to"): "nobody"}), []),
    ],
)
def test_a_filter_is_granted_and_only_matching_messages_arrive(asked: Source, expected: list[int]) -> None:
    _, client = connected()
    fill(client, 10)
    answer = client.receiver(None, source=asked, credit=100)
    assert answer.source is not None
    assert answer.source.filter == asked.filter
    assert got(client) == expected
    other = client.receiver("q", 2, credit=100, settled=True)
    assert other.source is not None
    assert got(client) == [n for n in range(10) if n not in expected]


def test_several_filters_must_all_be_passed() -> None:
    _, client = connected()
    fill(client, 10)
    filters: dict[Any, Any] = {
        Symbol("a"): Described(Symbol(SELECTOR), "n > 2"),
        Symbol("b"): Described(ULong(0x174), {"parity": "even"}),
    }
    client.receiver(None, source=Source("q", filter=filters), credit=100)
    assert got(client) == [4, 6, 8]


@pytest.mark.rule("SET-6")
@pytest.mark.parametrize(
    ("asked", "condition"),
    [
        (source("jms-selector", Symbol(SELECTOR), "n >"), INVALID_FIELD),
        (source("jms-selector", Symbol(SELECTOR), 5), INVALID_FIELD),
        (source("f", ULong(0x120), "header.nothing = 1"), INVALID_FIELD),
        (source("f", ULong(0x173), {Symbol("nothing"): "x"}), INVALID_FIELD),
        (source("f", ULong(0x174), "x"), INVALID_FIELD),
        (source("no-local", Symbol("apache.org:no-local-filter:list"), []), NOT_IMPLEMENTED),
        (source("no-local", ULong(0x468C00000003), []), NOT_IMPLEMENTED),
        (Source("q", filter={Symbol(f"f{n}"): "x" for n in range(MOST + 1)}), LIMIT_EXCEEDED),
        (Source("q", distribution_mode="odd"), INVALID_FIELD),
    ],
)
def test_refused_filters(asked: Source, condition: str) -> None:
    _, client = connected()
    client.refused(Attach("l", 3, RECEIVER, source=asked), condition)
    client.receiver("q")


def test_an_unknown_filter_is_not_granted() -> None:
    _, client = connected()
    answer = client.receiver(None, source=source("odd", Symbol("odd:filter"), "x"))
    assert answer.source is not None
    assert answer.source.filter is None


def stream() -> Client:
    made, client = connected()
    other = SimClient(made)
    other.open_channel(1)
    other.declare(1, "s", arguments={"x-queue-type": "stream"})
    fill(client, 8, "s")
    return client


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"stream-offset-spec": "first"}, list(range(8))),
        ({"stream-offset-spec": Symbol("last")}, [7]),
        ({"stream-offset-spec": Symbol("next")}, []),
        ({}, []),
        ({"stream-offset-spec": ULong(5)}, [5, 6, 7]),
        ({"stream-offset-spec": Timestamp(0)}, list(range(8))),
        ({"stream-offset-spec": "first", "stream-filter": "v1"}, [1, 6]),
        ({"stream-offset-spec": "first", "stream-filter": ["v1", "v2"]}, [1, 2, 6, 7]),
        ({"stream-offset-spec": "first", "stream-filter": "v1", "stream-match-unfiltered": True}, [0, 1, 5, 6]),
    ],
)
def test_filters_of_streams(filters: dict[str, Any], expected: list[int]) -> None:
    client = stream()
    asked: dict[Any, Any] = {
        Symbol(f"rabbitmq:{name}"): Described(Symbol(f"rabbitmq:{name}"), value) for name, value in filters.items()
    }
    answer = client.receiver(None, source=Source("s", filter=asked), credit=100)
    assert answer.source is not None
    assert answer.source.filter == (asked or None)
    assert got(client) == expected


@pytest.mark.parametrize(
    "filters",
    [
        {"stream-offset-spec": "tomorrow"},
        {"stream-offset-spec": -1},
        {"stream-offset-spec": True},
        {"stream-filter": 5},
        {"stream-filter": []},
        {"stream-filter": ["v"] * 17},
    ],
)
def test_malformed_filters_of_streams_are_refused(filters: dict[str, Any]) -> None:
    client = stream()
    asked: dict[Any, Any] = {Symbol(f"rabbitmq:{name}"): value for name, value in filters.items()}
    client.refused(Attach("l", 3, RECEIVER, source=Source("s", filter=asked)), INVALID_FIELD)


def test_filters_of_streams_are_not_granted_for_queues() -> None:
    _, client = connected()
    answer = client.receiver(None, source=source("o", Symbol("rabbitmq:stream-offset-spec"), "first"))
    assert answer.source is not None
    assert answer.source.filter is None


@pytest.mark.parametrize("mode", [MIXED_MODE, 1])
def test_a_browser_sees_every_message_settled_and_takes_none(mode: int) -> None:
    made, client = connected()
    fill(client, 6)
    asked = Source("q", distribution_mode="copy")
    client.send(0, Attach("b", 1, RECEIVER, mode, source=asked, target=Target()))
    answer = client.expect(Attach)
    assert answer.source is not None
    assert answer.source.distribution_mode == "copy"
    client.flow(1, 100, drain=True)
    transfers = [message.performative for message in client.inbox if isinstance(message.performative, Transfer)]
    assert [transfer.settled for transfer in transfers] == [True] * 6
    assert got(client) == list(range(6))
    flow = client.expect(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (100, 0, True)
    assert made.broker.directory.vhost("/").queue("q").ready == 6


def test_a_browser_may_have_a_selector() -> None:
    _, client = connected()
    fill(client, 6)
    asked = Source("q", distribution_mode="copy", filter={Symbol("jms-selector"): "parity = 'odd'"})
    client.receiver(None, source=asked, credit=100, settled=True)
    assert got(client) == [1, 3, 5]


@pytest.mark.rule("SET-6")
def test_unsettled_copies_are_refused() -> None:
    _, client = connected()
    asked = Source("q", distribution_mode="copy")
    client.refused(Attach("b", 1, RECEIVER, UNSETTLED_MODE, source=asked, target=Target()), NOT_IMPLEMENTED)


def test_a_subscriber_of_a_topic_takes_its_copies() -> None:
    made, client = connected()
    asked = Source("/exchanges/amq.fanout", distribution_mode="copy")
    client.receiver(None, source=asked, credit=100, settled=True)
    fill(client, 3, "/exchanges/amq.fanout/k")
    (queue,) = [queue for queue in made.broker.directory.vhost("/").queues.values() if queue.exclusive]
    assert queue.ready == 0
    assert len(queue.consumers) == 1


@pytest.mark.rule("SET-13")
def test_a_link_is_not_offered_a_message_again_that_it_cannot_take() -> None:
    _, client = connected()
    fill(client, 2)
    client.receiver("q", 1, credit=100)
    assert got(client) == [0, 1]
    client.send(0, Disposition(RECEIVER, 0, 0, True, Modified(delivery_failed=True, undeliverable_here=True)))
    assert got(client) == []
    client.receiver("q", 2, credit=100)
    assert got(client) == [0]
