"""Keyed content: its octets, and messages that keep their routing keys with their contents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.frames import content_frames, method_frame
from escrowmq.wire.amqp091.keyed import (
    KEYED,
    deliverable_key,
    join,
    packed_part,
    readdressed,
    routing_key_of,
    single_out,
)
from escrowmq.wire.amqp091.packed import PACKED, pack

octets = st.binary(min_size=1, max_size=300)
keys = st.text(max_size=60).map(str.encode)


@given(keys, octets, octets)
def test_key_and_packed_content_come_apart_again(key: bytes, props: bytes, body: bytes) -> None:
    content = join(key, pack(props, body))
    assert packed_part(content) == pack(props, body)
    assert routing_key_of(Envelope("x", "", protocol=KEYED), content) == key.decode()


@given(keys, octets, octets, st.integers(1, 65535))
def test_keyed_content_equals_the_end_of_a_delivery(key: bytes, props: bytes, body: bytes, channel: int) -> None:
    method = method_frame(channel, spec.BasicDeliver("t", 1, False, "x", key.decode()))
    frames = method + content_frames(channel, props, body, 0)
    assert frames.endswith(readdressed(join(key, pack(props, body)), channel.to_bytes(2, "big")))


def test_the_routing_key_of_other_forms_is_that_of_the_envelope() -> None:
    assert routing_key_of(Envelope("x", "k", protocol=PACKED), pack(b"\0\0", b"body")) == "k"


def test_a_message_gets_an_envelope_of_its_own() -> None:
    shared = Envelope("x", "", protocol=KEYED, durable=True, priority=3, ttl=9)
    envelope, content = single_out(shared, join(b"k", pack(b"\0\0", b"body")))
    assert content == pack(b"\0\0", b"body")
    assert envelope.encode() == Envelope("x", "k", protocol=PACKED, durable=True, priority=3, ttl=9).encode()


@pytest.mark.parametrize(
    ("key", "delivered"),
    [("x" * 255, "x" * 255), ("x" * 256, ""), ("ä" * 127, "ä" * 127), ("ä" * 128, ""), ("\udcff", "")],
)
def test_a_routing_key_without_a_short_string_is_empty(key: str, delivered: str) -> None:
    assert deliverable_key(key) == delivered
    assert routing_key_of(Envelope("x", key, protocol=PACKED), b"") == delivered
