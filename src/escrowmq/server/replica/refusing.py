"""A standby's answer to clients of AMQP: it names the node that leads, and closes the connection."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from escrowmq.admin.replica import refusal_text
from escrowmq.server.listener import Bound
from escrowmq.wire.amqp010.codec.frames import control_frame
from escrowmq.wire.amqp010.codec.spec import CloseCode
from escrowmq.wire.amqp010.codec.spec import ConnectionClose as ConnectionClose010
from escrowmq.wire.amqp010.connection import Connection as Amqp010
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.connection import Connection as Amqp091
from escrowmq.wire.amqp091.frames import method_frame
from escrowmq.wire.amqp10.codec.frames import PROTOCOL_HEADER, SASL, SASL_HEADER, frame
from escrowmq.wire.amqp10.codec.performatives import Close, Error, Open, encode_performative
from escrowmq.wire.amqp10.codec.sasl import OK, SaslMechanisms, SaslOutcome
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.sniff import HEADER_SIZE, refusal, sniff

CODE: Final = 320
"""CONNECTION_FORCED of AMQP 0-9-1."""
REDIRECT: Final = Symbol("amqp:connection:redirect")
_PATIENCE_SECONDS: Final = 5.0
_MOST: Final = 1 << 16
"""The bytes of a client's frame that are read."""
_TUNE: Final = spec.ConnectionTune(1, 131_072, 60)
_MECHANISMS: Final = ("PLAIN", "ANONYMOUS")
"""Any login is accepted, since nothing but the refusal follows. Only an open connection can be refused with words."""


def refuse_091(leader_url: str) -> bytes:
    """Return the answer to connection.open of AMQP 0-9-1."""
    text = refusal_text(leader_url).encode()[:255].decode("utf-8", "ignore")
    return method_frame(0, spec.ConnectionClose(CODE, text, 0, 0))


def refuse_010(header: bytes, leader_url: str) -> bytes:
    """Return the answer to a client of AMQP 0-10."""
    return header + control_frame(0, ConnectionClose010(CloseCode.CONNECTION_FORCED, refusal_text(leader_url)))


def refuse_10(leader_url: str) -> bytes:
    """Return the answer to a client of AMQP 1.0 that has logged in, with the leader's address if there is one."""
    error = Error("amqp:connection:forced", refusal_text(leader_url))
    if leader_url:
        parts = urlsplit(leader_url)
        info: dict[object, object] = {Symbol("network-host"): parts.hostname or ""}
        if parts.port:
            info[Symbol("port")] = parts.port
        error = Error(REDIRECT, refusal_text(leader_url), info)
    opened = Open("escrowmq", properties={Symbol("amqp:connection-establishment-failed"): True})
    return PROTOCOL_HEADER + b"".join(frame(0, encode_performative(each)) for each in (opened, Close(error)))


class Refusing:
    """Listens on the addresses of a broker while it is a standby. `leader_url` tells who leads."""

    def __init__(self, leader_url: Callable[[], str]) -> None:
        self._leader_url = leader_url
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, bound: Sequence[Bound], context: ssl.SSLContext | None, backlog: int) -> None:
        """Accept clients on sockets that share their address with those of `bound`. Raises OSError."""
        for each in bound:
            for sock in each.sockets:
                twin = sock.dup()
                tls = context if each.scheme == "amqps" else None
                self._servers.append(await asyncio.start_server(self._serve, sock=twin, ssl=tls, backlog=backlog))

    def stop(self) -> None:
        """Accept no more clients, and disconnect the present ones."""
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            # `stop` cancels this task, which nobody awaits; asyncio would log the cancellation as an error.
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    await self._refuse(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header = await reader.readexactly(HEADER_SIZE)
        if header == SASL_HEADER:
            offer = SaslMechanisms(tuple(map(Symbol, _MECHANISMS)))
            writer.write(SASL_HEADER + frame(0, encode_performative(offer), type=SASL))
            size = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(min(max(size - 4, 0), _MOST))
            writer.write(frame(0, encode_performative(SaslOutcome(OK)), type=SASL))
            header = await reader.readexactly(HEADER_SIZE)
        if sniff(header) is Amqp091:
            await _open_091(reader, writer)
        writer.write(self._answer(header))
        if writer.can_write_eof():
            writer.write_eof()
        while await reader.read(_MOST):  # a socket that is closed with unread data would discard the answer
            pass

    def _answer(self, header: bytes) -> bytes:
        protocol = sniff(header)
        if protocol is Amqp091:
            return refuse_091(self._leader_url())
        if protocol is Amqp010:
            return refuse_010(header, self._leader_url())
        if header == PROTOCOL_HEADER:
            return refuse_10(self._leader_url())
        return refusal(header)


async def _open_091(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Lead a client of AMQP 0-9-1 to connection.open. Clients take an earlier refusal for that of their login."""
    writer.write(method_frame(0, spec.ConnectionStart(0, 9, {}, b"PLAIN AMQPLAIN", b"en_US")))
    while True:
        size = int.from_bytes((await reader.readexactly(7))[3:], "big")
        method = (await reader.readexactly(min(size, _MOST) + 1))[:4]
        if method == spec.ConnectionStartOk.INDEX.to_bytes(4, "big"):
            writer.write(method_frame(0, _TUNE))
        if method == spec.ConnectionOpen.INDEX.to_bytes(4, "big"):
            return
