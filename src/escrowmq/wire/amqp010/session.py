"""A session: its name, its controls, what it sends, and the parts that the classes of commands have in it.

A session lives as long as it is attached: the broker grants a timeout of 0, so nothing is kept for a client that comes
back. A client detaches it with `session.detach`. A command that is refused ends it with `execution.exception` and
`session.detach` of the broker; then everything up to the client's `session.detached` is ignored. A fault in a control
ends it with `session.detached` at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.budget import CHANNEL
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.ports import ReceiverOrigin
from escrowmq.wire.amqp010.codec.answers import completed_frame, result_frame
from escrowmq.wire.amqp010.codec.commands import encode_command
from escrowmq.wire.amqp010.codec.frames import BODY, COMMAND, HEADER, assembly, control_frame
from escrowmq.wire.amqp010.codec.spec import (
    DetachCode,
    ErrorCode,
    ExecutionException,
    ExecutionResult,
    SessionAttach,
    SessionAttached,
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
    XaResult,
)
from escrowmq.wire.amqp010.exceptions import ERROR_CODES, exception
from escrowmq.wire.amqp010.execution import Execution
from escrowmq.wire.amqp010.faults import SessionFault
from escrowmq.wire.amqp010.names import SessionNames
from escrowmq.wire.amqp010.sequence import MASK, Numbers, counted, wire_ranges
from escrowmq.wire.outbox import LARGE

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import TransactionBranch
    from escrowmq.wire.amqp010.codec.frames import Assembly, Segment
    from escrowmq.wire.amqp010.codec.structs import Command, Control, Struct
    from escrowmq.wire.amqp010.codec.types import Ranges
    from escrowmq.wire.amqp010.connection import Connection
    from escrowmq.wire.amqp010.ports import Content, P, Reply, SessionPart, SessionPort
    from escrowmq.wire.amqp010.runs import TransferRuns
    from escrowmq.wire.outbox import Piece

LONGEST_NAME: Final = 1024
"""The longest name of a session, in octets."""
MOST_GAPS: Final = 10_000
"""The most ranges of commands that a client may leave incomplete."""
_PENDING: Final = 50  # pending commands that cost one unit of the turn's work when the others are reported
_RANGES: Final = 64  # ranges of completed commands up to which they are a single piece of work


class Session:
    """One session, on one channel of a connection (`ports.SessionPort`)."""

    def __init__(self, connection: Connection, channel: int, name: bytes) -> None:
        self.connection = connection
        self.channel = channel
        self.lane = channel + 1
        self.name = name
        self.broker = connection.broker
        self.host = connection.host
        self.limits = connection.limits
        self.vhost = connection.vhost
        self.door = connection.door
        self.owner = connection.owner
        self.traffic = connection.traffic
        self.flow = connection.flow
        self.branch: TransactionBranch | None = None
        self.ending = False
        self.frame_max = connection.frame_max
        self.runs: TransferRuns | None = None
        self.refused = False  # the broker has ended the session, and waits for the client's answer
        self.next_id = 0
        self.execution = Execution(self)
        self.assembly: Assembly | None = None  # the command whose frames arrive
        self._parts: dict[object, SessionPart] = {}
        self._flushing: dict[SessionPart, None] = {}
        self._completed = Numbers()  # the broker's commands that the client has completed
        self._holding = self.broker.holdings.begin(connection.user, self.vhost.name)
        self.broker.engine.channels[connection.user] += 1
        self.broker.engine.counters.channels_opened += 1

    @property
    def user(self) -> str:
        """The authenticated user."""
        return self.connection.user

    @property
    def label(self) -> str:
        """The connection and the channel, for logs."""
        return f"{self.connection.label}, channel {self.channel}"

    @property
    def origin(self) -> ReceiverOrigin:
        """See `Receiver.origin`."""
        return ReceiverOrigin(str(self.connection.peer), self.channel, self.user)

    def part(self, kind: Callable[[SessionPort], P]) -> P:
        """See `SessionPort.part`."""
        found: Any = self._parts.get(kind)
        if found is None:
            found = self._parts[kind] = kind(self)
        part: P = found
        return part

    # -- output

    def send(self, command: Command, content: Content | None = None, after: int = 0) -> int:
        """See `SessionPort.send`."""
        number = self.next_id
        self.next_id += 1
        if not self.ending:
            segments: list[Segment] = [(COMMAND, encode_command(command))]
            if content is not None:
                segments += ((HEADER, content.header), (BODY, content.body))
            self._put(assembly(self.channel, segments, self.connection.frame_max), after)
        return number

    def send_frames(self, pieces: list[Piece], count: int) -> int:
        """See `SessionPort.send_frames`."""
        first = self.next_id
        self.next_id += count
        if not self.ending:
            if len(pieces) == 1:
                self.connection.put(self.lane, pieces[0], 0)
            else:
                self.connection.put_pieces(self.lane, pieces, 0)
        return first

    def send_control(self, control: Control, after: int = 0) -> None:
        """Send a control when the log is synced up to `after`."""
        self.connection.put(self.lane, control_frame(self.channel, control), after)

    def send_result(self, number: int, result: Struct, after: int) -> None:
        """Send the result of a command when the log is synced up to `after`."""
        if type(result) is XaResult and result.status is not None and not self.ending:
            self.next_id += 1
            self.connection.put(self.lane, result_frame(self.channel, number, result.status), after)
        else:
            self.send(ExecutionResult(number, result), after=after)

    def send_completed(self, ranges: Ranges, after: int) -> None:
        """Send the completion of commands when the log is synced up to `after`."""
        if len(ranges) == 1:
            self.connection.put(self.lane, completed_frame(self.channel, *ranges[0]), after)
        else:
            self.send_control(SessionCompleted(ranges), after)

    def _put(self, pieces: list[Piece], after: int) -> None:
        if any(len(piece) >= LARGE for piece in pieces):
            self.connection.put_pieces(self.lane, pieces, after)
        else:
            self.connection.put(self.lane, b"".join(pieces), after)

    def answer_now(self) -> None:
        """Report the completions of this turn."""
        if not self.ending:
            self.execution.report()

    # -- answers of handlers that took longer

    def answer(self, number: int, reply: Reply | None) -> None:
        """See `SessionPort.answer`."""
        if not self.ending:
            self.execution.answer(number, reply)

    def answer_run(self, first: int, last: int, after: int = 0) -> None:
        """See `SessionPort.answer_run`."""
        if not self.ending:
            self.execution.answer_run(first, last, after)

    def report(self, code: ErrorCode, text: str) -> None:
        """See `SessionPort.report`."""
        self.connection.failed(int(code), f"channel {self.channel}: {text}")

    def fail(self, number: int, error: BrokerError) -> None:
        """See `SessionPort.fail`."""
        self.refuse(error, number, self.execution.code_of(number))

    @property
    def current(self) -> int:
        """See `SessionPort.current`."""
        return self.execution.current

    def carry_on(self) -> None:
        """See `SessionPort.carry_on`."""
        self.connection.carry_on()

    def await_rest(self, rest: Iterator[bool | None]) -> None:
        """See `SessionPort.await_rest`."""
        self.connection.await_rest(self, rest)

    def take_numbers(self, count: int) -> int:
        """See `SessionPort.take_numbers`."""
        return self.execution.take_numbers(count)

    # -- work that was put off

    def flush_later(self, part: SessionPart) -> None:
        """See `SessionPort.flush_later`."""
        self._flushing[part] = None
        self.connection.flush_later(self)

    def flush_parts(self) -> None:
        """Let the parts do the work that they have put off."""
        while self._flushing and not self.ending:
            part, _ = self._flushing.popitem()
            try:
                part.flush()
            except BrokerError as error:
                self.refuse(error)

    # -- memory

    @property
    def _held_bytes(self) -> int:
        held = sum(part.counted_bytes for part in self._parts.values())
        return held + self.assembly.held_bytes if self.assembly is not None else held

    def count_held(self) -> None:
        """See `SessionPort.count_held`."""
        held = self._held_bytes
        if held > self._holding.share or self._holding.share:
            self._holding.follow(held)

    def check_held(self, more: int, what: str) -> None:
        """See `SessionPort.check_held`."""
        self._holding.grow(self._held_bytes + more, what)

    @property
    def has_room(self) -> bool:
        """See `SessionPort.has_room`."""
        return not (self.broker.holdings.any_full and self._holding.share and self._holding.full)

    # -- controls of the client

    def control(self, control: Control) -> None:
        """Apply a control. Raises SessionFault, BrokerError."""
        self.flush_parts()
        handler = CONTROLS.get(type(control))
        if handler is None:
            raise SessionFault(DetachCode.NORMAL, f"{control.NAME} is not for a server")
        if not self.ending:
            handler(self, control)

    def request_timeout(self, control: SessionRequestTimeout) -> None:
        """Grant no time: nothing of a session is kept when it is detached."""
        self.send_control(SessionTimeout(0))

    def command_point(self, control: SessionCommandPoint) -> None:
        """Number the following commands from here on. Raises SessionFault."""
        if control.command_offset:
            raise SessionFault(DetachCode.UNKNOWN_IDS, "a command cannot be continued in its middle")
        self.execution.begin_at(control.command_id or 0)

    def completed(self, control: SessionCompleted) -> None:
        """Note that the client has completed commands of the broker. Many ranges are noted in pieces. Raises
        SessionFault, INVALID_ARGUMENT.
        """
        ranges = counted(control.commands or (), self.next_id)
        for _, last in ranges:
            if last >= self.next_id:
                raise SessionFault(DetachCode.UNKNOWN_IDS, f"command {last} was completed, but never sent")
        work = self._completing(ranges, control)
        if len(ranges) > _RANGES:
            self.await_rest(work)
        else:
            deque(work, 0)

    def _completing(self, ranges: list[tuple[int, int]], control: SessionCompleted) -> Iterator[None]:
        """Yield whenever the turn's budget is used up. Raises LIMIT_EXCEEDED."""
        requests = self.broker.engine.requests
        for first, last in ranges:
            if last < 0:
                continue
            new = self._completed.add(max(first, 0), last)
            for each in new:
                for part in list(self._parts.values()):
                    part.completed(*each)
            requests.left -= 1
            if requests.left <= 0:
                yield None
        if len(self._completed) > MOST_GAPS:
            raise BrokerError(Condition.LIMIT_EXCEEDED, f"commands are incomplete in {len(self._completed)} places")
        if control.timely_reply:
            self.send_control(SessionKnownCompleted(control.commands))

    def flush(self, control: SessionFlush) -> None:
        """Report the commands that are expected, confirmed, or completed."""
        self.execution.report()
        execution = self.execution
        if control.expected:
            following = execution.next & MASK
            self.send_control(SessionExpected(((following, following),)))
        if control.confirmed:
            self.send_control(SessionConfirmed(wire_ranges(execution.received)))
        if control.completed:
            self.broker.engine.requests.left -= execution.pending_count // _PENDING
            self.send_control(SessionCompleted(wire_ranges(execution.completed)))

    def gap(self, control: SessionGap) -> None:
        """Skip commands that do not come. Raises INVALID_ARGUMENT."""
        self.execution.skip(control.commands or ())

    def ignore(self, control: Control) -> None:
        """Do nothing: the broker sends nothing again, so it need not know what has arrived."""

    def detach(self, control: SessionDetach) -> None:
        """End the session, as the client asks. The answer follows when everything is returned. Raises SessionFault."""
        if control.name != self.name:
            raise SessionFault(DetachCode.NOT_ATTACHED, "a session of another name was to be detached")
        self.answer_now()
        self.leave()
        self.connection.leave(self._detaching())

    def _detaching(self) -> Iterator[None]:
        yield from self.releasing()
        if self.connection.sessions.get(self.channel) is self:
            self.send_control(SessionDetached(self.name, DetachCode.NORMAL))
            del self.connection.sessions[self.channel]

    # -- the end

    def end(self, code: ErrorCode, text: str) -> None:
        """See `SessionPort.end`."""
        self._raise(exception(code, text))

    def refuse(self, error: BrokerError, number: int | None = None, code: int = 0) -> None:
        """End the session because a command was refused. `code` is `Command.CODE`.

        The exception is sent when everything in the log is on disk. For example, "no such branch" means that the branch
        is decided, and a transaction manager that hears this forgets its own decision (DTX-9).
        """
        self._raise(
            exception(ERROR_CODES[error.condition], error.text, number, code),
            self.broker.log.proof_lsn(self.broker.log.end_lsn),
        )

    def _raise(self, raised: ExecutionException, after: int = 0) -> None:
        if self.ending:
            return
        self.answer_now()
        self.report(ErrorCode(raised.error_code or 0), raised.description or "")
        self.send(raised, after=after)
        self.send_control(SessionDetach(self.name))
        self.refused = True
        self.leave()
        self.connection.leave(self.releasing())

    def answered(self, control: SessionDetached) -> None:
        """The client has detached the session, most often because the broker asked for it. Free the channel."""
        self.connection.sessions.pop(self.channel, None)
        if not self.ending:
            self.answer_now()
            self.leave()
            self.connection.leave(self.releasing())

    def lose(self, fault: SessionFault) -> None:
        """End the session for a fault. Its channel is free at once."""
        if self.ending:
            return
        self.answer_now()
        self.connection.failed(int(fault.code), f"channel {self.channel}: {fault.text}")
        self.send_control(SessionDetached(self.name, fault.code))
        self.leave()
        self.connection.sessions.pop(self.channel, None)
        self.connection.leave(self.releasing())

    def leave(self) -> None:
        """Send nothing any more, and give no deliveries to the parts, which are about to be released."""
        self.ending = True
        self.assembly = None
        self._flushing.clear()
        self.host.common(SessionNames).remove(self.user, self.name, self)
        for part in self._parts.values():
            part.leave()

    def releasing(self) -> Iterator[None]:
        """Return everything that the parts hold, and yield whenever the turn's budget is used up. Call `leave` before,
        because events reach the parts until then.
        """
        for part in self._parts.values():
            yield from part.leaving()
        for part in self._parts.values():
            yield from part.returning()
        self._parts.clear()
        self._holding.close()
        channels = self.broker.engine.channels
        channels[self.user] -= 1
        if not channels[self.user]:
            del channels[self.user]
        self.broker.engine.requests.left -= CHANNEL

    def dropping_forbidden(self) -> Iterator[None]:
        """See `Endpoint.permissions_changed` (SEC-3)."""
        for part in list(self._parts.values()):
            if not self.ending:
                yield from part.dropping_forbidden()

    def note_ages(self, now_ms: int) -> None:
        """Note which deliveries are unsettled. Called about once a second."""
        for part in self._parts.values():
            part.note_ages(now_ms)

    def row(self) -> dict[str, object]:
        """Return the session's entry in lists of channels."""
        found: dict[str, object] = {
            "number": self.channel,
            "state": "closing" if self.ending else "running",
            "confirms": False,
            "transactional": self.branch is not None,
            "consumers": 0,
            "prefetch": 0,
            "global_prefetch": 0,
            "unsettled": 0,
            "age_ms": None,
            "uncommitted": 0 if self.branch is None else self.branch.operations,
        }
        for part in self._parts.values():
            found.update(part.row())
        return found


