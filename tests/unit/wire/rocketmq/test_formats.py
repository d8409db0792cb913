"""Messages of RocketMQ in the neutral form, and back."""

from __future__ import annotations

import zlib

import pytest

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.neutral import Float32, Int8, Neutral, UniqueId
from escrowmq.wire.rocketmq.content import COMPRESSED, PROTOCOL, MessageContent, envelope_of, unpack
from escrowmq.wire.rocketmq.formats import MOST_PROPERTIES, RocketMQFormat, as_text
from escrowmq.wire.rocketmq.properties import parse, render

FORMAT = RocketMQFormat()
OWN = {
    "UNIQ_KEY": "7F000001",
    "KEYS": "k1 k2",
    "TAGS": "a",
    "__SHARDINGKEY": "g",
    "CORRELATION_ID": "c",
    "mine": "m",
}


def neutral(body: bytes = b"body", system_flag: int = 0, properties: bytes | None = None) -> Neutral:
    content = MessageContent(render(OWN) if properties is None else properties, body, 0, system_flag, 12_345)
    return FORMAT.neutral(envelope_of("t", "a"), content.pack())


def test_properties_arrive_in_the_neutral_form() -> None:
    message = neutral()
    assert (message.exchange, message.routing_key, message.subject, message.durable) == ("t", "a", "a", True)
    assert (message.message_id, message.correlation_id, message.group_id) == ("7F000001", "c", "g")
    assert (message.created, message.body, message.encoded) == (12_345, b"body", False)
    assert message.properties == {"mine": "m"}
    assert message.annotations == {"x-opt-keys": "k1 k2"}


def test_a_message_comes_back_from_the_neutral_form() -> None:
    envelope, content = FORMAT.encode(neutral())
    assert (envelope.protocol, envelope.exchange, envelope.routing_key) == (PROTOCOL, "t", "a")
    assert parse(unpack(content).properties) == OWN
    assert (unpack(content).body, unpack(content).born_ms) == (b"body", 12_345)


@pytest.mark.parametrize("flags", [0x1, 0x301])
def test_a_body_is_decompressed_for_other_protocols(flags: int) -> None:
    message = neutral(zlib.compress(b"x" * 5000), flags)
    assert (message.body, message.content_encoding) == (b"x" * 5000, None)


@pytest.mark.parametrize(
    ("body", "flags", "encoding"),
    [
        (b"no zlib", 0x301, "deflate"),
        (zlib.compress(b"x" * 5000)[:-5], 0x301, "deflate"),
        (b"lz4", 0x101, "lz4"),
        (b"zstd", 0x201, "zstd"),
        (zlib.compress(bytes(65 << 20)), COMPRESSED, "deflate"),
    ],
)
def test_a_body_that_cannot_be_decompressed_stays_and_names_its_encoding(
    body: bytes, flags: int, encoding: str
) -> None:
    message = neutral(body, flags)
    assert (message.body, message.content_encoding) == (body, encoding)


def test_octets_that_are_no_text_are_dropped() -> None:
    message = neutral(properties=b"UNIQ_KEY\x01\xff\x02a\x01\xfe\x02b\x01ok\x02")
    assert (message.message_id, message.properties) == (None, {"b": "ok"})


def test_headers_are_user_properties_partition_and_delay() -> None:
    def headers(content: MessageContent) -> dict[str, object]:
        return dict(FORMAT.headers(envelope_of("t", ""), content.pack()))

    assert headers(MessageContent(render(OWN), b"", queue=3)) == {"mine": "m", "x-partition": 3}
    assert headers(MessageContent(render(OWN), b"")) == {"mine": "m", "x-partition-key": "g"}
    assert headers(MessageContent(render({"DELAY": "2"}), b"")) == {"x-delay": 5000}
    assert headers(MessageContent(render({"TIMER_DELIVER_MS": "77"}), b"")) == {"x-opt-delivery-time": 77}


def test_values_without_a_text_are_left_out() -> None:
    message = Neutral("t", "a", properties={"l": [1], "n": None, "i": 1, "KEYS": "no"}, annotations={"x-a": "b"})
    assert parse(unpack(FORMAT.encode(message)[1]).properties) == {"TAGS": "a", "i": "1", "x-a": "b"}


def test_properties_beyond_the_room_are_left_out() -> None:
    message = Neutral("t", "", properties={"a": "x" * 40_000, "b": "y"})
    text = unpack(FORMAT.encode(message)[1]).properties
    assert parse(text) == {"b": "y"}
    assert len(text) <= MOST_PROPERTIES


def test_a_message_keeps_its_own_envelope() -> None:
    envelope = Envelope("t", "a", protocol=PROTOCOL)
    assert FORMAT.single_out(envelope, b"c") == (envelope, b"c")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (Int8(-3), "-3"),
        (Float32(1.5), "1.5"),
        (b"abc", "abc"),
        (b"\xff", "FF"),
        (UniqueId(bytes(16)), "00000000-0000-0000-0000-000000000000"),
        ("t", "t"),
        ([], None),
        (None, None),
    ],
)
def test_simple_values_have_a_text(value: object, text: str | None) -> None:
    assert as_text(value) == text


@pytest.mark.rule("MSG-1")
@pytest.mark.parametrize("tag", ["x" * 32_000, "\U0001f600" * 127, "\udcff"])
def test_a_stored_tag_that_can_be_no_routing_key_is_left_out(tag: str) -> None:
    content = MessageContent(render({"TAGS": tag}), b"body")
    found = FORMAT.neutral(envelope_of("t", tag), content.pack())
    assert (found.routing_key, found.subject, found.body) == ("", None, b"body")


@pytest.mark.rule("MSG-1")
def test_values_of_other_protocols_that_clients_could_not_read_are_left_out() -> None:
    long = "x" * 40_000
    message = Neutral("t", "", message_id=long, group_id=long, correlation_id="c", properties={"a": "b"}, body=b"body")
    _, content = FORMAT.encode(message)
    assert parse(unpack(content).properties) == {"CORRELATION_ID": "c", "a": "b"}
