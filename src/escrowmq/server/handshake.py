"""TLS listeners, which may also accept clients without TLS on the same port. A connection is counted and timed from its
acceptance on, before its TLS handshake (SEC-4).

`asyncio.Server` tells of a connection only when its handshake is complete, so a flood of sockets that never finish
theirs would be under no bound.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from escrowmq.server.intake import ACCEPTED

if TYPE_CHECKING:
    from escrowmq.server.connection import ClientConnection

PAUSE_SECONDS: Final = 1.0
"""The time without further accepts after the system has run out of descriptors or memory for them."""
HANDSHAKE: Final = b"\x16"
"""The first octet of a TLS handshake. No protocol of ours begins with it."""
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_log = logging.getLogger("escrowmq.connection")


class Handshake(asyncio.Transport):
    """Stands in for the transport of a connection until its TLS handshake is complete."""

    def __init__(
        self,
        sock: socket.socket,
        address: object,
        connection: ClientConnection,
        context: ssl.SSLContext,
        login: float,
        *,
        plain: bool,
    ) -> None:
        """Begin the handshake on a socket that was accepted from `address`. It may take `login` seconds. With `plain`,
        there is none if the client begins with anything else.
        """
        super().__init__({"socket": sock, "peername": address})
        loop = asyncio.get_running_loop()
        self._closing = False
        self._task: asyncio.Task[tuple[asyncio.Transport, asyncio.BaseProtocol]] | None = loop.create_task(
            _begin(connection, sock, context, login, plain=plain)
        )
        self._task.add_done_callback(partial(self._done, connection, sock))
        connection.accepted(self)

    def _done(
        self,
        connection: ClientConnection,
        sock: socket.socket,
        task: asyncio.Task[tuple[asyncio.Transport, asyncio.BaseProtocol]],
    ) -> None:
        self._task = None  # its exception refers to the connection, and the connection to this object
        self._closing = True
        if task.cancelled():
            sock.close()
            connection.handshake_failed(None)
        elif error := task.exception():
            sock.close()
            connection.handshake_failed(error)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True
        if self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        self.close()

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is written before the handshake is complete."""

    def get_write_buffer_size(self) -> int:
        return 0


async def _begin(
    connection: ClientConnection, sock: socket.socket, context: ssl.SSLContext, login: float, *, plain: bool
) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
    """Make the transport of a connection, by a TLS handshake if the client begins one."""
    loop = asyncio.get_running_loop()
    if plain and await _first_octet(sock) != HANDSHAKE:
        return await loop.connect_accepted_socket(lambda: connection, sock)
    return await loop.connect_accepted_socket(lambda: connection, sock, ssl=context, ssl_handshake_timeout=login)


async def _first_octet(sock: socket.socket) -> bytes:
    """Wait for the first octet of a client, and leave it in the socket; empty if the client has disconnected."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()

    def ready() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(sock, ready)
    try:
        await readable
    finally:
        loop.remove_reader(sock)
    return sock.recv(1, socket.MSG_PEEK)


class TlsListener:
    """Accepts connections on a listening socket, and begins a TLS handshake with each."""

    def __init__(
        self,
        sock: socket.socket,
        factory: Callable[[], ClientConnection],
        context: ssl.SSLContext,
        login: float,
        *,
        plain: bool = False,
    ) -> None:
        self._sock = sock
        self._factory = factory
        self._context = context
        self._login = login
        self._plain = plain
        self._task = asyncio.get_running_loop().create_task(self._accept())

    def renew(self, context: ssl.SSLContext) -> None:
        """Use another context, with other certificates, for connections that are accepted from now on."""
        self._context = context

    def close(self) -> None:
        """Accept no more connections."""
        self._task.cancel()
        self._sock.close()

    async def _accept(self) -> None:
        loop, left = asyncio.get_running_loop(), ACCEPTED
        while True:
            left -= 1
            if not left:  # asyncio's own loop does not pause while there are clients to accept
                left = ACCEPTED
                await asyncio.sleep(0)
            try:
                sock, address = await loop.sock_accept(self._sock)
                Handshake(sock, address, self._factory(), self._context, self._login, plain=self._plain)
            except OSError as error:
                # Any other error is that of one connection, which has ended before it was accepted.
                if error.errno in _SHORTAGES:
                    _log.error("no TLS connection can be accepted for %g s: %s", PAUSE_SECONDS, error)
                    await asyncio.sleep(PAUSE_SECONDS)
