"""The joints between a session and the classes of commands: what a handler gets, and what it returns.

A handler is a function of the session, the command, and the content of the command if it has one. `handlers.py` puts
the tables of all classes together. A handler raises BrokerError for a refusal, which ends the session with an execution
exception; nothing that a peer sends raises anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from escrowmq.core.access.door import Door
    from escrowmq.core.branches.branch import TransactionBranch
    from escrowmq.core.broker import Broker
    from escrowmq.core.conditions import BrokerError
    from escrowmq.core.counters import Traffic
    from escrowmq.core.ports import ReceiverOrigin
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.vhost import VirtualHost
    from escrowmq.wire.amqp010.codec.spec import ErrorCode
    from escrowmq.wire.amqp010.codec.structs import Command, Struct
    from escrowmq.wire.amqp010.exclusive import SessionOwner
    from escrowmq.wire.amqp010.runs import TransferRuns
    from escrowmq.wire.amqp010.states import SessionPhase
    from escrowmq.wire.endpoint import EndpointLimits, Host
    from escrowmq.wire.flow import OutputFlow
    from escrowmq.wire.outbox import Piece


class Content(NamedTuple):
    """The header segment and the body segment of a command. What is absent is empty.

    `decode_header` (`codec/commands.py`) reads the header. It is left undecoded here, since messages that look alike
    have equal headers.
    """

    header: bytes
    body: bytes


class Reply(NamedTuple):
    """The completion of a command. It, and the result before it, is sent when the log is synced up to `after`."""

    result: Struct | None = None
    after: int = 0


SETTLED: Final = Reply()
"""The completion of a command that has settled deliveries: it is sent when the settlements of its turn are synced.
(They are recorded together, at the end of the turn.)
"""


class Later(Enum):
    """The handler answers in a later turn."""

    LATER = "later"


LATER: Final = Later.LATER
"""The handler returns this, and calls `SessionPort.answer` or `SessionPort.fail` afterwards."""

Work: TypeAlias = Generator[bool | None, None, "Reply | None"]
"""A command that may take long, as a generator. It yields after each bounded piece, or `core.leftover.WAIT` if it can
only go on in a later turn. Nothing more is read from the connection until it returns. It may raise BrokerError.
"""
Outcome: TypeAlias = "Reply | Work | Later | None"
"""None completes the command at once."""
Handler: TypeAlias = "Callable[[SessionPort, Any, Content | None], Outcome]"

P = TypeVar("P", bound="SessionPart")


class SessionPart(Protocol):
    """The state that one class of commands has in a session. `SessionPort.part` makes it."""

    @property
    def lasting(self) -> bool:
        """Whether it can be kept while the session is detached. If not, the session ends instead."""
        ...

    def attached(self) -> None:
        """The session was detached, and has another connection now. Nothing may be delivered before `caught_up`."""
        ...

    def sent_again(self, first: int, most: int) -> list[tuple[int, list[Piece]]]:
        """Return the first commands, at most `most`, that are to be sent again and have numbers from `first` on, with
        their frames.
        """
        ...

    def caught_up(self) -> None:
        """Everything was sent again: go on with deliveries."""
        ...

    @property
    def counted_bytes(self) -> int:
        """The memory that counts for the user and the virtual host, about, without that of the branch."""
        ...

    def flush(self) -> None:
        """Do the work that was put off (`SessionPort.flush_later`), because another command or the end of the bytes
        that were received follows. It may raise BrokerError, which ends the session.
        """
        ...

    def completed(self, first: int, last: int) -> None:
        """Note that the client has completed the broker's commands from `first` to `last` (`SessionPort.send`). No
        command is named twice.
        """
        ...

    def note_ages(self, now_ms: int) -> None:
        """Note which deliveries are unsettled (`wire.delivery_ages`). Called about once a second."""
        ...

    def dropping_forbidden(self) -> Iterator[None]:
        """The permissions of the user were changed: end what the user may no longer do. Yield after each object that
        was checked. See `Endpoint.permissions_changed`.
        """
        ...

    def leave(self) -> None:
        """The session ends: deliver and send nothing more. `leaving` follows."""
        ...

    def leaving(self) -> Iterator[None]:
        """Detach consumers, and undo or leave transactions. Yield whenever the turn's budget is used up."""
        ...

    def returning(self) -> Iterator[None]:
        """Give back deliveries and memory, after `leaving` of all parts. Yield as `leaving` does."""
        ...

    def row(self) -> dict[str, object]:
        """Return entries for the session's row in lists of channels: `consumers`, `unsettled` and `age_ms` of the one
        that has them. See `channel_rows.py` of AMQP 0-9-1.
        """
        ...


