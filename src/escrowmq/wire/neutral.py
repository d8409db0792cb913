"""The neutral form of messages, through which protocols reach each other: N protocols need N translators.

The form is a superset: the sections of AMQP 1.0, with values that keep their width. `docs/guides/protocols.md` has the
table of conversions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.core.messages.formats import Format

Plain: TypeAlias = Any
"""None, bool, int (64 bits), float, str, bytes, one of the classes below, or a list or dict of such values."""


class Int8(int):
    """A signed integer of 8 bits."""

    __slots__ = ()


class Int16(int):
    """A signed integer of 16 bits."""

    __slots__ = ()


class Int32(int):
    """A signed integer of 32 bits."""

    __slots__ = ()


class UInt8(int):
    """An unsigned integer of 8 bits."""

    __slots__ = ()


class UInt16(int):
    """An unsigned integer of 16 bits."""

    __slots__ = ()


class UInt32(int):
    """An unsigned integer of 32 bits."""

    __slots__ = ()


class UInt64(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class Float32(float):
    """A number of single precision."""

    __slots__ = ()


class Moment(int):
    """A time in milliseconds since the epoch."""

    __slots__ = ()


class UniqueId(bytes):
    """The 16 octets of a UUID."""

    __slots__ = ()


Id: TypeAlias = "str | bytes | UInt64 | UniqueId"


def uuid_text(value: bytes) -> str:
    """Return the 16 octets of a UUID in its usual form."""
    digits = value.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def id_text(value: Id) -> str:
    """Return an id as people read it: a UUID in its usual form, other octets in hexadecimal."""
    if isinstance(value, UniqueId):
        return uuid_text(value)
    return value.hex() if isinstance(value, bytes) else str(value)


@dataclass(slots=True)
class Neutral:
    """One message.

    `priority` is None if the publisher set none. `ttl` and all times are in milliseconds. `annotations` are for brokers
    and `properties` for applications. If `encoded`, `body` consists of the body sections of an AMQP 1.0 message that
    has no other form; otherwise it is the octets that the publisher sent.
    """

    exchange: str
    routing_key: str
    extra_keys: tuple[str, ...] = ()
    deaths: tuple[Death, ...] = ()
    durable: bool = False
    priority: int | None = None
    ttl: int | None = None
    annotations: dict[str, Plain] = field(default_factory=dict)
    message_id: Id | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: Id | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    expires: int | None = None
    created: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None
    kind: str | None = None
    properties: dict[str, Plain] = field(default_factory=dict)
    body: bytes = b""
    encoded: bool = False


class Translator(Format, Protocol):
    """A format that can also be translated. Neither function fails: what cannot be expressed is left out."""

    def neutral(self, envelope: Envelope, content: bytes) -> Neutral:
        """Return a message of this form in the neutral form."""
        ...

    def encode(self, message: Neutral) -> tuple[Envelope, bytes]:
        """Return envelope and content of `message` in the form that this protocol delivers."""
        ...
