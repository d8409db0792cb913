"""The table of formats."""

from __future__ import annotations

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp010.content import PROTOCOL as TRANSFERS
from escrowmq.wire.amqp091.keyed import KEYED
from escrowmq.wire.amqp091.packed import PACKED
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.amqp10.publication import PROTOCOL as SECTIONS
from escrowmq.wire.formats import FORMATS, Translations, translated
from escrowmq.wire.rocketmq.content import PROTOCOL as ROCKETMQ


def test_every_form_that_a_protocol_stores_has_a_reader() -> None:
    assert set(FORMATS) == {PROTOCOL, PACKED, KEYED, SECTIONS, TRANSFERS, ROCKETMQ}


def test_a_message_is_translated_once() -> None:
    envelope = Envelope("e", "k", protocol=SECTIONS, priority=4)
    content = b"\x00\x53\x75\xa0\x01b"
    found = translated(envelope, content, PROTOCOL)
    assert found[1] == b"b"
    assert translated(envelope, bytes(content), PROTOCOL) is found
    assert translated(Envelope("e", "k", protocol=SECTIONS, priority=4), content, PROTOCOL) is not found


def test_translations_take_limited_memory() -> None:
    translations = Translations()
    envelope = Envelope("e", "k", protocol=SECTIONS)
    first = b"\x00\x53\x75\xb0\x00\x00\xea\x60" + bytes(60000)
    found = translations.find(envelope, first, PROTOCOL)
    assert translations.find(envelope, first, PROTOCOL) is found
    for number in range(80):
        translations.find(envelope, first[:-2] + number.to_bytes(2, "big"), PROTOCOL)
    assert translations.find(envelope, first, PROTOCOL) is not found
    large = b"\x00\x53\x75\xb0\x00\x02\x00\x00" + bytes(2**17)
    assert translations.find(envelope, large, PROTOCOL) is not translations.find(envelope, large, PROTOCOL)
