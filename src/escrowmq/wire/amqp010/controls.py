"""The controls that a client sends to its session (class `session`), apart from those that attach it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp010.codec.spec import (
    DetachCode,
    SessionCommandPoint,
    SessionCompleted,
    SessionConfirmed,
    SessionDetach,
    SessionDetached,
    SessionExpected,
    SessionFlush,
    SessionGap,
    SessionKnownCompleted,
    SessionRequestTimeout,
    SessionTimeout,
)
from escrowmq.wire.amqp010.faults import SessionFault
from escrowmq.wire.amqp010.replay import Replay
from escrowmq.wire.amqp010.sent import SentCommands
from escrowmq.wire.amqp010.sequence import LONGEST, MASK, counted, wire_ranges
from escrowmq.wire.amqp010.states import SessionPhase

if TYPE_CHECKING:
    from escrowmq.wire.amqp010.codec.structs import Control
    from escrowmq.wire.amqp010.session import Session

MOST_GAPS: Final = 10_000
"""The most ranges of commands that a client may leave incomplete."""
_PENDING: Final = 50  # pending commands that cost one unit of the turn's work when the others are reported
_RANGES: Final = 64  # ranges of commands up to which they are a single piece of work
_LOOKED_AT: Final = 50  # remembered commands that cost one unit of the turn's work when ranges are compared with them


def apply_control(session: Session, control: Control) -> None:
    """Apply a control. Raises SessionFault, BrokerError."""
    handler = CONTROLS.get(type(control))
    if handler is None:
        raise SessionFault(DetachCode.NORMAL, f"{control.NAME} is not for a server")
    if session.state is SessionPhase.RESUMING and type(control) in _BEGINNING:
        session.refuse_new(control.NAME)
    else:
        handler(session, control)


def request_timeout(session: Session, control: SessionRequestTimeout) -> None:
    """Grant a time for which the session is kept when it is detached."""
    session.timeout = min(control.timeout or 0, session.limits.session_timeout)
    if not session.timeout:
        if session.state is SessionPhase.ATTACHED:
            session.sent = None
    elif session.sent is None:
        session.sent = SentCommands()
    session.send_control(SessionTimeout(session.timeout))


def command_point(session: Session, control: SessionCommandPoint) -> None:
    """Number the following commands from here on. Raises SessionFault."""
    if control.command_offset:
        raise SessionFault(DetachCode.UNKNOWN_IDS, "a command cannot be continued in its middle")
    session.execution.begin_at(control.command_id or 0)


def completed(session: Session, control: SessionCompleted) -> None:
    """Note that the client has completed commands of the broker. Many ranges are noted in pieces. Raises
    SessionFault, INVALID_ARGUMENT.
    """
    ranges = _sent_ranges(session, control, "completed")
    _note(session, len(ranges), _completing(session, ranges, control))


def _note(session: Session, ranges: int, work: Iterator[None]) -> None:
    """Note ranges of commands: at once, or in pieces if there are many."""
    if ranges > _RANGES:
        session.await_rest(work)
    else:
        deque(work, 0)


def _completing(session: Session, ranges: list[tuple[int, int]], control: SessionCompleted) -> Iterator[None]:
    """Yield whenever the turn's budget is used up. Raises LIMIT_EXCEEDED."""
    requests = session.broker.engine.requests
    for first, last in ranges:
        if last < 0:
            continue
        session.note_completed(max(first, 0), last)
        requests.left -= 1
        if requests.left <= 0:
            yield None
    if session.gaps > MOST_GAPS:
        raise BrokerError(Condition.LIMIT_EXCEEDED, f"commands are incomplete in {session.gaps} places")
    if control.timely_reply:
        session.send_control(SessionKnownCompleted(control.commands))


def confirmed(session: Session, control: SessionConfirmed) -> None:
    """Forget commands that have arrived. Raises SessionFault, INVALID_ARGUMENT."""
    ranges = _sent_ranges(session, control, "confirmed")
    _note(session, len(ranges), _confirming(session, ranges))


