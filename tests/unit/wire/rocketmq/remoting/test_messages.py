"""Stored messages in the form for clients, and batches."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.rocketmq.content import MessageContent, envelope_of
from escrowmq.wire.rocketmq.remoting.messages import (
    BatchedMessage,
    BatchError,
    StoredAt,
    content_for,
    decode_batch,
    encode_stored,
    without_transaction,
)

HOST = bytes((127, 0, 0, 1))


def part(flag: int, body: bytes, properties: bytes) -> bytes:
    size = 22 + len(body) + len(properties)
    return struct.pack(">iiiii", size, 0, 0, flag, len(body)) + body + len(properties).to_bytes(2, "big") + properties


def test_a_stored_message_has_the_layout_of_rocketmq() -> None:
    content = MessageContent(b"a\x01b\x02", b"body", 1, 8, 2, 3, 4, bytes((10, 0, 0, 1)), 5)
    assert encode_stored(content, StoredAt("top", 6, 7, 8, 9, HOST, 10), prepared=11) == b"".join(
        (
            bytes.fromhex("00000066 daa320a7 5ba80bb2 00000006 00000001"),  # size, magic, checksum, queue, flag
            bytes.fromhex("0000000000000007 0000000000000008 00000008"),  # offset, address, system flag
            bytes.fromhex("0000000000000002 0a000001 00000005"),  # birth: time, host, port
            bytes.fromhex("0000000000000009 7f000001 0000000a"),  # arrival: time, host, port
            bytes.fromhex("00000004 000000000000000b"),  # failed deliveries, prepared offset
            b"\x00\x00\x00\x04body\x03top\x00\x04a\x01b\x02",
        )
    )


def test_hosts_of_ipv6_are_flagged() -> None:
    content = MessageContent(b"", b"", host=bytes(16))
    stored = encode_stored(content, StoredAt("t", 0, 0, 1, 0, bytes(16), 1))
    assert int.from_bytes(stored[36:40], "big") == 0x30
    assert int.from_bytes(stored[:4], "big") == len(stored)


def test_a_long_topic_has_a_length_of_two_octets() -> None:
    stored = encode_stored(MessageContent(b"", b""), StoredAt("x" * 200, 0, 0, 1, 0, HOST, 1))
    assert int.from_bytes(stored[4:8], "big", signed=True) == -626843477
    assert stored.endswith(b"\x00\xc8" + b"x" * 200 + b"\x00\x00")


def test_messages_of_other_protocols_are_translated() -> None:
    content = MessageContent(b"", b"b").pack()
    assert content_for(envelope_of("t", ""), content).body == b"b"
    envelope = Envelope("t", "k", Properties(message_id="m").encode(), protocol=PROTOCOL)
    assert content_for(envelope, b"b").properties == b"UNIQ_KEY\x01m\x02TAGS\x01k\x02"


def test_a_half_message_is_shown_without_its_outcome() -> None:
    assert without_transaction(MessageContent(b"", b"", system_flag=0x1D)).system_flag == 0x11


def test_a_batch_is_divided_into_its_messages() -> None:
    body = part(1, b"one", b"a\x01b\x02") + part(2, b"", b"")
    assert decode_batch(body, 2) == [BatchedMessage(1, b"one", b"a\x01b\x02"), BatchedMessage(2, b"", b"")]
    with pytest.raises(BatchError):
        decode_batch(body, 1)


@pytest.mark.parametrize(
    "body",
    [
        part(1, b"one", b"")[:-1],
        part(1, b"one", b"")[:10],
        part(1, b"one", b"") + b"x",
        struct.pack(">iiiii", 22, 0, 0, 0, -1) + b"\x00\x00",
    ],
)
def test_a_malformed_batch_is_refused(body: bytes) -> None:
    with pytest.raises(BatchError):
        decode_batch(body, 10)


@given(st.binary(max_size=80))
def test_any_octets_are_a_batch_or_refused(body: bytes) -> None:
    with contextlib.suppress(BatchError):
        decode_batch(body, 100)
