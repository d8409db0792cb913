"""The end of a connection whose sessions give back what they hold in pieces: AMQP 1.0 and AMQP 0-10."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from escrowmq.core.engine import Engine
    from escrowmq.wire.flow import OutputFlow


class ConnectionEnding:
    """What sessions, and at last the connection, have still to give back.

    When a connection is lost, `drop` is called after the last piece of work. It drops those parts of the connection
    that refer to it, so that its memory is free at once, and needs no garbage collector.
    """

    __slots__ = ("_drop", "_engine", "_lost", "_works", "begun")

    def __init__(self, engine: Engine, drop: Callable[[], None]) -> None:
        self._engine = engine
        self._drop: Callable[[], None] | None = drop
        self._works = 0
        self._lost = False
        self.begun = False
        """Whether the connection gives back everything, or has done so."""

    def begin(self, flow: OutputFlow, work: Iterator[None]) -> None:
        """Deliver nothing more, and do the work of the connection, which ends. Its sessions send nothing more."""
        self.begun = True
        flow.end_deliveries()
        self._engine.requests.admit()
        self.leave(work)

    def leave(self, work: Iterator[None]) -> None:
        """Do the work of a session or of the connection, which ends. Much of it follows in later turns."""
        self._works += 1
        self._engine.left_over.begin(self._carried_out(work))

    def lost(self, release: Callable[[], None], flow: OutputFlow) -> None:
        """Release everything, because the connection is lost."""
        self._lost = True
        self._works += 1
        release()
        flow.end()
        self._done()

    def _carried_out(self, work: Iterator[None]) -> Iterator[None]:
        yield from work
        self._done()

    def _done(self) -> None:
        self._works -= 1
        if self._lost and not self._works and self._drop is not None:
            drop, self._drop = self._drop, None
            drop()
