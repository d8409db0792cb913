"""A session: its name, its controls, what it sends, and the parts that the classes of commands have in it.

A client detaches a session with `session.detach`. A command that is refused ends it with `execution.exception` and
`session.detach` of the broker; then everything up to the client's `session.detached` is ignored. A fault in a control
ends it with `session.detached` at once.

A session whose client has asked for a timeout is kept for so long when it is detached or its connection is lost, unless
it has a transaction. `attaching.py` attaches it again. `states.py` has its states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.access.holdings import STEP
from escrowmq.core.budget import CHANNEL
from escrowmq.core.conditions import BrokerError
from escrowmq.core.leftover import WAIT
from escrowmq.core.ports import ReceiverOrigin
from escrowmq.wire.amqp010.away import Away
from escrowmq.wire.amqp010.codec.answers import completed_frame, result_frame
from escrowmq.wire.amqp010.codec.commands import encode_command
from escrowmq.wire.amqp010.codec.frames import BODY, COMMAND, HEADER, assembly, control_frame
from escrowmq.wire.amqp010.codec.spec import (
    ErrorCode,
    ExecutionException,
    ExecutionResult,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
    SessionDetach,
    SessionDetached,
    SessionFlush,
    SessionTimeout,
    XaResult,
)
from escrowmq.wire.amqp010.controls import apply_control
from escrowmq.wire.amqp010.exceptions import ERROR_CODES, exception
from escrowmq.wire.amqp010.exclusive import SessionOwner
from escrowmq.wire.amqp010.execution import Execution
from escrowmq.wire.amqp010.faults import SessionFault
from escrowmq.wire.amqp010.names import SessionNames
from escrowmq.wire.amqp010.sent import SentCommands
from escrowmq.wire.amqp010.sequence import MASK, Numbers, wire_ranges
from escrowmq.wire.amqp010.states import SessionPhase
from escrowmq.wire.outbox import LARGE

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import TransactionBranch
    from escrowmq.core.deadlines import Deadline
    from escrowmq.wire.amqp010.codec.frames import Assembly, Segment
    from escrowmq.wire.amqp010.codec.structs import Command, Control, Struct
    from escrowmq.wire.amqp010.codec.types import Ranges
    from escrowmq.wire.amqp010.connection import Connection
    from escrowmq.wire.amqp010.ports import Content, P, Reply, SessionPart, SessionPort
    from escrowmq.wire.amqp010.runs import TransferRuns
    from escrowmq.wire.outbox import Piece

DETACHED_BYTES: Final = 16_384
"""The estimated memory of a detached session, apart from what it remembers and what its parts hold."""
_BEHIND: Final = frozenset((SessionPhase.RESUMING, SessionPhase.REPLAYING))


class Session:
    """One session, on one channel of a connection (`ports.SessionPort`)."""

    def __init__(self, connection: Connection, channel: int, name: bytes) -> None:
        self.name = name
        self.broker = connection.broker
        self.host = connection.host
        self.limits = connection.limits
        self.vhost = connection.vhost
        self.traffic = connection.traffic
        self.user = connection.user
        self.flow = connection.flow
        self.state = SessionPhase.ATTACHED
        self.owner = SessionOwner()
        self._place(connection, channel)
        self.timeout = 0
        """How many seconds the session is kept when it is detached."""
        self.sent: SentCommands | None = None  # if it has a timeout
        self.unfinished = 0
        """The pieces of work that are carried on without a connection."""
        self._deadline: Deadline | None = None
        self.branch: TransactionBranch | None = None
        self.ending = False
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

    def _place(self, connection: Connection, channel: int) -> None:
        """Be on a channel of a connection. `flow` follows when deliveries may follow."""
        self.connection: Connection | Away = connection
        self.channel = channel
        self.lane = channel + 1
        self.frame_max = connection.frame_max
        self.door = connection.door
        self.owner.connection = connection.identity
        self.owner.label = self.label

    @property
    def label(self) -> str:
        """The connection and the channel, for logs."""
        return f"{self.connection.label}, channel {self.channel}"

    @property
    def origin(self) -> ReceiverOrigin:
        """See `Receiver.origin`."""
        return ReceiverOrigin(str(self.connection.peer), self.channel, self.user)

    @property
    def parts(self) -> list[SessionPart]:
        """The parts that were made."""
        return list(self._parts.values())

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
        if self.ending:
            return number
        payload = encode_command(command)
        if self.sent is not None:
            self._remember(number, payload, after)
        if self.state is SessionPhase.ATTACHED:
            segments: list[Segment] = [(COMMAND, payload)]
            if content is not None:
                segments += ((HEADER, content.header), (BODY, content.body))
            self._put(assembly(self.channel, segments, self.frame_max), after)
        return number

    def _remember(self, number: int, payload: bytes, after: int) -> None:
        """Remember a command for a client that loses its connection. If it is too much, the session is not kept."""
        sent = self.sent
        assert sent is not None
        before = sent.bytes // STEP
        sent.add(number, payload, after)
        if sent.full and self.state is SessionPhase.ATTACHED:
            self.timeout, self.sent = 0, None
            self.send_control(SessionTimeout(0))
        if sent.bytes // STEP != before:
            self.count_held()

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
        attached = self.state is SessionPhase.ATTACHED and not self.ending
        if type(result) is XaResult and result.status is not None and attached:
            self.next_id += 1
            self.connection.put(self.lane, result_frame(self.channel, number, result.status), after)
        else:
            self.send(ExecutionResult(number, result), after=after)

    def send_completed(self, ranges: Ranges, after: int, *, urgent: bool = True) -> None:
        """Send the completion of commands when the log is synced up to `after`. See `Host.await_sync` for `urgent`."""
        channel = self.channel
        if len(ranges) == 1:
            frame = completed_frame(channel, *ranges[0])
        else:
            frame = control_frame(channel, SessionCompleted(ranges))
        self.connection.put_completion(channel, frame, after, urgent=urgent)

    def send_end(self, control: Control) -> None:
        """Send a control that ends the session, behind the completions that wait."""
        self.connection.rejoin(self.channel)
        self.send_control(control)

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
        if self.sent is not None:
            held += self.sent.bytes
        if self.state is SessionPhase.DETACHED:
            held += DETACHED_BYTES
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
        if not self.ending:
            apply_control(self, control)

    def refuse_new(self, what: str) -> None:
        """End a session that was kept, because its client does not know of it (`session.expected`). The numbers of
        such a client mean other commands, so they must not be compared with those that were received.
        """
        text = f"{what} came before session.expected: the session has state, but the client attaches it as a new one"
        self.end(ErrorCode.ILLEGAL_STATE, text)

    @property
    def gaps(self) -> int:
        """In how many places the client has completed commands, but not those before."""
        return len(self._completed)

    def note_completed(self, first: int, last: int) -> None:
        """Note that the client has completed commands, or that they are not sent again."""
        for each in self._completed.add(first, last):
            if self.sent is not None:
                self.sent.drop(*each)
            for part in list(self._parts.values()):
                part.completed(*each)

    # -- being kept

    @property
    def may_be_kept(self) -> bool:
        """Whether the session outlives its connection: it has a timeout, no part that must end, and there is room."""
        return (
            self.timeout > 0
            and not self.ending
            and self.sent is not None
            and not self.sent.full
            and all(part.lasting for part in self._parts.values())
            and self.host.common(SessionNames).may_keep(self.user)
            and not self.broker.holdings.excess(self.user, self.vhost.name, DETACHED_BYTES)
        )

    def keep(self) -> None:
        """Be without a connection, for the time that was granted. Nothing is delivered meanwhile."""
        self.assembly = None
        self.connection = away = Away(self.connection)
        self.flow = away.flow
        self.state = SessionPhase.DETACHED
        self.host.common(SessionNames).kept(self.user)
        self.count_held()
        engine = self.broker.engine
        self._deadline = engine.deadlines.set(engine.now + self.timeout * 1000, self.expire)

    def expire(self) -> None:
        """End a session that is detached."""
        self.leave()
        self.broker.engine.left_over.begin(self.releasing())

    def resume(self, connection: Connection, channel: int) -> None:
        """Be attached again. The client says from where on the broker's commands are sent again
        (`session.expected`); until then none is.
        """
        self._kept_no_more()
        self._place(connection, channel)
        self.limits, self.traffic = connection.limits, connection.traffic
        self.state = SessionPhase.RESUMING
        self.execution.resume()
        self.count_held()
        for part in self._parts.values():
            part.attached()
        work = self._resuming(connection)
        if self.unfinished:
            self.await_rest(work)
        else:
            deque(work, 0)

    def _resuming(self, connection: Connection) -> Iterator[bool | None]:
        """Answer the client when the commands that it has sent before are executed. Nothing is read until then."""
        while self.unfinished and self.connection is connection:
            yield WAIT
        if self.ending or self.connection is not connection:
            return
        self.send_control(SessionAttached(self.name))
        self.send_control(SessionFlush(expected=True, confirmed=True, completed=True))
        self.execution.note_settled()
        if self.execution.completed:
            self.send_completed(wire_ranges(self.execution.completed), self.execution.latest)
        deque(self.dropping_forbidden(), 0)

    def caught_up(self) -> None:
        """Everything that the client has not got was sent again: deliver and send as before."""
        assert not isinstance(self.connection, Away)
        self.state = SessionPhase.ATTACHED
        self.flow = self.connection.flow
        for part in self._parts.values():
            part.caught_up()

    def _kept_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            self.host.common(SessionNames).kept_no_more(self.user)

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
        if self.state in _BEHIND:
            self.state = SessionPhase.ATTACHED
            self.send_control(SessionCommandPoint(self.next_id & MASK, 0))
        self.connection.rejoin(self.channel)
        self.send(raised, after=after)
        self.send_end(SessionDetach(self.name))
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
        self.send_end(SessionDetached(self.name, fault.code))
        self.leave()
        self.connection.sessions.pop(self.channel, None)
        self.connection.leave(self.releasing())

    def leave(self) -> None:
        """Send nothing any more, and give no deliveries to the parts, which are about to be released."""
        self.ending = True
        self.assembly = None
        self._flushing.clear()
        self._kept_no_more()
        self.host.common(SessionNames).remove(self.user, self.vhost.name, self.name, self)
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
        yield from self.broker.directory.ending(self.owner)
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
