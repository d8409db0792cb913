"""Stored messages come with their own routing keys, wherever their protocol has put them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.messages.keys import with_own_keys


class KeyInContent:
    """A format whose content is a routing key, a space and a body."""

    keyed = True

    def annotated(self, content: bytes, annotations: Mapping[str, bytes]) -> bytes:
        raise AssertionError("nobody annotates its messages")

    def headers(self, _envelope: Envelope, _content: bytes) -> Mapping[str, Any]:
        return {}

    def single_out(self, envelope: Envelope, content: bytes) -> tuple[Envelope, bytes]:
        key, body = content.split()
        return Envelope(envelope.exchange, key.decode()), body


class KeyInEnvelope(KeyInContent):
    keyed = False

    def annotated(self, content: bytes, annotations: Mapping[str, bytes]) -> bytes:
        raise AssertionError("nobody annotates its messages")


def test_each_message_has_the_key_that_its_protocol_keeps_for_it() -> None:
    shared, apart, unknown = (Envelope("x", "k", protocol=protocol) for protocol in (1, 2, 3))
    entries = [
        Entry(position, content, Run(envelope, position, 0))
        for position, (envelope, content) in enumerate(
            [(shared, b"a 1"), (apart, b"a 2"), (apart, b"b 3"), (unknown, b"c 4")], 1
        )
    ]
    found = list(with_own_keys({1: KeyInEnvelope(), 2: KeyInContent()}, entries))
    assert [(envelope.routing_key, content) for envelope, content in found] == [
        ("k", b"a 1"),
        ("a", b"2"),
        ("b", b"3"),
        ("k", b"c 4"),
    ]
