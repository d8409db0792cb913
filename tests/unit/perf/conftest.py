"""Servers for the load tool."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from struct import pack

import pytest

from escrowmq.perf.amqp091 import frames

Handler = Callable[[socket.socket], None]
Serve = Callable[[Handler], str]

START = frames.method(
    0,
    frames.CONNECTION_START,
    b"\0\x09"
    + frames.table({"product": "test", "version": "1.2"})
    + frames.longstr(b"PLAIN")
    + frames.longstr(b"en_US"),
)
TUNE = frames.method(0, frames.CONNECTION_TUNE, pack(">HIH", 2047, 131072, 60))
OPEN_OK = frames.method(0, frames.CONNECTION_OPEN_OK, b"\0")


def close(method: int, channel: int, code: int, text: str) -> bytes:
    """Return connection.close or channel.close."""
    return frames.method(channel, method, pack(">H", code) + frames.shortstr(text) + pack(">HH", 0, 0))


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Answer each connection with a function, and provide the URL."""
    with ExitStack() as stack:

        def start(handler: Handler) -> str:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def accept() -> None:
                while True:
                    try:
                        connection, _ = listener.accept()
                    except OSError:
                        return
                    with connection, suppress(ConnectionError):  # the client may disconnect after an answer
                        handler(connection)

            threading.Thread(target=accept, daemon=True).start()
            # accept() does not notice close(), so the socket must be shut down.
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            return f"amqp://127.0.0.1:{listener.getsockname()[1]}"

        yield start
