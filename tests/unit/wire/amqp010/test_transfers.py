"""Transfers from clients: what is stored of them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.access.holdings import STEP
from escrowmq.core.conditions import BrokerError
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.queue import Queue
from escrowmq.wire.amqp010.codec.commands import encode_header
from escrowmq.wire.amqp010.codec.spec import (
    DeliveryProperties,
    ErrorCode,
    FragmentProperties,
    MessageProperties,
    MessageTransfer,
    SessionDetach,
)
from escrowmq.wire.amqp010.codec.types import UnknownStruct
from escrowmq.wire.amqp010.content import TransferContent, unpack
from escrowmq.wire.amqp010.transfers import read_header
from tests.unit.wire.amqp010.clients import Client
from tests.unit.wire.amqp010.codec.strategies import compounds
from tests.unit.wire.amqp010.messaging import header, octets, publish, queue

PROPERTIES = MessageProperties(message_id=bytes(16), application_headers={"a": 1})


def entries(found: Queue) -> list[Entry]:
    found.take_in()
    return found.order.take(1000)


def runs(found: Queue) -> list[int]:
    """The lengths of the runs in a queue."""
    lengths: dict[object, int] = {}
    for entry in entries(found):
        lengths[entry.run] = lengths.get(entry.run, 0) + 1
    return list(lengths.values())


def test_all_of_a_message_is_stored() -> None:
    client = Client()
    found = queue(client.server)
    more = {"priority": 7, "delivery_mode": 2, "ttl": 5000, "timestamp": 8, "expiration": 9, "redelivered": True}
    publish(client, b"body", header=header(PROPERTIES, routing_key="q", **more))
    client.completes(0)
    (entry,) = entries(found)
    envelope = entry.run.envelope
    assert (envelope.exchange, envelope.routing_key, envelope.durable) == ("", "q", True)
    assert (envelope.priority, envelope.ttl) == (7, 5000)
    assert unpack(entry.content) == TransferContent(PROPERTIES.write(), b"body", 8, 9, True)


def test_messages_that_differ_in_their_own_properties_form_a_run() -> None:
    client = Client()
    found = queue(client.server)
    data = b""
    for number in range(20):
        properties = MessageProperties(
            message_id=number.to_bytes(16, "big"), application_headers={"n": number, "text": "x" * (number % 5)}
        )
        delivery = {"routing_key": "q", "timestamp": number, "expiration": number + 5, "ttl": 5000_000, "priority": 4}
        data += octets(client, b"%d" % number, header=header(properties, **delivery))
    client.send_bytes(data)
    client.completes(0, 19)
    assert runs(found) == [20]


def test_messages_that_differ_in_shared_properties_do_not() -> None:
    client = Client()
    found = queue(client.server)
    client.send_bytes(
        b"".join(octets(client, b"", delivery_mode=mode, priority=priority) for mode in (1, 2) for priority in (1, 2))
    )
    assert runs(found) == [1, 1, 1, 1]


def test_without_a_header_a_message_goes_to_the_queue_with_an_empty_name() -> None:
    client = Client()
    client.send_bytes(client.octets(MessageTransfer("", 1, 0), header=b"", body=b"x"))
    client.send_bytes(client.octets(MessageTransfer("", 1, 0)))
    assert client.server.broker.engine.counters.traffic_of("/", "amqp010").dropped == 2


def test_an_expiration_alone_limits_the_life_of_a_message() -> None:
    client = Client()
    client.server.now = 2_000_000_000_000
    found = queue(client.server)
    now = client.server.now
    publish(client, b"s", expiration=now // 1000 + 50)
    publish(client, b"ms", expiration=now + 50_000)
    publish(client, b"over", expiration=1)
    seconds, exact = [entry.run.envelope.ttl or 0 for entry in entries(found)][:2]
    assert 48_000 <= seconds <= exact <= 50_000


def test_a_very_long_time_to_live_is_shortened() -> None:
    client = Client()
    found = queue(client.server)
    publish(client, b"", ttl=2**64 - 1)
    assert entries(found)[0].run.envelope.ttl == 315_360_000_000


@pytest.mark.rule("FAIR-2")
def test_delivery_properties_that_are_remembered_count_and_are_bounded() -> None:
    client = Client()
    queue(client.server)
    session = client.port.endpoint.sessions[1]
    held = []
    for number in range(300):
        publish(client, b"", header=header(routing_key="q", resume_id=f"{number:03d}" * 300, resume_ttl=1))
        held.append(session._held_bytes)
    assert held[100] > 100 * 3 * 900
    assert max(held) < 300 * 5000
    assert held[-1] < max(held)
    assert abs(client.server.broker.holdings.of_user("guest") - held[-1]) <= 2 * STEP
    client.inbox.clear()
    client.control(SessionDetach(b"session 1"))
    assert client.server.broker.holdings.of_user("guest") == 0


@pytest.mark.rule("FAIR-2")
def test_long_delivery_properties_are_not_remembered() -> None:
    client = Client()
    found = queue(client.server)
    for number in range(20):
        publish(client, b"", header=header(routing_key="q", resume_id=f"{number:03d}" * 5000, resume_ttl=1))
    assert client.port.endpoint.sessions[1]._held_bytes < 20_000
    assert len(entries(found)) == 20


@pytest.mark.rule("FAIR-3")
def test_a_user_without_room_has_no_delivery_properties_remembered() -> None:
    client = Client()
    queue(client.server)
    client.server.broker.holdings.user_limit = 40_000
    for number in range(100):
        publish(client, b"", header=header(routing_key="q", resume_id=f"{number:03d}" * 300, resume_ttl=1))
        assert client.server.broker.holdings.of_user("guest") <= 64_000


def test_structs_that_do_not_belong_there_are_left_out() -> None:
    client = Client()
    found = queue(client.server)
    own: list[Any] = [
        UnknownStruct(0x7777, b"odd"),
        DeliveryProperties(routing_key="q"),
        FragmentProperties(True, True),
        PROPERTIES,
    ]
    publish(client, b"body", header=encode_header(own))
    assert unpack(entries(found)[0].content) == TransferContent(PROPERTIES.write(), b"body")


@pytest.mark.parametrize(
    ("structs", "code"),
    [
        ([FragmentProperties(True, False)], ErrorCode.NOT_IMPLEMENTED),
        ([FragmentProperties(False, True)], ErrorCode.NOT_IMPLEMENTED),
        ([DeliveryProperties(), DeliveryProperties()], ErrorCode.INVALID_ARGUMENT),
        ([MessageProperties(user_id=b"other")], ErrorCode.UNAUTHORIZED_ACCESS),
        ([DeliveryProperties(routing_key="q"), MessageProperties(user_id=b"other")], ErrorCode.UNAUTHORIZED_ACCESS),
    ],
)
def test_each_reason_for_a_refusal(structs: list[Any], code: ErrorCode) -> None:
    client = Client()
    queue(client.server)
    publish(client, b"before")
    client.completes(0)
    client.refused(MessageTransfer("", 1, 0), code, header=encode_header(structs), body=b"")


@pytest.mark.parametrize(
    "junk", [b"\x00", b"\x00\x00\x00\x01\x04", header(routing_key="q") + b"\x00\x00\x00\x04\x04\x03\x01\x00"]
)
def test_a_malformed_header_is_refused(junk: bytes) -> None:
    client = Client()
    queue(client.server)
    publish(client, b"before")
    client.completes(0)
    client.refused(MessageTransfer("", 1, 0), ErrorCode.INVALID_ARGUMENT, header=junk, body=b"")


def test_an_unknown_accept_mode_is_refused() -> None:
    Client().refused(MessageTransfer("", 2, 0), ErrorCode.INVALID_ARGUMENT, header=b"", body=b"")


def test_the_own_user_id_is_accepted() -> None:
    client = Client()
    found = queue(client.server)
    publish(client, b"", header=header(MessageProperties(user_id=b"guest"), routing_key="q"))
    assert found.ready == 1


@given(compounds(DeliveryProperties), st.binary(max_size=20))
def test_delivery_properties_are_understood_alike_when_they_are_known(
    delivery: DeliveryProperties, body: bytes
) -> None:
    delivery.routing_key, delivery.immediate = "q", False
    client = Client()
    found = queue(client.server, durable=False)
    client.server.broker.engine.now = 0
    head = encode_header([delivery])
    client.send_bytes(b"".join(octets(client, body, header=head) for _ in range(2)))
    stored = [(entry.content, entry.run.envelope.encode()) for entry in found.order.take(10)]
    assert stored[1:] == stored[:1] * (len(stored) - 1)
    if stored:
        assert unpack(stored[0][0]).timestamp == delivery.timestamp


@given(st.binary(max_size=60))
def test_any_header_is_read_or_refused(octets_: bytes) -> None:
    try:
        read_header(octets_)
    except BrokerError:
        return
