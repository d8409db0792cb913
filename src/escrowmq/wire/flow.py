"""When a connection has to wait: for its client to read, or for the server to have memory and disk. All protocols
share it.

`OutputFlow` bounds what waits to be sent. From the outbox limit on, consumers get no more; they are woken when there is
room. From `CROWD` times the limit on, the connection is crowded: the client has asked for more answers than it reads,
and nothing more is read from it until there is room. `PublishGate` keeps publishes back while the server is short of
memory or disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from escrowmq.wire.endpoint import Endpoint, Host
    from escrowmq.wire.outbox import Outbox

CROWD: Final = 4
"""Times the outbox limit, for answers that the client has asked for."""


class Stalled(Protocol):
    """Consumers that wait until the connection is writable."""

    def wake(self) -> None:
        """They may be served again."""
        ...


class OutputFlow:
    """Bounds the unsent bytes of one connection: those in its outbox and those in the socket's buffer."""

    __slots__ = ("_limit", "_outbox", "_read_on", "_stalled", "_unsent", "is_crowded")

    def __init__(self, outbox: Outbox, limit_bytes: int, read_on: Callable[[], None]) -> None:
        """`read_on` is called when the connection is no longer crowded."""
        self._outbox = outbox
        self._limit = limit_bytes
        self._read_on = read_on
        self._unsent = 0
        self._stalled: dict[Stalled, None] = {}
        self.is_crowded = False
        """As of the last look."""

    @property
    def writable(self) -> bool:
        """Whether consumers may be given more."""
        return self._unsent + self._outbox.size < self._limit

    def stall(self, stalled: Stalled) -> None:
        """Wake `stalled` when the connection is writable."""
        self._stalled[stalled] = None

    def crowded(self) -> bool:
        """Look whether so much waits to be sent that nothing more is to be read."""
        self.is_crowded = self._unsent + self._outbox.size > CROWD * self._limit
        return self.is_crowded

    def congested(self, unsent: int) -> None:
        """`unsent` bytes are in the socket's buffer now."""
        self._unsent = unsent
        self.relax()

    def relax(self) -> None:
        """Bytes may have left: go on with whatever waited for that."""
        if self.is_crowded and not self.crowded():
            self._read_on()
        if self._stalled and self.writable:
            stalled, self._stalled = self._stalled, {}
            for one in stalled:
                one.wake()


class PublishGate:
    """Every publish passes it when `shut`: the first one, and all while the server takes none."""

    __slots__ = ("_endpoint", "_host", "_known", "reason", "shut")

    def __init__(self, host: Host, endpoint: Endpoint) -> None:
        self._host = host
        self._endpoint = endpoint
        self._known = False
        self.reason = ""
        """Why the server takes no publishes; empty while it does."""
        self.shut = True
        """The next publish, or the next part of one, is to be asked about."""

    def block(self, reason: str) -> None:
        """The server takes no publishes for this reason; with an empty one it takes them again."""
        self.reason = reason
        self.shut = self.shut or bool(reason)

    def keeps_back(self) -> bool:
        """Whether a publish has to wait. The server has been told that the connection publishes, and that it waits."""
        if not self._known:
            self._known = True
            self._host.publishing(self._endpoint)  # which may block it at once
        self.shut = bool(self.reason)
        if self.shut:
            self._host.waiting(self._endpoint)
        return self.shut