class SessionPort(Protocol):
    """A session, as handlers see it."""

    broker: Broker
    host: Host
    limits: EndpointLimits
    vhost: VirtualHost[Queue]
    door: Door
    """Checks every operation of the user in the virtual host."""
    owner: SessionOwner
    """The session as the owner of exclusive queues, which are deleted when it ends."""
    traffic: Traffic
    flow: OutputFlow
    """The bounds of the connection's unsent output."""
    channel: int
    frame_max: int
    """The largest frame that the client takes."""
    branch: TransactionBranch | None
    """The open transaction, or the branch with which the session is associated. It is set by `tx.py` and `dtx.py`."""
    state: SessionPhase
    runs: TransferRuns | None
    """Reads transfers that look alike by slices. It is made with the first one."""
    ending: bool
    """Whether the session has ended or is about to. Nothing that it sends is passed on any more."""

    @property
    def user(self) -> str: ...

    @property
    def label(self) -> str:
        """The connection and the channel, for logs."""
        ...

    @property
    def origin(self) -> ReceiverOrigin:
        """Where the session is, for lists."""
        ...

    @property
    def next_id(self) -> int:
        """The number of the next command that is sent. It counts without end; the wire has its last 32 bits."""
        ...

    def part(self, kind: Callable[[SessionPort], P]) -> P:
        """Return the session's one object of the class `kind`. It is made as `kind(session)` at the first call."""
        ...

    def send(self, command: Command, content: Content | None = None, after: int = 0) -> int:
        """Send a command when the log is synced up to `after`. Return its number."""
        ...

    def send_frames(self, pieces: list[Piece], count: int) -> int:
        """Send the frames of `count` commands. Return the number of the first one."""
        ...

    def answer(self, number: int, reply: Reply | None) -> None:
        """Complete the command with this number, whose handler returned `LATER`."""
        ...

    def fail(self, number: int, error: BrokerError) -> None:
        """End the session because the command with this number, whose handler returned `LATER`, was refused."""
        ...

    def report(self, code: ErrorCode, text: str) -> None:
        """Log something that went wrong, and that the answer cannot express."""
        ...

    def refuse(self, error: BrokerError, number: int | None = None, code: int = 0) -> None:
        """End the session because the command with this number was refused. `code` is `Command.CODE`."""
        ...

    def end(self, code: ErrorCode, text: str) -> None:
        """End the session with an execution exception that no command has caused."""
        ...

    @property
    def current(self) -> int:
        """The number of the command that is executed. Handlers that return `LATER` keep it for `answer`."""
        ...

    def answer_run(self, first: int, last: int, after: int = 0) -> None:
        """Complete consecutive commands whose handlers returned `LATER`."""
        ...

    def flush_later(self, part: SessionPart) -> None:
        """Call `SessionPart.flush` before the next command that is not a message.transfer, and at the latest when the
        bytes that were received are read.
        """
        ...

    def flush_parts(self) -> None:
        """Let the parts do the work that they have put off. Faults end the session."""
        ...

    def take_numbers(self, count: int) -> int:
        """Give the next numbers to commands that were read together, whose completion `answer_run` notes. Return the
        first one.
        """
        ...

    def await_rest(self, rest: Iterator[bool | None]) -> None:
        """Read nothing more from the connection until `rest`, which is work of this session, has come to its end."""
        ...

    def count_held(self) -> None:
        """Count what the parts hold (`SessionPart.counted_bytes`) for the user and the virtual host."""
        ...

    def check_held(self, more: int, what: str) -> None:
        """Raises LIMIT_EXCEEDED if the user or the virtual host may not hold `more` bytes for `what`."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether the user and the virtual host may hold more. It is false only if this session holds something."""
        ...
