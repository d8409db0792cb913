"""Envelope and content of a message that arrived over AMQP 1.0.

The header section and the address go into the envelope, which equal messages share. The content is the rest of the
message, from the message annotations on, byte for byte. Delivery annotations are for this broker only and are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp10.codec import sections

PROTOCOL: Final = 100
"""The protocol number of envelopes that arrived over AMQP 1.0."""

_CACHE_LIMIT: Final = 1024
_CACHE_BYTES: Final = 256 * 1024
_LONGEST_NAME: Final = 255
"""The limit of exchange names and routing keys, in octets of UTF-8; other protocols have no longer ones."""
_FURTHER_KEYS: Final = "x-cc"


class Destination(NamedTuple):
    """The exchange to which a link's messages go, and their routing key. None: each message's subject is its key."""

    exchange: str
    routing_key: str | None = None


class Publications:
    """The envelopes of one link's messages, cached by header section and destination.

    Args:
        user: the user whose messages these are; they must not claim another one.
        destination: where the link's messages go, or None for the anonymous terminus, whose messages have an address
            of their own in the property `to`.
        parse: returns the destination that such an address names; raises BrokerError if there is none.
    """

    __slots__ = ("_by_header", "_by_key", "_destination", "_parse", "_size", "_user")

    def __init__(self, user: str, destination: Destination | None, parse: Callable[[str], Destination]) -> None:
        self._user = user.encode()
        self._destination = destination
        self._parse = parse
        self._by_header: dict[bytes, Envelope] = {}
        self._by_key: dict[tuple[bytes, Destination, tuple[str, ...]], Envelope] = {}
        self._size = 0

    def read(self, payload: bytes) -> tuple[Envelope, bytes]:
        """Return envelope and content of the message in `payload`. Equal envelopes are the same object.

        Sections from the message annotations on are read only if the destination depends on them.

        Raises:
            CodecError: a section that had to be read is malformed.
            BrokerError: a message for the anonymous terminus has no `to`, its address names nothing, the routing key is
                longer than 255 octets, or the property `user-id` is not the user's name.
        """
        header, at = sections.split_head(payload)
        content = payload[at:] if at else payload
        if sections.claims_user(content, 0, len(content)):
            self._check_user(sections.properties(content).user_id)
        destination = self._destination
        annotated = content[:3] == b"\x00\x53\x72" and sections.annotates(content, _FURTHER_KEYS)
        if destination is None or destination.routing_key is None or annotated:
            return self._addressed(header, content, annotated), content
        envelope = self._by_header.get(header)
        if envelope is None:
            envelope = self._by_header[header] = self._keyed(header, destination, ())
        return envelope, content

    def _check_user(self, claimed: bytes | None) -> None:
        if claimed is not None and claimed != self._user:
            raise BrokerError(
                Condition.ACCESS_REFUSED,
                f"user-id is {claimed.decode(errors='replace')!r}, but the user is {self._user.decode()!r}",
            )

    def _addressed(self, header: bytes, content: bytes, annotated: bool) -> Envelope:
        """The envelope of a message that says where it goes, or has further routing keys."""
        destination = self._destination
        if destination is None or destination.routing_key is None:
            to, subject = sections.address_of(content)
            if destination is None:
                if not to:
                    raise BrokerError(
                        Condition.PRECONDITION_FAILED,
                        "a message on a link without a target address must have its address in the property 'to'",
                    )
                destination = self._parse(to)
            if destination.routing_key is None:
                destination = Destination(destination.exchange, subject or "")
        return self._keyed(header, destination, _further_keys(content) if annotated else ())

    def _keyed(self, header: bytes, destination: Destination, further: tuple[str, ...]) -> Envelope:
        key = (header, destination, further)
        envelope = self._by_key.get(key)
        if envelope is None:
            envelope = _envelope(header, destination, further)
            self._size += len(header) + len(envelope.routing_key) + sum(map(len, further))
            if len(self._by_key) >= _CACHE_LIMIT or self._size > _CACHE_BYTES:
                self._by_key.clear()
                self._by_header.clear()
                self._size = 0
            self._by_key[key] = envelope
        return envelope


def _envelope(header: bytes, destination: Destination, further: tuple[str, ...]) -> Envelope:
    found = sections.decode_header(header)
    routing_key = destination.routing_key or ""
    for name in (routing_key, *further):
        if len(name.encode()) > _LONGEST_NAME:
            raise BrokerError(
                Condition.PRECONDITION_FAILED, f"routing key of more than {_LONGEST_NAME} bytes: {name[:40]!r}…"
            )
    return Envelope(
        destination.exchange,
        routing_key,
        protocol=PROTOCOL,
        durable=found.durable,
        priority=found.priority,
        ttl=found.ttl,
        extra_keys=further,
    )


def _further_keys(content: bytes) -> tuple[str, ...]:
    """Further routing keys, from the message annotation x-cc, which is a list or an array of strings."""
    keys = sections.message_annotations(content).get(_FURTHER_KEYS)
    if keys is None:
        return ()
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise BrokerError(
            Condition.PRECONDITION_FAILED,
            f"unexpected type of annotation '{_FURTHER_KEYS}': a list of strings is needed",
        )
    return tuple(map(str, keys))
