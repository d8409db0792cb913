"""Reading of a connection: from bytes to frames, controls and commands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

from escrowmq.core.budget import FRAME, METHOD
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp010 import handshake
from escrowmq.wire.amqp010.attaching import attach
from escrowmq.wire.amqp010.codec.commands import decode_control
from escrowmq.wire.amqp010.codec.errors import CodecError
from escrowmq.wire.amqp010.codec.frames import (
    BODY,
    COMMAND,
    CONTROL,
    FIRST_SEGMENT,
    FRAME_HEAD,
    HEAD_SIZE,
    HEADER,
    PROTOCOL_HEADER,
    VERSION,
    WHOLE,
    Assembly,
)
from escrowmq.wire.amqp010.codec.spec import DetachCode, SessionAttach, SessionDetach, SessionDetached
from escrowmq.wire.amqp010.faults import ConnectionFault, SessionFault
from escrowmq.wire.amqp010.handshake import ConnectionState
from escrowmq.wire.amqp010.ports import Content
from escrowmq.wire.login import LoginFault
from escrowmq.wire.unread import Unread

if TYPE_CHECKING:
    from escrowmq.wire.amqp010.codec.structs import Control
    from escrowmq.wire.amqp010.connection import Connection
    from escrowmq.wire.amqp010.session import Session

_LONGEST_BEFORE_OPEN: Final = 16_384
"""The longest frame, and the most bytes that wait, before the client is logged in."""
LONGEST_COMMAND: Final = 131_072
"""The longest control or command, apart from content. A set of ranges has at most 65,535 octets."""
_CUT: Final = 128 << 10
"""Octets of an incomplete command that count, but are not refused."""
_DECODED: Final = 32  # bytes of a control that cost one unit of the turn's work
_TRANSFER: Final = b"\x04\x01"
_OF_SESSION: Final = 2  # the code of the class session
_BEFORE_OPEN: Final = frozenset(
    (
        ConnectionState.START,
        ConnectionState.SECURE,
        ConnectionState.ACCEPTED,
        ConnectionState.TUNE,
        ConnectionState.OPEN,
    )
)
_State = ConnectionState


class Reader:
    """Reads one connection, and hands faults to the session or the connection that they cost."""

    __slots__ = (
        "_connection",
        "_control_bytes",
        "_controls",
        "_flushing",
        "_grown",
        "_limits",
        "_mixed",
        "_requests",
        "_task",
        "_unread",
    )

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._unread = Unread()
        self._requests = connection.broker.engine.requests
        limits = connection.limits
        self._limits = (LONGEST_COMMAND, LONGEST_COMMAND, limits.header_size, limits.message_size)
        self._controls: dict[int, Assembly] = {}  # incomplete controls by channel
        self._control_bytes = 0  # that they hold
        self._grown: dict[Session, None] = {}  # sessions that got a part of a command in this read
        self._flushing: dict[Session, None] = {}  # sessions that have put work off
        self._mixed = False
        self._task: tuple[Session, Iterator[object]] | None = None  # nothing is read until it is finished

    def receive(self, data: bytes) -> None:
        """Process bytes from the socket. Empty `data` means to continue with the bytes that were held back."""
        connection, unread = self._connection, self._unread
        if connection.state is _State.CLOSED:
            return
        self._requests.admit()
        if self._task is not None and not self._go_on():
            unread.add(data)
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
            self._end_read()
        except ConnectionFault as fault:
            self._end_read()
            connection.fail(fault)
            return
        except LoginFault:
            connection.login_refused()
            return
        self._keep(data, at)

    @property
    def unread(self) -> int:
        """The number of bytes that were received and wait to be read."""
        return self._unread.size

    def resume(self) -> None:
        """Continue with the bytes that were held back."""
        if self._unread:
            self.receive(b"")

    def flush_later(self, session: Session) -> None:
        """Let `session` do the work that it has put off when the bytes are read, or when another one has some."""
        if session not in self._flushing:
            self.flush()
            self._flushing[session] = None

    def await_rest(self, session: Session, rest: Iterator[bool | None]) -> None:
        """Read nothing more until `rest` has come to its end."""
        before: Iterator[object] | tuple[()] = ()
        if self._task is not None:
            self._mixed = self._mixed or self._task[0] is not session
            before = self._task[1]
        else:
            self._mixed = False
        self._task = session, chain(before, rest)

    def end(self) -> None:
        """Work no more: the connection ends."""
        self.flush()
        self._task = None
        self._grown.clear()
        self._controls.clear()

    def can_let_go(self, session: Session) -> bool:
        """Whether the work that is not finished can be divided from that of other sessions."""
        return self._task is None or not self._mixed

    def let_go(self, session: Session) -> Iterator[object] | None:
        """Return the work of `session` that is not finished, and read on without it."""
        self._grown.pop(session, None)
        self._flushing.pop(session, None)
        if self._task is None or self._task[0] is not session:
            return None
        (_, rest), self._task = self._task, None
        self._connection.carry_on()
        return rest

    def _wait(self, data: bytes) -> None:
        """Keep the bytes that arrive while the login is checked."""
        if len(data) + self._unread.size > _LONGEST_BEFORE_OPEN:
            self._connection.fail(ConnectionFault("too many bytes before the login was answered"))
        else:
            self._unread.add(data)

    def _keep(self, data: bytes, at: int) -> None:
        """Keep the bytes from `at` on, which could not be read yet."""
        connection, unread = self._connection, self._unread
        if connection.state is _State.CLOSED:
            return
        if at < len(data):
            need = 0
            if len(data) - at >= HEAD_SIZE and connection.state is not _State.HEADER:
                need = FRAME_HEAD.unpack_from(data, at)[2]
            unread.add(data[at:] if at else data, need)
        if self._task is not None or (unread and self._requests.left <= 0):
            connection.carry_on()

    def _end_read(self) -> None:
        """Do what was put off until the bytes are read, and count the commands that are incomplete."""
        self.flush()
        if self._grown:
            grown, self._grown = self._grown, {}
            for session in grown:
                self._count(session)

    def flush(self) -> None:
        """Let sessions do what they have put off, since nothing may overtake it."""
        while self._flushing:
            session, _ = self._flushing.popitem()
            session.flush_parts()

    def _count(self, session: Session) -> None:
        """Count the incomplete command of a session. If a limit is exceeded, end the session.

        One short command of each connection is never refused: reads end anywhere, so every publisher may have one.
        """
        if session.assembly is None or session.ending:
            return
        try:
            session.check_held(0, "a message that is incomplete")
        except BrokerError as error:
            sessions = self._connection.sessions.values()
            others = (one for one in sessions if one.assembly is not None and one is not session)
            if session.assembly.held_bytes > _CUT or next(others, None) is not None:
                session.refuse(error, session.execution.next, 0x0401)
            else:
                session.count_held()

    # -- frames

    def _read(self, data: bytes) -> int:
        """Read from the start of `data`. Return where the next reading begins. Raises ConnectionFault, LoginFault."""
        connection, requests = self._connection, self._requests
        at, end = 0, len(data)
        if connection.state is _State.HEADER:
            if end < len(PROTOCOL_HEADER):
                return 0
            if not data.startswith(PROTOCOL_HEADER):
                connection.refuse_protocol()
                return end
            handshake.begin(connection)
            at = len(PROTOCOL_HEADER)
        unpack, sessions = FRAME_HEAD.unpack_from, connection.sessions
        while end - at >= HEAD_SIZE:
            if (requests.left <= 0 and at) or self._task is not None:
                break
            if connection.state is _State.CLOSED or connection.state is _State.AUTHENTICATING:
                break
            flags, kind, size, track, channel = unpack(data, at)
            most = _LONGEST_BEFORE_OPEN if connection.state in _BEFORE_OPEN else connection.frame_max
            if flags & VERSION or not HEAD_SIZE <= size <= most:
                raise ConnectionFault(f"frame of {size} octets with flags {flags:#04x}, at most {most} were agreed")
            if kind > BODY or track != (kind != CONTROL):
                raise ConnectionFault(f"frame of type {kind} on track {track}")
            behind = at + size
            if behind > end:
                break
            session = sessions.get(channel)
            if self._flushing and not (track and session is not None and self._publishes(session, data, at)):
                self.flush()
                if self._busy:
                    break  # the frame has to wait for the messages before it
            if track == 0:
                self._control_frame(flags, channel, data[at + HEAD_SIZE : behind])
                at = behind
                if connection.flow.crowded():
                    break
                continue
            if session is None or session.ending:
                self._stray(session, channel, flags, kind)
                at = behind
                continue
            if connection.gate.shut and self._publishes(session, data, at) and connection.gate.keeps_back():
                break
            if flags == WHOLE and session.assembly is None and kind == COMMAND:
                self._command(session, data[at + HEAD_SIZE : behind], None)
                at = behind
                if connection.flow.crowded():
                    break
                continue
            if flags == 11 and session.assembly is None and kind == COMMAND:
                if session.runs is not None and session.execution.fresh:
                    past = session.runs.read(data, at, end, connection.frame_max)
                    if past > at:
                        at = past
                        continue
                past = self._message(session, data, at, behind, end)
                if past:
                    at = past
                    continue
            self._part(session, flags, kind, data[at + HEAD_SIZE : behind])
            at = behind
        return at

    def _publishes(self, session: Session, data: bytes, at: int) -> bool:
        """Whether a frame of a command belongs to a message."""
        return session.assembly is not None or data.startswith(_TRANSFER, at + HEAD_SIZE)

    def _message(self, session: Session, data: bytes, at: int, header: int, end: int) -> int:
        """Read a command whose header and body follow in one frame each. Return where the next frame begins; 0 if they
        come in another way.
        """
        channel = session.channel
        if end - header < 2 * HEAD_SIZE:
            return 0
        flags, kind, size, track, same = FRAME_HEAD.unpack_from(data, header)
        body = header + size
        if (flags, kind, track, same) != (3, HEADER, 1, channel) or end - body < HEAD_SIZE:
            return 0
        flags, kind, size, track, same = FRAME_HEAD.unpack_from(data, body)
        behind = body + size
        most = self._connection.frame_max
        if (flags, kind, track, same) != (7, BODY, 1, channel) or behind > end or size < HEAD_SIZE:
            return 0
        _, _, most_header, most_body = self._limits
        if max(size, body - header) > most or not HEAD_SIZE <= body - header <= most_header or size > most_body:
            return 0
        content = Content(data[header + HEAD_SIZE : body], data[body + HEAD_SIZE : behind])
        self._command(session, data[at + HEAD_SIZE : header], content)
        if session.runs is not None:
            session.runs.learn(data[at:header])
        return int(behind)

    def _stray(self, session: Session | None, channel: int, flags: int, kind: int) -> None:
        """Handle a frame of a command on a channel without a session. Those of a session that ends are ignored."""
        self._requests.left -= FRAME
        connection = self._connection
        if connection.state is not _State.RUNNING:
            if connection.state is not _State.CLOSING:
                raise ConnectionFault("a command before the connection was opened")
        elif session is None and flags & FIRST_SEGMENT and kind == COMMAND:
            connection.detached(channel, b"", DetachCode.NOT_ATTACHED)

    def _part(self, session: Session, flags: int, kind: int, payload: bytes) -> None:
        """Take a frame of a command that has several. Raises ConnectionFault."""
        self._requests.left -= FRAME
        taken = session.assembly
        if taken is None:
            taken = session.assembly = Assembly(self._limits)
        try:
            complete = taken.take(flags, kind, payload)
        except CodecError as error:
            raise ConnectionFault(str(error)) from None
        if not complete:
            self._grown[session] = None
            return
        session.assembly = None
        session.count_held()
        segments = taken.segments
        if taken.excess >= 0:
            self._refuse_excess(session, taken)
        else:
            content = None
            if len(segments) > 1:
                content = Content(segments.get(HEADER, b""), segments.get(BODY, b""))
            self._command(session, segments[COMMAND], content)

    def _refuse_excess(self, session: Session, taken: Assembly) -> None:
        what = {COMMAND: "command", HEADER: "header of a message", BODY: "message"}[taken.excess]
        text = f"a {what} is larger than {self._limits[taken.excess]} bytes"
        session.refuse(BrokerError(Condition.LIMIT_EXCEEDED, text), session.execution.next, 0x0401)

    def _command(self, session: Session, payload: bytes, content: Content | None) -> None:
        """Execute a command, or begin it. Raises ConnectionFault."""
        try:
            work = session.execution.receive(payload, content)
        except SessionFault as fault:
            session.lose(fault)
            return
        if work is not None and self._works(work):
            self._task, self._mixed = (session, work), False

    # -- controls

    def _control_frame(self, flags: int, channel: int, payload: bytes) -> None:
        """Take a frame of a control. Raises ConnectionFault, LoginFault."""
        self._requests.left -= METHOD + len(payload) // _DECODED
        if flags != WHOLE or channel in self._controls:
            taken = self._control_on(channel)
            before = taken.held_bytes
            try:
                complete = taken.take(flags, CONTROL, payload)
            except CodecError as error:
                raise ConnectionFault(str(error)) from None
            self._control_bytes += taken.held_bytes - before
            if taken.excess >= 0 or self._control_bytes > 2 * LONGEST_COMMAND:
                raise ConnectionFault(f"controls have more than {LONGEST_COMMAND} octets")
            if not complete:
                return
            del self._controls[channel]
            self._control_bytes -= taken.held_bytes
            payload = taken.segments[CONTROL]
        try:
            control = decode_control(payload)
        except CodecError as error:
            raise ConnectionFault(str(error)) from None
        if control.CODE >> 8 == _OF_SESSION:
            self._session_control(channel, control)
        else:
            self._connection_control(control)

    def _control_on(self, channel: int) -> Assembly:
        """Return the incomplete control of a channel. Raises ConnectionFault for a channel that cannot be used, so that
        there are not more of them than channels.
        """
        taken = self._controls.get(channel)
        if taken is None:
            most = self._connection.channel_max
            if channel > most:
                raise ConnectionFault(f"a control begins on channel {channel}, above the channel-max of {most}")
            taken = self._controls[channel] = Assembly(self._limits)
        return taken

    def _connection_control(self, control: Control) -> None:
        connection = self._connection
        step = handshake.STEPS.get(connection.state, {}).get(type(control))
        if step is not None:
            self.flush()
            step(connection, control)
        elif connection.state is not _State.CLOSING:
            raise ConnectionFault(f"{control.NAME} in state {connection.state.name.lower()}")

    def _session_control(self, channel: int, control: Control) -> None:
        connection = self._connection
        if connection.state is _State.CLOSING:
            return
        if connection.state is not _State.RUNNING:
            raise ConnectionFault(f"{control.NAME} before the connection was opened")
        if channel > connection.channel_max:
            raise ConnectionFault(f"channel {channel} is above the agreed channel-max of {connection.channel_max}")
        session = connection.sessions.get(channel)
        if isinstance(control, SessionAttach):
            if session is not None and not session.refused:
                connection.detached(channel, control.name or b"", DetachCode.TRANSPORT_BUSY)
            else:
                attach(connection, channel, control)
        elif isinstance(control, SessionDetached):
            if session is not None and control.name in (session.name, None):
                session.answered(control)
        elif session is None or session.refused:
            if isinstance(control, SessionDetach) and session is not None:
                del connection.sessions[channel]
                connection.detached(channel, control.name or b"", DetachCode.NORMAL)
            elif session is None:
                name = control.name if isinstance(control, SessionDetach) else None
                connection.detached(channel, name or b"", DetachCode.NOT_ATTACHED)
        else:
            try:
                session.control(control)
            except SessionFault as fault:
                session.lose(fault)
            except BrokerError as error:
                session.refuse(error)

    # -- work that takes longer

    def _works(self, task: Iterator[object]) -> bool:
        """Do pieces of a task until the turn's work is done. Return False if the task is finished."""
        requests = self._requests
        return any(waits or requests.left <= 0 for waits in task)

    def _go_on(self) -> bool:
        """Continue with the task. Return True if it is finished, so that reading continues."""
        assert self._task is not None
        (session, task), self._task = self._task, None
        if not session.ending:
            try:
                if self._works(task):
                    self._task = session, task
            except BrokerError as error:
                session.refuse(error)
        if self._busy:
            self._connection.carry_on()
        return not self._busy

    @property
    def _busy(self) -> bool:
        """Whether a task is not finished."""
        return self._task is not None