def _confirming(session: Session, ranges: list[tuple[int, int]]) -> Iterator[None]:
    """Yield whenever the turn's budget is used up."""
    requests = session.broker.engine.requests
    for first, last in ranges:
        if session.sent is None:
            return
        requests.left -= 1 + session.sent.drop(first, last) // _LOOKED_AT
        if requests.left <= 0:
            yield None


def _sent_ranges(session: Session, control: SessionCompleted | SessionConfirmed, what: str) -> list[tuple[int, int]]:
    """Return the ranges of the broker's commands in a control. Raises SessionFault if one of them was never sent, and
    INVALID_ARGUMENT.
    """
    ranges = counted(control.commands or (), session.next_id)
    for _, last in ranges:
        if last >= session.next_id:
            raise SessionFault(DetachCode.UNKNOWN_IDS, f"command {last} was {what}, but never sent")
    return ranges


def expected(session: Session, control: SessionExpected) -> None:
    """Send the commands again that the client of a resumed session has not got. Raises SessionFault,
    INVALID_ARGUMENT.
    """
    if session.state is not SessionPhase.RESUMING:
        return
    ranges = counted(control.commands or (), session.next_id)
    if not ranges:
        session.refuse_new("an empty set of numbers")
        return
    first = ranges[0][0]
    if not max(0, session.next_id - LONGEST) <= first <= session.next_id:
        raise SessionFault(DetachCode.UNKNOWN_IDS, f"command {first} is expected, and {session.next_id} is the next")
    session.state = SessionPhase.REPLAYING
    session.send_control(SessionCommandPoint(first & MASK, 0))
    Replay(session, first).wake()


def flush(session: Session, control: SessionFlush) -> None:
    """Report the commands that are expected, confirmed, or completed. None is expected of a session without any
    state, so that a client that attaches one again sees that it was not kept.
    """
    session.execution.report()
    execution = session.execution
    if control.expected:
        following = execution.next & MASK
        begun = execution.begun or session.state is not SessionPhase.ATTACHED
        session.send_control(SessionExpected(((following, following),) if begun else ()))
    if control.confirmed:
        session.send_control(SessionConfirmed(wire_ranges(execution.received)))
    if control.completed:
        session.broker.engine.requests.left -= execution.pending_count // _PENDING
        session.send_control(SessionCompleted(wire_ranges(execution.completed)), execution.latest)


def gap(session: Session, control: SessionGap) -> None:
    """Skip commands that do not come. Raises INVALID_ARGUMENT."""
    session.execution.skip(control.commands or ())


def ignore(session: Session, control: Control) -> None:
    """Do nothing: the broker remembers all that it has completed as a few ranges."""


def detach(session: Session, control: SessionDetach) -> None:
    """End the session, as the client asks, or keep it. The answer follows when everything is returned. Raises
    SessionFault.
    """
    if control.name != session.name:
        raise SessionFault(DetachCode.NOT_ATTACHED, "a session of another name was to be detached")
    session.answer_now()
    connection = session.connection
    if connection.part_with(session):
        connection.detached(session.channel, session.name, DetachCode.NORMAL)
        return
    session.leave()
    session.connection.leave(_detaching(session))


def _detaching(session: Session) -> Iterator[None]:
    yield from session.releasing()
    if session.connection.sessions.get(session.channel) is session:
        session.send_end(SessionDetached(session.name, DetachCode.NORMAL))
        del session.connection.sessions[session.channel]


CONTROLS: Final[dict[type[Control], Callable[[Session, Any], None]]] = {
    SessionDetach: detach,
    SessionRequestTimeout: request_timeout,
    SessionTimeout: ignore,
    SessionCommandPoint: command_point,
    SessionExpected: expected,
    SessionConfirmed: confirmed,
    SessionCompleted: completed,
    SessionKnownCompleted: ignore,
    SessionFlush: flush,
    SessionGap: gap,
}
"""The controls of an attached session."""
_BEGINNING: Final = frozenset((SessionCommandPoint, SessionGap))
"""Controls with which a client begins to send commands."""
