"""Flow control of one connection, shared by all protocols. A connection waits for its client to read, or for the server
to have memory and disk space.

`OutputFlow` bounds the bytes that wait to be sent. Above the outbox limit, the connection's consumers get no more
deliveries; they are woken when there is room. Above `CROWD` times the limit, the connection is crowded (congested): the
client has requested more answers than it reads, and the broker reads nothing more from it until there is room.
`PublishGate` holds publishes back while the server is short of memory or disk space.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from escrowmq.wire.endpoint import Endpoint, Host
    from escrowmq.wire.outbox import Outbox

CROWD: Final = 4
"""Multiple of the outbox limit above which the connection is crowded by answers that the client requested."""


class Stalled(Protocol):
    """Consumers that wait until the connection is writable."""

    def wake(self) -> None:
        """Let the consumers be served again."""
        ...


class OutputFlow:
    """Bounds the unsent bytes of one connection: those in its outbox and those in the socket's buffer."""

    __slots__ = ("_limit", "_outbox", "_read_on", "_room", "_stalled", "_unsent", "is_crowded")

    def __init__(self, outbox: Outbox, limit_bytes: int, read_on: Callable[[], None]) -> None:
        """`read_on` is called when the connection is no longer crowded."""
        self._outbox = outbox
        self._limit = self._room = limit_bytes
        self._read_on = read_on
        self._unsent = 0
        self._stalled: dict[Stalled, None] = {}
        self.is_crowded = False
        """The result of the last call of `crowded`."""

    @property
    def writable(self) -> bool:
        """Whether consumers may get more deliveries."""
        return self._unsent + self._outbox.size < self._room

    def stall(self, stalled: Stalled) -> None:
        """Wake `stalled` when the connection is writable."""
        if self._room:
            self._stalled[stalled] = None

    def end_deliveries(self) -> None:
        """Be writable no more: the connection ends, and its consumers are about to be detached."""
        self._room = 0
        self._stalled.clear()

    def end(self) -> None:
        """Forget the connection, which is lost."""
        self.end_deliveries()
        self._read_on = _ignored

    def forget(self, stalled: Stalled) -> None:
        """Forget `stalled`, which is closed and need not be woken."""
        self._stalled.pop(stalled, None)

    def crowded(self) -> bool:
        """Check whether so many bytes wait to be sent that the broker must stop reading. The result stays in
        `is_crowded`.
        """
        self.is_crowded = self._unsent + self._outbox.size > CROWD * self._limit
        return self.is_crowded

    def congested(self, unsent: int) -> None:
        """Note that the socket's buffer now holds `unsent` bytes."""
        self._unsent = unsent
        self.relax()

    def relax(self) -> None:
        """Continue with everything that waited for room, because bytes may have been sent."""
        if self.is_crowded and not self.crowded():
            self._read_on()
        if self._stalled and self.writable:
            stalled, self._stalled = self._stalled, {}
            for one in stalled:
                one.wake()


def _ignored() -> None:
    """Do nothing: there is nothing to read any more."""


class PublishGate:
    """Holds publishes back while the server accepts none.

    Readers ask the gate about every publish while it is `shut`: about the first one, and about all while the server is
    short of memory or disk space.
    """

    __slots__ = ("_endpoint", "_host", "_known", "reason", "shut")

    def __init__(self, host: Host, endpoint: Endpoint) -> None:
        self._host = host
        self._endpoint = endpoint
        self._known = False
        self.reason = ""
        """The reason why the server accepts no publishes; empty while it accepts them."""
        self.shut = True
        """Whether the reader must ask about the next publish, or the next part of one."""

    def block(self, reason: str) -> None:
        """Hold publishes back for this reason; an empty reason ends the block."""
        self.reason = reason
        self.shut = self.shut or bool(reason)

    def keeps_back(self) -> bool:
        """Return whether a publish has to wait. Tells the server that the connection publishes and, if so, that it
        waits.
        """
        if not self._known:
            self._known = True
            self._host.publishing(self._endpoint)  # this call may block the endpoint at once
        self.shut = bool(self.reason)
        if self.shut:
            self._host.waiting(self._endpoint)
        return self.shut
