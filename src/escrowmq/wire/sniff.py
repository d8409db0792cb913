"""Detection of a client's protocol by its first eight bytes, on a port that all versions of AMQP share. Ports for
RocketMQ have a module of their own, `wire.rocketmq.sniff`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from escrowmq.wire.amqp010.connection import Connection as Amqp010
from escrowmq.wire.amqp091.connection import Connection as Amqp091
from escrowmq.wire.amqp10.connection import Connection as Amqp10
from escrowmq.wire.endpoint import Endpoint, Host, Peer

HEADER_SIZE: Final = 8

Opener: TypeAlias = Callable[[Host, Peer], Endpoint]
"""Makes the endpoint of a new connection. The endpoint then gets all bytes, beginning with the header."""

PROTOCOLS: Final[Mapping[bytes, Opener]] = MappingProxyType(
    {
        b"AMQP\x00\x00\x09\x01": Amqp091,
        b"AMQP\x01\x01\x00\x09": Amqp091,  # 0-9
        b"AMQP\x01\x01\x08\x00": Amqp091,  # 0-8
        b"AMQP\x01\x01\x09\x01": Amqp091,  # 0-8, as its published document has it
        b"AMQP\x01\x01\x00\x0a": Amqp010,
        b"AMQP\x00\x01\x00\x00": Amqp10,
        b"AMQP\x02\x01\x00\x00": Amqp10,  # a request for TLS within the connection, which is answered with an offer
        b"AMQP\x03\x01\x00\x00": Amqp10,
    }
)

REFUSAL: Final = b"AMQP\x00\x00\x09\x01"
"""The protocol header that the broker sends before it closes a connection with an unknown header (AMQP 0-9-1, 4.2.2).
"""
_REFUSAL_010: Final = b"AMQP\x01\x01\x00\x0a"
_REFUSAL_10: Final = b"AMQP\x03\x01\x00\x00"
REFUSALS: Final[Mapping[str, bytes]] = MappingProxyType({"0-9-1": REFUSAL, "0-10": _REFUSAL_010, "1.0": _REFUSAL_10})
"""The answers from which `compatibility.unknown_header` chooses."""
_FAMILIES: Final = (
    (b"AMQP\x00\x01", _REFUSAL_10),
    (b"AMQP\x02\x01", _REFUSAL_10),
    (b"AMQP\x03\x01", _REFUSAL_10),
    (b"AMQP\x01\x01\x00", _REFUSAL_010),
    (b"AMQP", REFUSAL),
)
"""The answers to beginnings of unknown versions of AMQP."""


def sniff(header: bytes) -> Opener | None:
    """Return the protocol of a connection that begins with these eight bytes; None for an unknown header."""
    return PROTOCOLS.get(header)


def hopeless(start: bytes) -> bool:
    """Return whether the bytes received so far can no longer become a known header."""
    return not any(header.startswith(start[:HEADER_SIZE]) for header in PROTOCOLS)


def refusal(start: bytes, otherwise: bytes = REFUSAL) -> bytes:
    """Return the protocol header that answers these bytes of an unknown protocol: a version of the same family that the
    broker speaks, and `otherwise` for everything that is not AMQP.
    """
    return next((answer for beginning, answer in _FAMILIES if start.startswith(beginning)), otherwise)


TLS: Final = (b"\x16\x03", "TLS, but this port has none")
_HTTP2: Final = (
    b"PRI ",
    "HTTP/2, as clients of gRPC do; clients of RocketMQ 5 connect to rocketmq.grpc_address, by default port 8081",
)
_OTHER_AMQP: Final = (b"AMQP", "a version of AMQP that is none of 0-8, 0-9, 0-9-1, 0-10 and 1.0")


class Family(NamedTuple):
    """The protocols of one port. `foreign` are beginnings of other protocols, with words for the log."""

    sniff: Callable[[bytes], Opener | None]
    hopeless: Callable[[bytes], bool]
    refusal: Callable[[bytes], bytes]
    websocket: bool
    foreign: tuple[tuple[bytes, str], ...] = (TLS,)

    def guess(self, start: bytes) -> str:
        """Return the protocol that these bytes are probably of, none of those of the port, for the log."""
        return next((words for beginning, words in self.foreign if start.startswith(beginning)), "an unknown protocol")


AMQP_FAMILY: Final = Family(sniff, hopeless, refusal, websocket=True, foreign=(TLS, _HTTP2, _OTHER_AMQP))


def amqp_family(unknown: bytes = REFUSAL) -> Family:
    """Return the protocols of a port for AMQP. `unknown` answers everything that is not AMQP."""
    return AMQP_FAMILY._replace(refusal=partial(refusal, otherwise=unknown))