CONTROLS: Final[dict[type[Control], Callable[[Session, Any], None]]] = {
    SessionDetach: Session.detach,
    SessionRequestTimeout: Session.request_timeout,
    SessionTimeout: Session.ignore,
    SessionCommandPoint: Session.command_point,
    SessionExpected: Session.ignore,
    SessionConfirmed: Session.ignore,
    SessionCompleted: Session.completed,
    SessionKnownCompleted: Session.ignore,
    SessionFlush: Session.flush,
    SessionGap: Session.gap,
}
"""The controls of an attached session."""


def attach(connection: Connection, channel: int, control: SessionAttach) -> None:
    """Attach a session to a channel that has none, as the client asks, or refuse it with `session.detached`.

    A user's name that another channel has is refused as busy. With `force`, the other session is ended first.
    """
    name, user = control.name or b"", connection.user
    names = connection.host.common(SessionNames)
    other = names.find(user, name)
    code, text = None, ""
    if len(name) > LONGEST_NAME or not name:
        code, text = DetachCode.NOT_ATTACHED, f"the name of a session has {len(name)} octets"
    elif other is not None and not control.force:
        code, text = DetachCode.SESSION_BUSY, f"the session is attached by {other.label}"
    else:
        try:
            connection.broker.access.check_channels(user, connection.broker.engine.channels[user])
        except BrokerError as error:
            code, text = DetachCode.TRANSPORT_BUSY, error.text
    if code is not None:
        connection.failed(int(code), f"channel {channel}: {text}")
        connection.detached(channel, name, code)
        return
    if other is not None:
        other.lose(SessionFault(DetachCode.SESSION_BUSY, f"the session was taken over by {connection.label}"))
    session = connection.sessions[channel] = Session(connection, channel, name)
    names.add(user, name, session)
    session.send_control(SessionAttached(name))
    session.send_control(SessionCommandPoint(0, 0))
