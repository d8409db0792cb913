"""Detection of a client's protocol on the ports for RocketMQ, which both of its protocols share.

Only brokers that serve clients of RocketMQ import this module, so that others start faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from escrowmq.wire.rocketmq.grpc.endpoint import GrpcEndpoint
from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
from escrowmq.wire.sniff import HEADER_SIZE, TLS, Family, Opener

PROTOCOLS: Final[Mapping[bytes, Opener]] = MappingProxyType({b"PRI * HT": GrpcEndpoint})  # the preface of HTTP/2
"""Protocols of RocketMQ by their first eight bytes. Everything else on its ports is a frame of classic remoting."""
LARGEST_FIRST_OCTET: Final = 1
"""A frame of classic remoting begins with its length, which is at most 16 MiB."""


def sniff(header: bytes) -> Opener | None:
    """Return the protocol of a connection to a port for RocketMQ; None for an unknown header."""
    return PROTOCOLS.get(header) or (RemotingConnection if header[0] <= LARGEST_FIRST_OCTET else None)


def hopeless(start: bytes) -> bool:
    """Return whether the bytes received so far can no longer become a known header of RocketMQ."""
    return start[0] > LARGEST_FIRST_OCTET and not any(header.startswith(start[:HEADER_SIZE]) for header in PROTOCOLS)


def no_refusal(start: bytes) -> bytes:
    """Return nothing: neither protocol of RocketMQ has an answer to an unknown protocol."""
    del start
    return b""


_AMQP: Final = (b"AMQP", "AMQP, whose clients connect to listen.address, by default port 5672")

ROCKETMQ_FAMILY: Final = Family(sniff, hopeless, no_refusal, websocket=False, foreign=(TLS, _AMQP))
