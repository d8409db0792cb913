"""The commands of a client: their numbers, their execution, and their completion (class `execution`).

A command is complete when its handler says so. The completion is reported at the end of the turn, when the log is
synced as far as the command needs. All commands of a turn are reported together, so there is no need to ask for it by
the `sync` flag, by `execution.sync` or by `session.flush`; but these hasten the sync for settlements. Commands whose
handlers answer later are pending, and an `execution.sync` behind them is pending, too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.budget import METHOD
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp010.codec.commands import decode_command
from escrowmq.wire.amqp010.codec.errors import CodecError, UnknownOperation
from escrowmq.wire.amqp010.codec.spec import (
    DetachCode,
    ExchangeBind,
    ExchangeDeclare,
    ExecutionException,
    ExecutionResult,
    ExecutionSync,
    MessageSubscribe,
    MessageTransfer,
    QueueDeclare,
)
from escrowmq.wire.amqp010.faults import ConnectionFault, SessionFault
from escrowmq.wire.amqp010.handlers import HANDLERS
from escrowmq.wire.amqp010.ports import LATER, SETTLED, Content, Later, Outcome, Reply, Work
from escrowmq.wire.amqp010.sequence import MASK, Numbers, counted, unwrapped, wire_ranges
from escrowmq.wire.amqp010.states import SessionPhase

if TYPE_CHECKING:
    from escrowmq.wire.amqp010.codec.structs import Command
    from escrowmq.wire.amqp010.codec.types import Ranges
    from escrowmq.wire.amqp010.session import Session

MOST_PENDING: Final = 10_000
"""The most commands of a session that may be pending."""
_DECODED: Final = 32  # bytes of a command that cost one unit of the turn's work
_LASTING: Final = frozenset((ExchangeDeclare, ExchangeBind, QueueDeclare, MessageSubscribe))
"""Commands whose arguments stay in memory."""


class Execution:
    """The commands that a session receives."""

    __slots__ = (
        "_after",
        "_asked",
        "_early",
        "_first",
        "_known",
        "_pending",
        "_reported",
        "_session",
        "_settles",
        "_transfer",
        "current",
        "latest",
        "next",
    )

    def __init__(self, session: Session) -> None:
        self._session = session
        self._first = 0  # the number with which the session began
        self.next = 0
        """The number of the next command."""
        self._known = 0  # commands below this number were received; if they come again, they are not executed again
        self.current = -1
        """The number of the command that is executed."""
        # Commands leave at the front, where a dict would search past all that have left before.
        self._pending: OrderedDict[int, Command] = OrderedDict()
        self._reported = Numbers()  # to be reported at the end of the turn
        self._after = 0
        self._asked = False  # whether the client waits for completions: it has sent the flag `sync`, or execution.sync
        self._settles = False  # whether a command to be reported has settled deliveries
        # Completions that were reported while an earlier command was pending. They are reported once more with the next
        # ones, because Qpid JMS ignores a completion unless all commands before it are complete.
        self._early = Numbers()
        self.latest = 0
        """How far the log has to be synced so that all completions may be reported."""
        self._transfer: tuple[bytes, MessageTransfer] | None = None  # the last one; most of them are equal

    def receive(self, payload: bytes, content: Content | None) -> Work | None:
        """Execute a command. Return the rest of the work if there is much.

        Raises:     ConnectionFault: the command is malformed. SessionFault: the client has raised an exception.
        """
        last = self._transfer
        if last is not None and content is not None and payload == last[0]:
            command: Command = last[1]
        else:
            decoded = self._decode(payload)
            if decoded is None:
                return None
            command = decoded
            if type(command) is MessageTransfer:
                self._transfer = payload, command
        if self._session.state is SessionPhase.RESUMING:
            self._session.refuse_new(command.NAME)
            return None
        number = self.current = self.next
        self.next += 1
        if number < self._known:
            if number not in self._pending:
                self._after = max(self._after, self.latest)
                self.complete(number, None)
            return None
        self._known = number + 1
        try:
            outcome = self._execute(command, content, len(payload))
        except BrokerError as error:
            self._session.refuse(error, number, command.CODE)
            return None
        if outcome is None or type(outcome) is Reply:
            self.complete(number, outcome)
        elif outcome is LATER:
            if number == self.current:  # else the handler has answered already
                self._pending[number] = command
        elif not isinstance(outcome, (Reply, Later)):
            self._pending[number] = command
            return self._working(number, command, outcome)
        return None

    @property
    def begun(self) -> bool:
        """Whether any command has come."""
        return self._known > self._first

    def resume(self) -> None:
        """Expect the commands that have not come, because the session is attached again."""
        self.next = self._known

    @property
    def fresh(self) -> bool:
        """Whether the next command has not been received before."""
        return self.next >= self._known

    def take_numbers(self, count: int) -> int:
        """Give the next numbers to commands that are executed together. Return the first one."""
        first = self.next
        self.next = self._known = first + count
        return first

    def _decode(self, payload: bytes) -> Command | None:
        """Return a command. One that is unknown ends the session. Raises ConnectionFault."""
        try:
            command, sync = decode_command(payload)
        except UnknownOperation as error:
            refusal = BrokerError(Condition.NOT_IMPLEMENTED, str(error))
            self._session.refuse(refusal, self.next, error.class_code << 8 | error.code)
            return None
        except CodecError as error:
            raise ConnectionFault(str(error)) from None
        if sync or type(command) is ExecutionSync:
            self._asked = True
        return command

    def _execute(self, command: Command, content: Content | None, size: int) -> Outcome:
        """Raises BrokerError."""
        session, kind = self._session, type(command)
        if kind is not MessageTransfer:
            session.flush_parts()
            if session.ending:
                return LATER
            session.broker.engine.requests.left -= METHOD + size // _DECODED
            if content is not None:
                raise BrokerError(Condition.COMMAND_INVALID, f"{command.NAME} has no content")
            if kind in _LASTING and size > session.limits.arguments:
                raise BrokerError(
                    Condition.LIMIT_EXCEEDED,
                    f"{command.NAME} of {size} bytes, with its arguments, is larger than {session.limits.arguments} "
                    "bytes, the configured limit",
                )
        if len(self._pending) >= MOST_PENDING:
            raise BrokerError(Condition.LIMIT_EXCEEDED, f"{MOST_PENDING} commands of the session are not complete")
        own = OWN.get(kind)
        if own is not None:
            return own(session, command, content)
        handler = HANDLERS.get(kind)
        if handler is None:
            raise BrokerError(Condition.NOT_IMPLEMENTED, f"{command.NAME} is not for a server")
        return handler(session, command, content)

    def _working(self, number: int, command: Command, work: Work) -> Work:
        """Complete a command when its work is done."""
        try:
            reply = yield from work
        except BrokerError as error:
            self._session.refuse(error, number, command.CODE)
            return None
        if not self._session.ending:
            self.answer(number, reply)
        return None

    # -- completion

    @property
    def pending(self) -> bool:
        """Whether a handler has still to answer."""
        return bool(self._pending)

    @property
    def pending_count(self) -> int:
        """The number of commands that are not complete."""
        return len(self._pending)

    def complete(self, number: int, reply: Reply | None) -> None:
        """Complete a command. Its result is sent first, and both when the log is synced as far as the reply says."""
        session = self._session
        if reply is SETTLED:
            self._settles = True
        elif reply is not None:
            after = session.broker.log.proof_lsn(reply.after)
            self._after = max(self._after, after)
            self.latest = max(self.latest, after)
            if reply.result is not None:
                session.send_result(number & MASK, reply.result, after)
        self._reported.add(number, number)
        session.connection.answer_later(session)

    def answer(self, number: int, reply: Reply | None) -> None:
        """Complete a command whose handler returned `LATER`, or is about to."""
        if number == self.current:
            self.current = -1
        self._pending.pop(number, None)
        self.complete(number, reply)
        self._complete_syncs()

    def answer_run(self, first: int, last: int, after: int) -> None:
        """Complete consecutive commands whose handlers returned `LATER`."""
        pending = self._pending
        for number in range(first, last + 1):
            pending.pop(number, None)
        if first <= self.current <= last:
            self.current = -1
        self._after = max(self._after, after)
        self.latest = max(self.latest, after)
        self._reported.add(first, last)
        self._session.connection.answer_later(self._session)
        self._complete_syncs()

    def _complete_syncs(self) -> None:
        while self._pending:
            number, command = next(iter(self._pending.items()))
            if type(command) is not ExecutionSync:
                return
            del self._pending[number]
            self.complete(number, None)

    def code_of(self, number: int) -> int:
        """Return the code of a pending command; 0 if it is not pending."""
        command = self._pending.get(number)
        return 0 if command is None else command.CODE

    def report(self) -> None:
        """Send the completions that are due. Those of settlements hasten no sync of the log that nobody waits for."""
        if self._reported:
            urgent = self._asked or self._after > 0
            if self._settles:
                self.note_settled()
            after, self._after = self._after, 0
            self._asked = False
            ranges = self._reported.take()
            if self._early:
                after = max(after, self.latest)
                for each in (*self._early.take(), *ranges):
                    self._reported.add(*each)
                ranges = self._reported.take()
            if self._pending:
                first = next(iter(self._pending))
                for begin, end in ranges:
                    if end > first:
                        self._early.add(max(begin, first + 1), end)
            self._session.send_completed(wire_ranges(ranges), after, urgent=urgent)

    def note_settled(self) -> None:
        """Let the completions wait for the settlements of the commands that they name."""
        if self._settles:
            self._settles = False
            broker = self._session.broker
            broker.engine.settlements.flush()  # at the end of a turn, the engine has done this already
            self._after = max(self._after, broker.log.end_lsn)
            self.latest = max(self.latest, self._after)

    # -- controls

    def begin_at(self, number: int) -> None:
        """Note the number of the next command (`session.command-point`). Those below it do not come any more. Raises
        SessionFault for a number below that of the first command, which was given to none.
        """
        if not self.begun:
            self._first = self.next = self._known = number
            return
        point = unwrapped(number, self.next)
        if point < self._first:
            raise SessionFault(DetachCode.UNKNOWN_IDS, f"the first command was {self._first & MASK}, not {number}")
        self._go_to(point)

    def skip(self, ranges: Ranges) -> None:
        """Note that these commands do not come (`session.gap`). Raises INVALID_ARGUMENT."""
        for first, last in counted(ranges, self.next):
            if first <= self.next <= last:
                self._go_to(last + 1)

    def _go_to(self, point: int) -> None:
        if point > self.next:
            self._reported.add(self.next, point - 1)
            self._known = max(self._known, point)
            self._session.connection.answer_later(self._session)
        self.next = point

    @property
    def received(self) -> list[tuple[int, int]]:
        """The commands that were received."""
        return [(self._first, self._known - 1)] if self.begun else []

    @property
    def completed(self) -> list[tuple[int, int]]:
        """The commands that are complete."""
        found, at = [], self._first
        for number in self._pending:
            if number > at:
                found.append((at, number - 1))
            at = number + 1
        if self._known > at:
            found.append((at, self._known - 1))
        return found


def _sync(session: Session, command: ExecutionSync, content: Content | None) -> Later | None:
    """Complete when all commands before it are complete."""
    return LATER if session.execution.pending else None


def _result(session: Session, command: ExecutionResult, content: Content | None) -> None:
    """Ignore a result: the broker sends no command that has one."""


def _exception(session: Session, command: ExecutionException, content: Content | None) -> None:
    """End the session, because the client could not execute a command. Raises SessionFault."""
    text = f"the client raised {command.error_code}: {(command.description or '')[:200]}"
    raise SessionFault(DetachCode.NORMAL, text)


OWN: Final[dict[type[Command], Callable[[Session, Any, Content | None], Later | None]]] = {
    ExecutionSync: _sync,
    ExecutionResult: _result,
    ExecutionException: _exception,
}
"""The handlers of the class `execution`."""
