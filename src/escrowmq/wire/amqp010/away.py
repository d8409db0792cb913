"""What a session has instead of a connection while it is detached. Nothing that it sends goes anywhere.

Its completions and commands are not lost: the session knows them, and sends them when it is attached again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.conditions import BrokerError
from escrowmq.wire.flow import OutputFlow
from escrowmq.wire.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Iterator

    from escrowmq.core.broker import Broker
    from escrowmq.wire.amqp010.connection import Connection
    from escrowmq.wire.amqp010.session import Session
    from escrowmq.wire.endpoint import Peer
    from escrowmq.wire.outbox import Piece


class Away:
    """The place of a connection that is lost. Its output is never writable, so nothing is delivered."""

    def __init__(self, lost: Connection | Away) -> None:
        self.label: str = lost.label
        self.peer: Peer = lost.peer
        self.frame_max: int = lost.frame_max
        self.broker: Broker = lost.broker
        self.sessions: dict[int, Session] = {}
        self.flow = OutputFlow(Outbox(lost.broker.log), 0, _read_nothing)

    def put(self, lane: int, data: Piece, after: int = 0) -> None:
        """Send nothing."""

    def put_pieces(self, lane: int, pieces: list[Piece], after: int = 0) -> None:
        """Send nothing."""

    def put_completion(self, channel: int, data: Piece, after: int, *, urgent: bool = True) -> None:
        """Send nothing."""

    def rejoin(self, channel: int) -> None:
        """Do nothing: no completion waits."""

    def detached(self, channel: int, name: bytes, code: int) -> None:
        """Send nothing."""

    def answer_later(self, session: Session) -> None:
        """Report nothing: all completions are reported when the session is attached again."""

    def carry_on(self) -> None:
        """Read nothing."""

    def part_with(self, session: Session) -> bool:
        """The session is kept already."""
        return True

    def failed(self, code: int, text: str) -> None:
        """Report nothing: there is no connection that has failed."""

    def flush_later(self, session: Session) -> None:
        """Do the work at once, since no bytes follow."""
        session.flush_parts()

    def await_rest(self, session: Session, rest: Iterator[bool | None]) -> None:
        """Carry the work through without a reader."""
        self.leave(finishing(session, rest))

    def leave(self, work: Iterator[None]) -> None:
        """Do the work of a session, which ends."""
        self.broker.engine.left_over.begin(work)


def _read_nothing() -> None:
    """Nothing is read for a session without a connection."""


def finishing(session: Session, work: Iterator[object]) -> Iterator[None]:
    """Carry on with a command whose connection is lost. Its completion is reported when the session is attached
    again. If the session ends before, the rest is dropped, as that of every session that ends.
    """
    requests = session.broker.engine.requests
    session.unfinished += 1
    try:
        for waits in work:
            if waits or requests.left <= 0:
                yield
            if session.ending:
                return
    except BrokerError as error:
        session.refuse(error)
    finally:
        session.unfinished -= 1
