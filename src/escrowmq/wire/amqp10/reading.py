"""Reading of a connection: from bytes to frames and performatives."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from escrowmq.core.budget import FRAME, METHOD
from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp10.codec.encoding import skip
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.frames import AMQP, SASL
from escrowmq.wire.amqp10.codec.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Transfer,
    decode_performative,
)
from escrowmq.wire.amqp10.errors import (
    DECODE_ERROR,
    FRAMING_ERROR,
    LIMIT_EXCEEDED,
    NOT_ALLOWED,
    AmqpFault,
    Scope,
    connection_fault,
    refusal,
)
from escrowmq.wire.amqp10.handshake import ConnectionState, open_connection, read_header, read_sasl
from escrowmq.wire.amqp10.operations import admitted
from escrowmq.wire.amqp10.session import Session
from escrowmq.wire.amqp10.transfers import Extent, Transfers
from escrowmq.wire.unread import Unread

if TYPE_CHECKING:
    from escrowmq.core.termini.loan import Loan
    from escrowmq.wire.amqp10.connection import Connection
    from escrowmq.wire.amqp10.link import Link
    from escrowmq.wire.amqp10.transactions import LocalTransaction

_HEAD: Final = struct.Struct(">IBBH")  # size, offset of the body in words, type, channel
_LONGEST_BEFORE_OPEN: Final = 16_384
"""The longest frame, and the most bytes that wait, before the client is logged in."""
_HEADERS: Final = frozenset((ConnectionState.HEADER, ConnectionState.AUTHENTICATED))
_SASL: Final = frozenset((ConnectionState.SASL, ConnectionState.CHALLENGED))
_CLOSED: Final = frozenset((ConnectionState.CLOSED,))
_WAITING: Final = frozenset((ConnectionState.AUTHENTICATING, ConnectionState.CLOSED))
_State = ConnectionState

Handler: TypeAlias = Callable[[Session, Any], Iterator[None] | None]
_DECODED: Final = 32  # bytes of a performative that cost one unit of the turn's work
_ATTACH: Final = (b"\x00\x53\x12", b"\x00\x80\0\0\0\0\0\0\0\x12", b"\x00\xa3\x10amqp:attach:list")
_SESSION_HANDLERS: Final[dict[type, Handler]] = admitted(
    {
        Attach: Session.attach,
        Flow: Session.flow,
        Disposition: Session.disposition,
        Detach: Session.detach,
        End: Session.end,
    }
)


class Reader:
    """Reads one connection, and hands faults to the link, the session or the connection that they cost."""

    __slots__ = ("_connection", "_requests", "_task", "_transfers", "_unread")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._unread = Unread()
        self._requests = connection.broker.engine.requests
        self._transfers = Transfers(connection)
        self._task: tuple[Session, Iterator[bool | None]] | None = None  # nothing is read until it is finished

    def receive(self, data: bytes) -> None:
        """Process bytes from the socket. Empty `data` means to continue with the bytes that were held back."""
        connection, unread = self._connection, self._unread
        if connection.state in _CLOSED:
            return
        self._requests.admit()
        if self._task is not None and not self._go_on():
            unread.add(data)
            return
        self.publish_now()  # a message that had to wait for the one before it
        if self._task is not None:
            unread.add(data)
            connection.carry_on()
            return
        if connection.flow.is_crowded and connection.flow.crowded():
            unread.add(data)
            return
        if connection.state is _State.AUTHENTICATING:
            self._wait(data)
            return
        if unread:
            unread.add(data, unread.need)
            if data and not unread.ready:
                return
            data = unread.take()
        try:
            at = self._read(data)
        except AmqpFault as fault:
            self.publish_now()
            connection.fail(fault)
            return
        self.publish_now()
        self._keep(data, at)

    def _keep(self, data: bytes, at: int) -> None:
        """Keep the bytes from `at` on, which could not be read yet."""
        connection, unread = self._connection, self._unread
        if connection.state in _CLOSED:
            return
        if at < len(data):
            need = _HEAD.unpack_from(data, at)[0] if len(data) - at >= _HEAD.size else 0
            unread.add(data[at:] if at else data, need if connection.state not in _HEADERS else 0)
        if (
            connection.state is not _State.CLOSED and (self._task is not None or self._requests.left <= 0) and unread
        ) or self._task is not None:
            connection.carry_on()

    @property
    def unread(self) -> int:
        """The number of bytes that were received and wait to be read."""
        return self._unread.size

    def resume(self) -> None:
        """Continue with the bytes that were held back."""
        if self._unread:
            self.receive(b"")

    def publish_now(self) -> None:
        """Publish the messages that were read, since nothing may overtake them. While a task is not finished, they
        wait: they follow those that it publishes (ORD-1).
        """
        if self._task is None:
            self._transfers.publish_now()
            self._await_rest()

    def _await_rest(self) -> None:
        """Read nothing more until the last publish is finished."""
        if self._transfers.rest is not None:
            self._task, self._transfers.rest = self._transfers.rest, None

    def end(self) -> None:
        """Publish the messages that were read, and work no more: the connection ends."""
        self.publish_now()
        self._transfers.drop()
        self._task = None

    def forget_parts(self, link: Link) -> None:
        """Forget the incomplete delivery of a link that is gone."""
        self._transfers.forget(link)

    def interrupt_parts(self, link: Link, loan: Loan) -> None:
        """Leave the incomplete delivery of a link that is gone with its terminus."""
        self._transfers.interrupt(link, loan)

    def expect(self, transaction: LocalTransaction) -> None:
        """Prepare for posts in a new transaction."""
        self._transfers.expect(transaction)

    def forget_transaction(self, transaction: LocalTransaction) -> None:
        """Forget a transaction that has ended."""
        self._transfers.forget_transaction(transaction)

    def is_incomplete(self, transaction: LocalTransaction) -> bool:
        """Return whether further transfers of a post in `transaction` are to come."""
        return self._transfers.is_incomplete(transaction)

    def _wait(self, data: bytes) -> None:
        """Keep the bytes that arrive while the login is checked."""
        if len(data) > _LONGEST_BEFORE_OPEN:
            self._connection.fail(connection_fault(LIMIT_EXCEEDED, "too many bytes before the login was answered"))
        else:
            self._unread.add(data)

    def _read(self, data: bytes) -> int:
        """Read from the start of `data`. Return where the next reading begins. Raises AmqpFault."""
        connection, requests, transfers = self._connection, self._requests, self._transfers
        at, end = 0, len(data)
        unpack = _HEAD.unpack_from
        while end - at >= 8:
            if connection.state in _HEADERS:
                read_header(connection, data[at : at + 8])
                at += 8
            elif connection.state in _WAITING or (requests.left <= 0 and at) or self._task is not None:
                break
            else:
                size, offset, kind, channel = unpack(data, at)
                most = connection.limits.frame_max if connection.state is _State.RUNNING else _LONGEST_BEFORE_OPEN
                if not 8 <= size <= most or not 2 <= offset <= size >> 2:
                    raise connection_fault(FRAMING_ERROR, f"frame of {size} bytes with its body at {4 * offset}")
                if size > end - at:
                    break
                if kind == AMQP and connection.state is _State.RUNNING:
                    behind = transfers.read(data, at, end, channel)
                    if behind != at:
                        at = behind
                        self._await_rest()
                        continue
                if transfers.wide:
                    self.publish_now()
                    if self._busy:
                        break  # the frame may have to wait for the messages before it
                self._frame(kind, channel, data, at + 4 * offset, at + size)
                self._await_rest()
                at += size
                if connection.flow.crowded():
                    break
        return at

    def _frame(self, kind: int, channel: int, data: bytes, at: int, end: int) -> None:
        """Handle one frame, whose body lies between `at` and `end`. Raises AmqpFault."""
        connection = self._connection
        in_sasl = connection.state in _SASL
        if kind != (SASL if in_sasl else AMQP):
            raise connection_fault(FRAMING_ERROR, f"unexpected frame of type {kind}")
        if at == end and not in_sasl:
            self._requests.left -= FRAME
            return  # an empty frame shows that the client is alive
        try:
            if end - at > connection.limits.arguments:
                self._check_size(data, at, end)
            performative, payload = decode_performative(data, at, end)
        except CodecError as error:
            raise connection_fault(DECODE_ERROR, str(error)) from None
        if connection.state is _State.CLOSING:
            if isinstance(performative, Close):
                connection.end()
        elif in_sasl:
            read_sasl(connection, performative)
        elif connection.state is _State.OPENING:
            if not isinstance(performative, Open):
                raise connection_fault(NOT_ALLOWED, "expected open")
            open_connection(connection, performative)
        elif isinstance(performative, Close):
            self.publish_now()
            connection.close()
        else:
            self._requests.left -= METHOD + (payload - at) // _DECODED
            self._session_frame(channel, performative, data, (at, payload, end))

    def _check_size(self, data: bytes, at: int, end: int) -> None:
        """Check the size of a performative, which is decoded at once. Only the map of unsettled deliveries in an attach
        may be large. Raises AmqpFault, CodecError.
        """
        size = skip(data, at, end) - at
        most = self._connection.limits.arguments
        if size > most and not data.startswith(_ATTACH, at):
            raise connection_fault(LIMIT_EXCEEDED, f"a performative has {size} bytes; at most {most} are allowed")

    def _session_frame(self, channel: int, performative: object, data: bytes, extent: Extent) -> None:
        connection = self._connection
        session = connection.sessions.get(channel)
        if isinstance(performative, Begin):
            if session is not None:
                raise connection_fault(NOT_ALLOWED, f"begin on channel {channel}, which is in use")
            Session.begin(connection, channel, performative)
        elif session is None:
            raise connection_fault(NOT_ALLOWED, f"performative on channel {channel}, which has no session")
        elif isinstance(performative, Transfer):
            self._attempt(
                session,
                performative.handle,
                lambda: self._begin(session, self._transfers.part(session, performative, data, extent)),
            )
        else:
            self.publish_now()
            handler = _SESSION_HANDLERS.get(type(performative))
            if handler is None:
                raise connection_fault(NOT_ALLOWED, f"unexpected {type(performative).__name__.lower()}")
            handle = getattr(performative, "handle", None)
            self._attempt(session, handle, lambda: self._handle(session, handler, performative))

    def _handle(self, session: Session, handler: Handler, performative: object) -> None:
        if not session.ending or isinstance(performative, End):
            self._begin(session, handler(session, performative))

    def _begin(self, session: Session, task: Iterator[None] | None) -> None:
        """Begin a task, which continues in later turns until it is finished."""
        if task is not None and self._works(task):
            self._task = session, task

    def _works(self, task: Iterator[bool | None]) -> bool:
        """Do pieces of a task until the turn's work is done. Return False if the task is finished."""
        requests = self._requests
        return any(waits or requests.left <= 0 for waits in task)

    def _go_on(self) -> bool:
        """Continue with the task. Return True if it is finished, so that reading continues."""
        assert self._task is not None
        (session, task), self._task = self._task, None

        def work() -> None:
            if not session.ending and self._works(task):
                self._task = session, task

        try:
            self._attempt(session, None, work)
        except AmqpFault as fault:
            self._connection.fail(fault)
        if self._busy:
            self._connection.carry_on()
        return not self._busy

    @property
    def _busy(self) -> bool:
        """Whether a task is not finished."""
        return self._task is not None

    def _attempt(self, session: Session, handle: int | None, action: Callable[[], None]) -> None:
        """Do `action`; let its fault cost the link with this handle, or the session. Raises AmqpFault for the rest."""
        try:
            action()
        except BrokerError as error:
            self._lose(session, handle, refusal(error))
        except AmqpFault as fault:
            self._lose(session, handle, fault)

    def _lose(self, session: Session, handle: int | None, fault: AmqpFault) -> None:
        self.publish_now()  # the messages before the fault are not concerned
        link = session.links.get(handle) if handle is not None else None
        if fault.scope is Scope.CONNECTION:
            raise fault
        if fault.scope is Scope.LINK and link is not None:
            link.fail(fault)
        else:
            session.fail(fault)
