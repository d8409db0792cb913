"""The messages of a load as transfers."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest

from escrowmq.perf.amqp010.encoding import transfer_block
from escrowmq.perf.amqp010.frames import AssemblyReader, ReceivedAssembly
from escrowmq.perf.block import PublishBlock
from escrowmq.perf.messages import LoadMessage, Variety, messages
from escrowmq.wire.amqp010.codec.commands import decode_header
from escrowmq.wire.amqp010.codec.spec import AcceptMode, DeliveryMode, DeliveryProperties, MessageTransfer

VARIED = Variety(spread=40, message_ids=True, correlation_ids=True, timestamps=True, headers=True)


def block(made: list[LoadMessage], **changes: Any) -> PublishBlock:
    fields: dict[str, Any] = {"durable": True, "explicit": False, "frame_max": 65_535}
    return transfer_block(made, 3, "", cycle(["a", "b"]), **{**fields, **changes})


def received(data: bytes) -> list[ReceivedAssembly]:
    found: list[ReceivedAssembly] = []
    reader, at = AssemblyReader(found.append), 0
    while at < len(data):
        at += reader.take(data, at, len(data))
    return found


@pytest.mark.parametrize("explicit", [False, True])
def test_a_transfer_has_everything_of_its_message(explicit: bool) -> None:
    made = list(messages(VARIED, 100, 4))
    found = received(bytes(block(made, explicit=explicit).slice(0, 4)))
    assert [each.body for each in found] == [message.body for message in made]
    for number, (each, message) in enumerate(zip(found, made, strict=True)):
        assert each.channel == 3
        assert isinstance(each.what, MessageTransfer)
        assert each.what.accept_mode == (AcceptMode.EXPLICIT if explicit else AcceptMode.NONE)
        delivery, own = decode_header(each.header)
        assert isinstance(delivery, DeliveryProperties)
        assert (delivery.routing_key, delivery.delivery_mode) == ("ab"[number % 2], DeliveryMode.PERSISTENT)
        assert delivery.timestamp == message.timestamp
        assert getattr(own, "application_headers", None) == message.headers
        assert getattr(own, "correlation_id", b"").decode() == message.correlation_id


def test_a_body_that_is_longer_than_a_frame_is_divided() -> None:
    made = list(messages(Variety(), 20_000, 1))
    (found,) = received(bytes(block(made, frame_max=4096).slice(0, 1)))
    assert found.body == made[0].body


@pytest.mark.parametrize("variety", [Variety(), VARIED])
def test_the_time_is_written_into_the_body(variety: Variety) -> None:
    made = list(messages(variety, 100, 3))
    stamped = block(made)
    stamped.stamp(0, 3, 7)
    found = received(bytes(stamped.slice(0, 3)))
    assert [each.body for each in found] == [(7).to_bytes(8, "big") + message.body[8:] for message in made]
