"""The form of RocketMQ's content, for the core and for other protocols (docs/guides/protocols.md)."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.messages.delay import DELIVERY_TIME, X_DELAY
from escrowmq.wire.neutral import Neutral, Plain, UniqueId
from escrowmq.wire.rocketmq import properties as names
from escrowmq.wire.rocketmq.content import (
    ANY_QUEUE,
    COMPRESSED,
    COMPRESSION_MASK,
    MessageContent,
    envelope_of,
    properties_of,
    unpack,
)
from escrowmq.wire.rocketmq.names import LONGEST_TAG
from escrowmq.wire.rocketmq.properties import applications, delay_of, parse, render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from escrowmq.core.messages.envelope import Envelope

PARTITION: Final = "x-partition"
PARTITION_KEY: Final = "x-partition-key"
KEYS: Final = "x-opt-keys"
"""The annotation for the keys of a message, by which operators find it."""
LARGEST_BODY: Final = 64 << 20
"""The most octets of a body after its decompression; a larger one is delivered as it is."""
MOST_PROPERTIES: Final = 32_767
"""The most octets of the properties' text that clients of classic remoting can read."""

_LONGEST_KEY: Final = 255
_ZLIB: Final = (0x000, 0x300)
_ENCODINGS: Final = {0x000: "deflate", 0x100: "lz4", 0x200: "zstd", 0x300: "deflate"}


class RocketMQFormat:
    """The content is `wire.rocketmq.content`; the exchange is the topic, and the routing key is the tag."""

    keyed = False

    def single_out(self, envelope: Envelope, content: bytes) -> tuple[Envelope, bytes]:
        """Return the message as it is."""
        return envelope, content

    def headers(self, envelope: Envelope, content: bytes) -> Mapping[str, Any]:
        """Return the user properties, the queue or message group that decides the partition, and the due time."""
        found = parse(properties_of(content))
        headers: dict[str, Any] = {**applications(found)}
        queue = unpack(content).queue
        if queue != ANY_QUEUE:
            headers[PARTITION] = queue
        elif names.MESSAGE_GROUP in found:
            headers[PARTITION_KEY] = found[names.MESSAGE_GROUP]
        delay = delay_of(found)
        if delay is not None:
            headers[DELIVERY_TIME if delay[0] == "at" else X_DELAY] = delay[1]
        return headers

    def annotated(self, content: bytes, annotations: Mapping[str, bytes]) -> bytes:
        """Return the content as it is: RocketMQ has no annotations."""
        del annotations
        return content

    def neutral(self, envelope: Envelope, content: bytes) -> Neutral:
        """Return the message in the neutral form."""
        return to_neutral(envelope, content)

    def encode(self, message: Neutral) -> tuple[Envelope, bytes]:
        """Return the message in the form that clients of RocketMQ receive."""
        return from_neutral(message)


def to_neutral(envelope: Envelope, content: bytes) -> Neutral:
    """Return a message in the neutral form."""
    found = unpack(content)
    properties = parse(found.properties)
    body = plain_body(found)
    key = _key(envelope.routing_key)
    annotations: dict[str, Plain] = {}
    if keys := _text(properties.get(names.KEYS)):
        annotations[KEYS] = keys
    return Neutral(
        envelope.exchange,
        key,
        envelope.extra_keys,
        envelope.deaths,
        durable=envelope.durable,
        ttl=envelope.ttl,
        annotations=annotations,
        message_id=_text(properties.get(names.UNIQUE_KEY)),
        correlation_id=_text(properties.get(names.CORRELATION_ID)),
        subject=key or None,
        content_encoding=None if body is not None else _ENCODINGS.get(found.system_flag & COMPRESSION_MASK),
        created=found.born_ms if found.born_ms >= 0 else None,
        group_id=_text(properties.get(names.MESSAGE_GROUP)),
        properties={name: value for name, value in applications(properties).items() if _text(name + value) is not None},
        body=found.body if body is None else body,
    )


def plain_body(content: MessageContent) -> bytes | None:
    """Return the body as the application sent it, or None if its compression cannot be undone here."""
    if not content.system_flag & COMPRESSED:
        return content.body
    if content.system_flag & COMPRESSION_MASK not in _ZLIB:
        return None
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(content.body, LARGEST_BODY)
    except zlib.error:
        return None
    return body if inflater.eof else None


def _key(tag: str) -> str:
    """A tag as a routing key; empty if it can be none. Versions that did not check tags have stored such ones."""
    return tag if _text(tag) is not None and len(tag.encode()) <= _LONGEST_KEY else ""


def _text(value: str | None) -> str | None:
    """`value`, unless it has octets that are no UTF-8."""
    try:
        (value or "").encode()
    except UnicodeEncodeError:
        return None
    return value


def from_neutral(message: Neutral) -> tuple[Envelope, bytes]:
    """Return envelope and content. Values that have no text form, or would be too long, are left out."""
    own: dict[str, str] = {}
    room = MOST_PROPERTIES
    tag = message.routing_key if len(message.routing_key) <= LONGEST_TAG else ""
    for name, value in (
        (names.UNIQUE_KEY, message.message_id),
        (names.KEYS, message.annotations.get(KEYS)),
        (names.TAGS, tag),
        (names.MESSAGE_GROUP, message.group_id),
        (names.CORRELATION_ID, message.correlation_id),
    ):
        text = as_text(value)
        size = len(render({name: text})) if text else 0
        if text and size <= room:
            own[name] = text
            room -= size
    for name, value in (message.annotations | message.properties).items():
        text = as_text(value)
        if text is None or name in names.SYSTEM or name == KEYS:
            continue
        size = len(render({name: text}))
        if size <= room:
            own[name] = text
            room -= size
    content = MessageContent(render(own), message.body, born_ms=message.created or 0)
    envelope = envelope_of(message.exchange, message.routing_key)
    return envelope, content.pack()


def as_text(value: Plain) -> str | None:
    """Return a simple value as text, as producers of RocketMQ write it; None for all others."""
    match value:
        case bool():
            return "true" if value else "false"
        case UniqueId():
            digits = value.hex()
            return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return value.hex().upper()
        case int():
            return str(int(value))
        case float():
            return repr(float(value))
        case str():
            return value
        case _:
            return None
