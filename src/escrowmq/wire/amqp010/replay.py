"""The broker's commands are sent again to a client that has attached a session again.

What is sent begins with the number that the client expects. It has the commands that the session remembers
(`sent.py`), and transfers that are unsettled, each with the number that it had. All other numbers are filled by
`session.gap`, and count as completed: transfers that their client need not accept, and commands that it has completed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from escrowmq.wire.amqp010.codec.frames import COMMAND, assembly
from escrowmq.wire.amqp010.codec.spec import SessionGap
from escrowmq.wire.amqp010.sequence import wire_ranges

if TYPE_CHECKING:
    from escrowmq.wire.amqp010.session import Session
    from escrowmq.wire.outbox import Piece

_TOGETHER: Final = 100  # commands that are sent before the connection and the turn are asked whether they have room


class Replay:
    """The commands that one session sends again on its present connection. It pauses while the client does not read."""

    def __init__(self, session: Session, first: int) -> None:
        self._session = session
        self._connection = session.connection
        self._flow = session.connection.flow
        self._next = first

    def wake(self) -> None:
        """Go on."""
        self._session.broker.engine.left_over.begin(self._going_on())

    @property
    def _current(self) -> bool:
        return not self._session.ending and self._session.connection is self._connection

    def _going_on(self) -> Iterator[None]:
        requests = self._session.broker.engine.requests
        while self._current:
            if self._next >= self._session.next_id:
                self._session.caught_up()
                return
            self._step()
            requests.left -= _TOGETHER
            if not self._flow.writable:
                self._flow.stall(self)
                return
            if requests.left <= 0:
                yield

    def _step(self) -> None:
        session = self._session
        found = self._found()[:_TOGETHER]
        for number, pieces, after in found:
            self._skip(number)
            self._connection.put_pieces(session.lane, pieces, after)
            self._next = number + 1
            if not self._flow.writable:
                break
        if not found:
            self._skip(session.next_id)

    def _found(self) -> list[tuple[int, list[Piece], int]]:
        """Return the next commands: their numbers, their frames, and how far the log has to be synced before."""
        session = self._session
        found: list[tuple[int, list[Piece], int]] = []
        if session.sent is not None:
            for number, sent in session.sent.from_number(self._next, _TOGETHER):
                frames = assembly(session.channel, [(COMMAND, sent.payload)], session.frame_max)
                found.append((number, frames, sent.after))
        for part in session.parts:
            found += [(number, frames, 0) for number, frames in part.sent_again(self._next, _TOGETHER)]
        found.sort(key=lambda each: each[0])
        return found

    def _skip(self, number: int) -> None:
        """Say that no commands come up to this number."""
        if number > self._next:
            skipped = self._next, number - 1
            self._session.send_control(SessionGap(wire_ranges([skipped])))
            self._session.note_completed(*skipped)
            self._next = number
