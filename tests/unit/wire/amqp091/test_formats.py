"""Routing reads the headers that consumers would get."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.wire.amqp091.formats import KeyedFormat, PackedFormat, PlainFormat
from escrowmq.wire.amqp091.keyed import KEYED, join
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp091.properties import Properties

REJECTED = Death("p", "rejected", 1, 1_000, "", ("first",), None)
EMPTY = Properties().encode()
WITH_HEADER = Properties(headers={"h": 1}).encode()


@pytest.mark.parametrize(("props", "headers"), [(EMPTY, {}), (WITH_HEADER, {"h": 1})])
def test_all_forms_have_the_same_headers(props: bytes, headers: dict[str, int]) -> None:
    assert PlainFormat().headers(Envelope("", "q", props), b"body") == headers
    assert PackedFormat().headers(Envelope("", "q", protocol=PACKED), pack(props, b"body")) == headers
    assert KeyedFormat().headers(Envelope("", "", protocol=KEYED), join(b"q", pack(props, b"body"))) == headers


def test_only_keyed_messages_need_an_envelope_of_their_own() -> None:
    envelope = Envelope("x", "k")
    for plain in (PlainFormat(), PackedFormat()):
        assert not plain.keyed
        assert plain.single_out(envelope, b"content") == (envelope, b"content")
    packed = pack(EMPTY, b"body")
    own, content = KeyedFormat().single_out(Envelope("x", "", protocol=KEYED), join(b"k", packed))
    assert KeyedFormat().keyed
    assert (own.routing_key, own.protocol, content) == ("k", PACKED, packed)


def test_a_dead_letter_has_its_history_among_them() -> None:
    plain = PlainFormat().headers(Envelope("dlx", "k", WITH_HEADER, deaths=(REJECTED,)), b"body")
    packed = PackedFormat().headers(
        Envelope("dlx", "k", protocol=PACKED, deaths=(REJECTED,)), pack(WITH_HEADER, b"body")
    )
    assert plain == packed
    assert (plain["h"], plain["x-first-death-queue"]) == (1, "p")
