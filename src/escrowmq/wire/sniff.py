"""Which protocol a client speaks: all share one port, the first eight bytes tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from escrowmq.core.engine import Headers
from escrowmq.wire.amqp091.connection import Connection as Amqp091
from escrowmq.wire.amqp091.death import headers_of, packed_headers_of
from escrowmq.wire.amqp091.packed import PACKED
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.endpoint import Endpoint, Host, Peer

HEADER_SIZE: Final = 8

Opener: TypeAlias = Callable[[Host, Peer], Endpoint]
"""Makes the endpoint of a new connection; it is then given all bytes, the header first."""

HEADERS: Final[Mapping[int, Headers]] = MappingProxyType({PROTOCOL: headers_of, PACKED: packed_headers_of})
"""How the headers of a stored message are read, by the number of the protocol that it came over (`Envelope.protocol`).

The broker needs it from its start on: messages expire into headers exchanges before anybody connects.
"""

PROTOCOLS: Final[Mapping[bytes, Opener]] = MappingProxyType({b"AMQP\x00\x00\x09\x01": Amqp091})

REFUSAL: Final = b"AMQP\x00\x00\x09\x01"
"""The answer to any other header, before the connection is closed (AMQP 0-9-1, 4.2.2): what we would rather speak."""


def sniff(header: bytes) -> Opener | None:
    """The protocol of a connection that begins with these eight bytes; None for one that is not spoken here."""
    return PROTOCOLS.get(header)


def hopeless(start: bytes) -> bool:
    """Whether what came so far can no longer become a header that is known."""
    return not any(header.startswith(start[:HEADER_SIZE]) for header in PROTOCOLS)
