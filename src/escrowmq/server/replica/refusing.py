"""A standby's answer to clients of AMQP: it names the node that leads, and closes the connection. Clients that only
read streams are handed to `reading`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from escrowmq.admin.replica import refusal_text
from escrowmq.client.reads import PLAN, PROPERTY, STANDBY, TASK
from escrowmq.server.listener import Bound
from escrowmq.server.replica.reading import ReadingCopies
from escrowmq.server.replica.reading_process import ReadingError
from escrowmq.wire.amqp010.codec.frames import control_frame
from escrowmq.wire.amqp010.codec.spec import CloseCode
from escrowmq.wire.amqp010.codec.spec import ConnectionClose as ConnectionClose010
from escrowmq.wire.amqp010.connection import Connection as Amqp010
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.connection import Connection as Amqp091
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.frames import method_frame
from escrowmq.wire.amqp091.table import FieldTable
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
_START_OK: Final = spec.ConnectionStartOk.INDEX.to_bytes(4, "big")
_OPEN: Final = spec.ConnectionOpen.INDEX.to_bytes(4, "big")
_MECHANISMS_091: Final = b"PLAIN AMQPLAIN EXTERNAL ANONYMOUS"
_PROPERTIES: Final[FieldTable] = {"product": "EscrowMQ", STANDBY: True}
"""What a client of AMQP 0-9-1 is told. One that reads learns from it that what it reads does not go on."""
_MECHANISMS: Final = ("PLAIN", "ANONYMOUS")
"""Any login is accepted, since nothing but the refusal follows. Only an open connection can be refused with words."""

_log = logging.getLogger("escrowmq.replication")


def close_091(reason: str) -> bytes:
    """Return the answer to connection.open of AMQP 0-9-1."""
    return method_frame(0, spec.ConnectionClose(CODE, _short(reason), 0, 0))


def refuse_010(header: bytes, leader_url: str) -> bytes:
    """Return the answer to a client of AMQP 0-10."""
    reason = _short(refusal_text(leader_url))
    return header + control_frame(0, ConnectionClose010(CloseCode.CONNECTION_FORCED, reason))


def _short(text: str) -> str:
    """Return as much of a text as such an answer can have."""
    return text.encode()[:255].decode("utf-8", "ignore")


def refuse_10(leader_url: str) -> bytes:
    """Return the answer to a client of AMQP 1.0 that has logged in, with the leader's address if there is one."""
    error = Error("amqp:connection:forced", refusal_text(leader_url))
    with contextlib.suppress(ValueError):  # the leader may name something that is no address
        parts = urlsplit(leader_url)
        if parts.hostname:
            info: dict[object, object] = {Symbol("network-host"): parts.hostname}
            if parts.port:
                info[Symbol("port")] = parts.port
            error = Error(REDIRECT, refusal_text(leader_url), info)
    opened = Open("escrowmq", properties={Symbol("amqp:connection-establishment-failed"): True})
    return PROTOCOL_HEADER + b"".join(frame(0, encode_performative(each)) for each in (opened, Close(error)))


class Refusing:
    """Listens on the addresses of a broker while it is a standby. `leader_url` tells who leads. Without `reading`,
    clients that only read are refused, too.
    """

    def __init__(self, leader_url: Callable[[], str], reading: ReadingCopies | None) -> None:
        self._leader_url = leader_url
        self._reading = reading
        self._servers: list[asyncio.Server] = []
        self._bound: Sequence[Bound] = ()
        self._backlog = 0
        self._renewing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, bound: Sequence[Bound], context: ssl.SSLContext | None, backlog: int) -> None:
        """Accept clients on sockets that share their address with those of `bound`. Raises OSError."""
        self._bound, self._backlog = bound, backlog
        for each in bound:
            for sock in each.sockets:
                twin = sock.dup()
                tls = context if each.scheme == "amqps" else None
                self._servers.append(await asyncio.start_server(self._serve, sock=twin, ssl=tls, backlog=backlog))

    def renew(self, context: ssl.SSLContext) -> None:
        """Use another context, with other certificates, for connections that are accepted from now on.

        Clients that connect meanwhile wait in the backlog of the sockets.
        """
        self._close()
        self._renewing = asyncio.get_running_loop().create_task(self._listen_again(context))

    async def _listen_again(self, context: ssl.SSLContext) -> None:
        try:
            await self.listen(self._bound, context, self._backlog)
        except OSError as error:
            _log.error("this standby cannot accept clients any more: %s", error)

    def stop(self) -> None:
        """Accept no more clients, and disconnect the present ones, also those that are handed on."""
        self._close()
        for task in self._tasks:
            task.cancel()

    def _close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            # `stop` cancels this task, which nobody awaits; asyncio would log the cancellation as an error.
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
                async with asyncio.timeout(_PATIENCE_SECONDS) as patience:
                    await self._refuse(reader, writer, patience)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _refuse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: asyncio.Timeout
    ) -> None:
        header = await reader.readexactly(HEADER_SIZE)
        if header == SASL_HEADER:
            offer = SaslMechanisms(tuple(map(Symbol, _MECHANISMS)))
            writer.write(SASL_HEADER + frame(0, encode_performative(offer), type=SASL))
            size = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(min(max(size - 4, 0), _MOST))
            writer.write(frame(0, encode_performative(SaslOutcome(OK)), type=SASL))
            header = await reader.readexactly(HEADER_SIZE)
        answer = self._answer(header)
        if sniff(header) is Amqp091:
            start_ok, kind = await _start_091(reader, writer)
            if kind and self._reading is not None:
                patience.reschedule(None)
                try:
                    await self._reading.serve(kind, header + start_ok, 1, reader, writer)
                    return
                except ReadingError as error:
                    answer = close_091(str(error))
                    patience.reschedule(asyncio.get_running_loop().time() + _PATIENCE_SECONDS)
            else:
                await _open_091(reader, writer)
        writer.write(answer)
        if writer.can_write_eof():
            writer.write_eof()
        while await reader.read(_MOST):  # a socket that is closed with unread data would discard the answer
            pass

    def _answer(self, header: bytes) -> bytes:
        protocol = sniff(header)
        if protocol is Amqp091:
            return close_091(refusal_text(self._leader_url()))
        if protocol is Amqp010:
            return refuse_010(header, self._leader_url())
        if header == PROTOCOL_HEADER:
            return refuse_10(self._leader_url())
        return refusal(header)


async def _start_091(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[bytes, str]:
    """Return a client's answer to connection.start of AMQP 0-9-1, and what it only wants to read; empty for any other
    client.
    """
    writer.write(method_frame(0, spec.ConnectionStart(0, 9, dict(_PROPERTIES), _MECHANISMS_091, b"en_US")))
    answer = await _frame(reader)
    if answer[7:11] != _START_OK:
        return answer, ""
    try:
        kind = spec.ConnectionStartOk.decode(answer[7:-1]).client_properties.get(PROPERTY)
    except SyntaxFault:
        kind = None
    return answer, kind if isinstance(kind, str) and kind in (PLAN, TASK) else ""


async def _open_091(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Lead a client of AMQP 0-9-1 to connection.open. Clients take an earlier refusal for that of their login."""
    writer.write(method_frame(0, _TUNE))
    while (await _frame(reader))[7:11] != _OPEN:
        pass


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(7)
    size = int.from_bytes(head[3:], "big")
    return head + await reader.readexactly(min(size, _MOST) + 1)
