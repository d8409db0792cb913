"""The form of stored messages, as the core uses it."""

from __future__ import annotations

from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.wire.amqp010.codec.spec import MessageProperties
from escrowmq.wire.amqp010.codec.types import Datetime
from escrowmq.wire.amqp010.content import PROTOCOL, TransferContent
from escrowmq.wire.amqp010.formats import TransferFormat

FORMAT = TransferFormat()
ENVELOPE = Envelope("e", "k", protocol=PROTOCOL)
CONTENT = TransferContent(MessageProperties(application_headers={"a": 1, "t": Datetime(5)}).write(), b"body").pack()


def test_headers_are_the_application_headers() -> None:
    assert FORMAT.headers(ENVELOPE, CONTENT) == {"a": 1, "t": 5}
    assert FORMAT.headers(ENVELOPE, TransferContent(b"", b"body").pack()) == {}


def test_the_headers_of_a_dead_letter_have_its_history() -> None:
    death = Death("q", "rejected", 1, 5000, "", ("q",), None)
    found = FORMAT.headers(Envelope("e", "k", protocol=PROTOCOL, deaths=(death,)), CONTENT)
    assert (found["a"], found["x-first-death-queue"]) == (1, "q")


def test_malformed_content_has_no_headers() -> None:
    for content in (b"", b"garbage", TransferContent(b"\x00\x00\x00\x04\x04\x03\x01\x00", b"").pack()):
        assert FORMAT.headers(ENVELOPE, content) == {}


def test_the_content_is_never_changed() -> None:
    assert FORMAT.annotated(CONTENT, {"x-a": b"\x40"}) == CONTENT
    assert FORMAT.single_out(ENVELOPE, CONTENT) == (ENVELOPE, CONTENT)
    assert not FORMAT.keyed


def test_a_message_is_translated_both_ways() -> None:
    envelope, content = FORMAT.encode(FORMAT.neutral(ENVELOPE, CONTENT))
    assert FORMAT.headers(envelope, content) == {"a": 1, "t": 5}
