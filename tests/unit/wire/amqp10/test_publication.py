"""Envelopes and contents of messages that arrive over AMQP 1.0."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.encoding import CodecError
from escrowmq.wire.amqp10.codec.sections import Header, encode_header, encode_section
from escrowmq.wire.amqp10.codec.types import Array, Symbol, ULong, Uuid
from escrowmq.wire.amqp10.publication import PROTOCOL, Destination, Publications
from tests.unit.wire.amqp10.codec.proton import MESSAGE, PLAIN

BODY = encode_section(sections.DATA, b"body")


def parse(address: str) -> Destination:
    exchange, _, key = address.partition("/")
    return Destination(exchange, key or None)


def publications(exchange: str = "", routing_key: str | None = "queue") -> Publications:
    return Publications("u", Destination(exchange, routing_key), parse)


def message(
    subject: str | None = None, to: str | None = None, annotations: dict[object, object] | None = None
) -> bytes:
    before = b"" if annotations is None else encode_section(sections.MESSAGE_ANNOTATIONS, annotations)
    return before + encode_section(sections.PROPERTIES, [None, None, to, subject]) + BODY


def test_the_header_section_goes_into_the_envelope_and_the_rest_is_the_content() -> None:
    envelope, content = publications("e", "k").read(MESSAGE)
    assert (envelope.protocol, envelope.exchange, envelope.routing_key) == (PROTOCOL, "e", "k")
    assert (envelope.durable, envelope.priority, envelope.ttl, envelope.header) == (True, 7, 2500, b"")
    assert content == MESSAGE[sections.split_head(MESSAGE)[1] :]


def test_a_message_without_a_header_is_transient_and_has_priority_4() -> None:
    envelope, content = publications().read(PLAIN[4:])
    assert (envelope.durable, envelope.priority, envelope.ttl) == (False, 4, None)
    assert content == PLAIN[4:]


def test_messages_with_equal_header_sections_share_an_envelope() -> None:
    publisher = publications()
    first, _ = publisher.read(encode_header(Header(durable=True)) + BODY)
    second, _ = publisher.read(encode_header(Header(durable=True)) + message("other"))
    third, _ = publisher.read(encode_header(Header(durable=True, ttl=5)) + BODY)
    assert first is second
    assert third is not first


def test_the_subject_is_the_routing_key_where_the_address_has_none() -> None:
    publisher = publications("e", None)
    first, content = publisher.read(message("a.b"))
    assert (first.exchange, first.routing_key, content) == ("e", "a.b", message("a.b"))
    assert publisher.read(message("a.b"))[0] is first
    assert publisher.read(BODY)[0].routing_key == ""


def test_a_message_for_the_anonymous_terminus_has_its_address_in_to() -> None:
    publisher = Publications("u", None, parse)
    assert publisher.read(message(to="e/k"))[0].routing_key == "k"
    envelope, _ = publisher.read(message("subject", "e"))
    assert (envelope.exchange, envelope.routing_key) == ("e", "subject")
    with pytest.raises(BrokerError, match="must have its address") as refused:
        publisher.read(BODY)
    assert refused.value.condition is Condition.PRECONDITION_FAILED


@pytest.mark.parametrize("keys", [["a", "b"], Array(["a", "b"])])
def test_further_routing_keys_are_in_an_annotation(keys: list[str]) -> None:
    publisher = publications("e", "k")
    envelope, _ = publisher.read(message(annotations={Symbol("x-cc"): keys}))
    assert (envelope.routing_key, envelope.extra_keys) == ("k", ("a", "b"))
    assert publisher.read(message())[0].extra_keys == ()
    assert publisher.read(message(annotations={Symbol("x-ccc"): 1}))[0].extra_keys == ()


@pytest.mark.parametrize("keys", ["a", 5, [1]])
def test_further_routing_keys_of_another_type_are_refused(keys: object) -> None:
    with pytest.raises(BrokerError, match="a list of strings is needed"):
        publications().read(message(annotations={Symbol("x-cc"): keys}))


def test_a_long_routing_key_is_refused() -> None:
    assert publications("e", None).read(message("k" * 255))[0].routing_key == "k" * 255
    with pytest.raises(BrokerError, match="more than 255 bytes"):
        publications("e", None).read(message("\xe4" * 128))


@pytest.mark.parametrize("payload", [b"\x00\x53\x70\xc0\x09\x01", b"\x00\x53\x70\x40" + BODY])
def test_a_malformed_header_is_an_error(payload: bytes) -> None:
    with pytest.raises(CodecError):
        publications().read(payload)


@pytest.mark.parametrize("before", [b"", encode_section(sections.MESSAGE_ANNOTATIONS, {Symbol("x-a"): 1})])
@pytest.mark.parametrize("message_id", [None, "m", b"m", ULong(0), ULong(5), ULong(300), Uuid(bytes(16)), "m" * 300])
@pytest.mark.parametrize("user", [None, b"u", b"other"])
def test_a_message_must_not_claim_another_user(before: bytes, message_id: object, user: bytes | None) -> None:
    payload = before + encode_section(sections.PROPERTIES, [message_id, user, "to"]) + BODY
    if user == b"other":
        with pytest.raises(BrokerError, match="user-id is 'other', but the user is 'u'") as refused:
            publications().read(payload)
        assert refused.value.condition is Condition.ACCESS_REFUSED
    else:
        assert publications().read(payload)[1] == payload


def test_the_cache_is_limited() -> None:
    publisher = publications("e", None)
    first, _ = publisher.read(message("first"))
    for number in range(1100):
        publisher.read(message(str(number)))
    again, _ = publisher.read(message("first"))
    assert again is not first
    assert again.encode() == first.encode()
