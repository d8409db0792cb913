"""Whether the leader's process is gone, as its machine says. A standby keeps a TCP connection to the leader's address.

When a process ends, its machine closes its connections and refuses new ones. A standby that sees both need not wait for
the lease. Only an address to which this standby has been connected counts, because another one may be refused for other
reasons. A machine that is lost, or a process that is suspended, says nothing; then the lease decides.

A leader that stops in order refuses connections, too. It says so in the log before, and its entries go on until it
resigns. The caller therefore reads the log to its end once more, and if the leader has said that, waits for
`GRACE_SECONDS` without any entry.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from escrowmq.client.parameters import PORT, TLS_PORT

GRACE_SECONDS: Final = 0.15
_ATTEMPT_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = 1.0
"""The time between two attempts to connect."""
_SHORT_SECONDS: Final = 0.1
"""Two connections in turn that end sooner are followed by a pause of this length. A leader that is cut off accepts no
clients. One such connection may just have been renewed when the leader ended.
"""
RENEW_SECONDS: Final = 5.0
"""How long a connection is used. A broker warns of one whose client does not log in within 10 s, by default."""

_log = logging.getLogger("escrowmq.replication")


class _Watched(NamedTuple):
    """A leader: its address, and the epoch since which it leads."""

    url: str
    epoch: int


_NOBODY: Final = _Watched("", 0)


class LeaderPresence:
    """Watches one address at a time, on a thread of its own, from `start` to `stop`. Other methods do not block."""

    def __init__(self, renew_seconds: float = RENEW_SECONDS) -> None:
        self._renew_seconds = renew_seconds
        self.on_gone: Callable[[], None] = lambda: None
        """Is called on the thread when the process at the address has ended."""
        self._changed = threading.Event()
        self._stopped = False
        self._watched = _NOBODY
        self._gone = _NOBODY
        """The leader whose address refuses connections after there was one."""
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="leader-presence", daemon=True).start()

    def watch(self, url: str, epoch: int = 0) -> None:
        """Watch the node at this address, which leads since this epoch, instead of the one so far; none if it is empty.

        A node that ended and leads again has the same address, so the epoch tells it from what it was.
        """
        if (url, epoch) != self._watched:
            self._watched = _Watched(url, epoch)
            self._wake()

    @property
    def is_gone(self) -> bool:
        """Whether the process at the address has ended."""
        return self._gone != _NOBODY and self._gone == self._watched

    def stop(self) -> None:
        """End the thread. It may take some seconds until it has ended."""
        self._stopped = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        while not self._stopped:
            self._changed.clear()
            watched = self._watched
            if watched.url:
                self._watch(watched)
            if self._watched == watched and not self._stopped:
                self._changed.wait(None if not watched.url or self.is_gone else _AGAIN_SECONDS)

    def _watch(self, watched: _Watched) -> None:
        """Return when the node cannot be reached, or another one is to be watched."""
        try:
            parts = urlsplit(watched.url)
            address = parts.hostname or "", parts.port or (TLS_PORT if parts.scheme == "amqps" else PORT)
        except ValueError:  # the other node has accepted it as its address
            return
        seen = short = False
        while self._watched == watched and not self._stopped:
            began = time.monotonic()
            try:
                with socket.create_connection(address, _ATTEMPT_SECONDS) as sock:
                    self._socket, seen = sock, True
                    self._wait_for_end(sock)
            except ConnectionRefusedError:
                if seen:
                    _log.info("the leader at %s takes no connections any more", watched.url)
                    self._gone = watched
                    self.on_gone()
                return
            except (OSError, UnicodeError):  # or the name of the host is too long
                return
            finally:
                self._socket = None
            before, short = short, time.monotonic() - began < _SHORT_SECONDS
            if before and short:
                self._changed.wait(_SHORT_SECONDS)

    def _wait_for_end(self, sock: socket.socket) -> None:
        """Return when the other side closes the connection, or when it has been used long enough."""
        sock.settimeout(self._renew_seconds)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        with contextlib.suppress(OSError):
            while self._watched.url and sock.recv(4096):
                pass
