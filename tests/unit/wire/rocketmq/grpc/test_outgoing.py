"""Stored messages have the fields that clients of all languages need."""

from __future__ import annotations

import hashlib
import zlib

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp091.publication import PROTOCOL as PLAIN
from escrowmq.wire.rocketmq.content import COMPRESSED, MessageContent, envelope_of
from escrowmq.wire.rocketmq.grpc.incoming import read_message
from escrowmq.wire.rocketmq.grpc.outgoing import Whereabouts, outgoing_message, timestamp
from escrowmq.wire.rocketmq.properties import render
from escrowmq.wire.rocketmq.proto.definition_pb2 import DigestType, Encoding, MessageType
from tests.unit.wire.rocketmq.grpc.peer import message

WHERE = Whereabouts(7, 5, 2, 1_700_000_000_123, "handle", 3, 60_000)


def test_a_message_arrives_as_it_was_sent() -> None:
    sent = message("t", b"hello", tag="a", keys=["k1", "k2"], properties={"x": "y"}, trace_context="trace")
    stored = read_message(sent, "t", 1_700_000_000_000).content(2)
    found = outgoing_message("t", envelope_of("t", "a"), stored, WHERE)
    system = found.system_properties
    assert (found.topic.name, found.body, dict(found.user_properties)) == ("t", b"hello", {"x": "y"})
    assert (system.message_id, system.tag, list(system.keys), system.trace_context) == (
        "ID1",
        "a",
        ["k1", "k2"],
        "trace",
    )
    assert (system.body_encoding, system.message_type) == (Encoding.IDENTITY, MessageType.NORMAL)
    assert system.body_digest.type == DigestType.MD5
    assert system.body_digest.checksum == hashlib.md5(b"hello").hexdigest().upper()
    assert (system.receipt_handle, system.delivery_attempt, system.queue_id, system.queue_offset) == ("handle", 3, 2, 4)
    assert system.store_timestamp == timestamp(1_700_000_000_123)
    assert system.invisible_duration.seconds == 60


def test_a_transaction_shows_its_id_among_the_properties() -> None:
    sent = message("t", kind=MessageType.TRANSACTION)
    found = outgoing_message("t", envelope_of("t", ""), read_message(sent, "t", 5).content())
    assert dict(found.user_properties) == {"__transactionId__": "ID1"}
    assert found.system_properties.message_type == MessageType.TRANSACTION
    assert not found.system_properties.HasField("receipt_handle")


def test_a_message_group_is_shown_twice() -> None:
    sent = message("t", kind=MessageType.FIFO, message_group="g")
    found = outgoing_message("t", envelope_of("t", ""), read_message(sent, "t", 5).content(), WHERE)
    assert found.system_properties.message_group == found.user_properties["__SHARDINGKEY"] == "g"
    assert found.system_properties.message_type == MessageType.FIFO


def test_a_body_that_a_classic_client_compressed_arrives_plain() -> None:
    stored = MessageContent(render({"UNIQ_KEY": "U"}), zlib.compress(b"hello"), system_flag=COMPRESSED).pack()
    found = outgoing_message("t", envelope_of("t", ""), stored, WHERE)
    assert found.body == b"hello"


def test_a_host_of_birth_is_an_address() -> None:
    stored = MessageContent(b"", b"x", host=bytes((127, 0, 0, 1)), port=5).pack()
    found = outgoing_message("t", envelope_of("t", ""), stored, WHERE)
    assert found.system_properties.born_host == "127.0.0.1"
    assert len(found.system_properties.message_id) == 32


def test_octets_that_are_no_text_do_not_stop_a_message() -> None:
    stored = MessageContent(b"a\x01\xff\x02", b"x").pack()
    assert outgoing_message("t", envelope_of("t", ""), stored, WHERE).user_properties["a"] == "\ufffd"


def test_a_message_of_another_protocol_is_translated() -> None:
    found = outgoing_message("t", Envelope("t", "key", b"\x00\x00", protocol=PLAIN), b"body", WHERE)
    assert (found.body, found.system_properties.tag) == (b"body", "key")
