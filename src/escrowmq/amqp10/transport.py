"""The socket of the blocking client. It reads while it writes, so neither side can block the other."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from typing import Final

from escrowmq.amqp10.errors import ConnectionLost
from escrowmq.amqp10.parameters import Parameters

RECEIVE_SIZE: Final = 256 * 1024
_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def dial(wanted: Parameters, deadline: float) -> socket.socket:
    """Open a TCP or TLS connection and make it non-blocking. `deadline` is a time of `time.monotonic()`.

    Raises:
        ConnectionLost: The connection could not be opened.
    """
    left = max(deadline - time.monotonic(), 0.001)
    try:
        sock = socket.create_connection((wanted.host, wanted.port), left)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if wanted.ssl_context is not None:
                sock.settimeout(max(deadline - time.monotonic(), 0.001))
                sock = wanted.ssl_context.wrap_socket(sock, server_hostname=wanted.server_name or wanted.host)
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
    except TimeoutError:
        raise ConnectionLost(f"{wanted.address} did not answer within {wanted.connection_timeout:g} s") from None
    except OSError as error:
        raise ConnectionLost(f"{wanted.address}: {error.strerror or error}") from error
    return sock


class SocketTransport:
    """Sends and receives bytes without blocking; `wait` blocks until either is possible."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        self.peer = peer
        self._sock = sock
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._unsent = bytearray()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._mask = select.POLLIN

    def close(self) -> None:
        """Close the socket at once."""
        with contextlib.suppress(OSError):
            self._sock.close()

    @property
    def writing(self) -> bool:
        """Whether data waits to be sent."""
        return bool(self._unsent)

    def send(self, data: bytes) -> None:
        """Send as much as the socket accepts, and keep the rest. Raises ConnectionLost if the connection is broken."""
        if self._unsent:
            self._unsent += data
            data = b""
        try:
            while data or self._unsent:
                count = self._sock.send(data or self._unsent)
                if data:
                    if count < len(data):
                        self._unsent += memoryview(data)[count:]
                    data = b""
                else:
                    del self._unsent[:count]
        except _WOULD_BLOCK:
            self._unsent += data
        except OSError as error:
            raise self._lost(error) from error

    def receive(self) -> bytes | None:
        """Return what has arrived, or None. Raises ConnectionLost if the connection has ended."""
        try:
            data = self._sock.recv(RECEIVE_SIZE)
        except _WOULD_BLOCK:
            return None
        except OSError as error:
            raise self._lost(error) from error
        if not data:
            raise ConnectionLost(f"{self.peer} closed the connection without a reason")
        return data

    def wait(self, seconds: float) -> None:
        """Wait until data has arrived, or waiting data can be sent, for at most `seconds`."""
        if self._tls and self._sock.pending():  # type: ignore[attr-defined]
            return
        mask = select.POLLIN | select.POLLOUT if self._unsent else select.POLLIN
        if mask != self._mask:
            self._poll.modify(self._sock, mask)
            self._mask = mask
        self._poll.poll(max(seconds, 0.0) * 1000)

    def _lost(self, error: OSError) -> ConnectionLost:
        return ConnectionLost(f"{self.peer}: {error.strerror or error}")
