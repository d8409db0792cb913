"""A server that speaks just enough of NATS for one connection at a time, and does what a test tells it."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

_INFO = {"server_id": "S", "max_payload": 1 << 20, "headers": True}
_PUB = re.compile(rb"PUB (\S+) (\S+) (\d+)\r\n")


def stored(position: int) -> bytes:
    """Return the content of the answer to an entry that was stored."""
    return b'{"stream":"t", "seq":%d}' % (position + 1)


class NatsServer:
    """`answer` returns the content of the answer to an entry, None for none, or a status such as 503."""

    def __init__(
        self,
        answer: Callable[[bytes], bytes | int | None] = lambda _: None,
        *,
        refusal: str = "",
        encryption: ssl.SSLContext | None = None,
        **info: Any,
    ) -> None:
        self.received = bytearray()
        """All bytes of all connections."""
        self.connections = 0
        self.ended = 0
        """How many of the connections have ended."""
        self._answer = answer
        self._refusal = refusal
        self._encryption = encryption
        self._info = _INFO | info
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._peers: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)

    @property
    def host(self) -> str:
        """Where it listens, with the port."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, _type: type[BaseException] | None, _value: object, _traceback: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self.drop()
        self._listener.close()
        self._thread.join()

    def say(self, data: bytes) -> None:
        """Write bytes to the newest connection."""
        self._peers[-1].sendall(data)

    def drop(self) -> None:
        """End the connections that there are."""
        for peer in self._peers:
            with suppress(OSError):
                socket.socket.shutdown(peer, socket.SHUT_RDWR)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                self.connections += 1
                self._peers.append(peer)
                with peer, suppress(OSError), self._greet(peer) as self._peers[-1]:
                    self._speak(self._peers[-1])
                self.ended += 1

    def _greet(self, peer: socket.socket) -> socket.socket:
        peer.sendall(b"INFO %s\r\n" % json.dumps(self._info).encode())
        return peer if self._encryption is None else self._encryption.wrap_socket(peer, server_side=True)

    def _speak(self, peer: socket.socket) -> None:
        buffer = bytearray()
        while data := peer.recv(1 << 16):
            self.received += data
            buffer += data
            if buffer.startswith(b"CONNECT") and b"PING\r\n" in buffer:
                buffer = buffer.partition(b"PING\r\n")[2]
                peer.sendall(f"-ERR '{self._refusal}'\r\n".encode() if self._refusal else b"PONG\r\n")
            while (head := _PUB.match(buffer)) and len(buffer) >= head.end() + int(head[3]) + 2:
                end = head.end() + int(head[3])
                subject, entry = head[2], bytes(buffer[head.end() : end])
                del buffer[: end + 2]
                self._reply(peer, subject, entry)
            if buffer.startswith(b"P") and not buffer.startswith(b"PUB"):
                buffer = buffer.partition(b"\r\n")[2]  # a sign of life, or the answer to one

    def _reply(self, peer: socket.socket, subject: bytes, entry: bytes) -> None:
        answer = self._answer(entry)
        if isinstance(answer, int):
            headers = b"NATS/1.0 %d\r\n\r\n" % answer
            peer.sendall(b"HMSG %s 1 %d %d\r\n%s\r\n" % (subject, len(headers), len(headers), headers))
        elif answer is not None:
            peer.sendall(b"MSG %s 1 %d\r\n%s\r\n" % (subject, len(answer), answer))
