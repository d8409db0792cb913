"""A relay between a client and a broker that breaks connections after a number of bytes from the client."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_PIECE = 65_536


class Relay:
    """Listens on `port`. Connection number `i` breaks after `cuts[i]` bytes from the client, if there are so many
    cuts. `sent` has the bytes from the client of each connection.
    """

    def __init__(self, broker_port: int, *cuts: int) -> None:
        self._broker_port = broker_port
        self._cuts = cuts
        self._flows = threading.Event()
        self._flows.set()
        self.sent: list[int] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
                number = len(self.sent)
                self.sent.append(0)
                threading.Thread(target=self._forward, args=(client, broker, number), daemon=True).start()
                threading.Thread(target=self._return, args=(broker, client), daemon=True).start()

    def _forward(self, client: socket.socket, broker: socket.socket, number: int) -> None:
        left = self._cuts[number] if number < len(self._cuts) else 1 << 62
        with contextlib.suppress(OSError), client, broker:
            while left and (data := client.recv(min(_PIECE, left))):
                self._flows.wait()
                broker.sendall(data)
                self.sent[number] += len(data)
                left -= len(data)
            for each in (client, broker):
                each.shutdown(socket.SHUT_RDWR)

    def _return(self, broker: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := broker.recv(_PIECE):
                self._flows.wait()
                client.sendall(data)

    def hold(self) -> None:
        """Keep all bytes back until `release`."""
        self._flows.clear()

    def release(self) -> None:
        """Let the bytes through that were kept back, and all others."""
        self._flows.set()

    def close(self) -> None:
        """Accept nothing more."""
        self._listener.shutdown(socket.SHUT_RDWR)  # accept() does not notice close()
        self._listener.close()


@contextmanager
def relayed(broker_port: int, *cuts: int) -> Iterator[Relay]:
    """Run a relay."""
    relay = Relay(broker_port, *cuts)
    try:
        yield relay
    finally:
        relay.close()
