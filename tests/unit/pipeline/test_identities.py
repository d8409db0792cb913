"""Message id, correlation id and publisher are read from contents of all protocols."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from escrowmq.core.messages.envelope import Envelope
from escrowmq.pipeline.identities import MessageIdentity, identity
from escrowmq.wire.amqp091.keyed import KEYED, join
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.formats import FORMATS
from escrowmq.wire.neutral import Neutral, UInt64, UniqueId
from escrowmq.wire.rocketmq.content import PROTOCOL as ROCKETMQ

PROPERTIES = Properties(message_id="m", correlation_id="c", user_id="u").encode()
NUMBER = UUID(int=7)


@pytest.mark.parametrize(
    ("envelope", "content"),
    [
        (Envelope("x", "k", PROPERTIES, protocol=91), b"body"),
        (Envelope("x", "k", protocol=PACKED), pack(PROPERTIES, b"body")),
        (Envelope("x", "", protocol=KEYED), join(b"k", pack(PROPERTIES, b"body"))),
        FORMATS[100].encode(Neutral("x", "k", message_id="m", correlation_id="c", user_id=b"u")),
    ],
    ids=["plain", "packed", "keyed", "AMQP 1.0"],
)
def test_identities_of_amqp(envelope: Envelope, content: bytes) -> None:
    assert identity(envelope, content) == MessageIdentity("m", "c", "u")


def test_an_identity_of_rocketmq_has_its_message_id() -> None:
    envelope, content = FORMATS[ROCKETMQ].encode(Neutral("t", "k", message_id="m"))
    assert identity(envelope, content).message_id == "m"


@pytest.mark.parametrize(
    ("ident", "text"), [(UniqueId(NUMBER.bytes), str(NUMBER)), (UInt64(300), "300"), (b"\x01\xff", "01ff")]
)
def test_ids_of_other_types_become_texts(ident: UniqueId | UInt64 | bytes, text: str) -> None:
    assert identity(*FORMATS[100].encode(Neutral("x", "k", message_id=ident))).message_id == text


@pytest.mark.parametrize("protocol", sorted(FORMATS))
def test_malformed_content_has_no_identity(protocol: int) -> None:
    rng = random.Random(protocol)
    for _ in range(300):
        octets = rng.randbytes(rng.randrange(80))
        identity(Envelope("x", "k", octets if protocol == 91 else b"", protocol=protocol), octets)


def test_a_message_without_properties_or_of_an_unknown_form_has_no_identity() -> None:
    assert identity(Envelope("x", "k", Properties().encode(), protocol=91), b"body") == MessageIdentity()
    assert identity(Envelope("x", "k", protocol=7), b"body") == MessageIdentity()
