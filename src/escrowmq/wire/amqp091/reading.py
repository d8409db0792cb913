"""Reading of a connection: from bytes to frames and messages. This loop is the hot path of the broker."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.budget import FRAME, METHOD, SETTLED, SETTLED_APART
from escrowmq.core.conditions import BrokerError
from escrowmq.core.queues.outcome import Disposition
from escrowmq.wire.amqp091 import basic_methods, codes, dtx_methods, escrow_methods, handshake, queue_methods, spec
from escrowmq.wire.amqp091.block_publishing import publish_block
from escrowmq.wire.amqp091.channel import Channel
from escrowmq.wire.amqp091.content import Content, PartialFrame
from escrowmq.wire.amqp091.errors import REPLIES, SyntaxFault
from escrowmq.wire.amqp091.frames import (
    FRAME_HEADER,
    FRAME_HEADER_SIZE,
    FRAME_OVERHEAD,
    METHOD_INDEX,
    PROTOCOL_HEADER,
    decode_method,
    frame,
    frame_size,
    remainder,
)
from escrowmq.wire.amqp091.getting import RUN
from escrowmq.wire.amqp091.handshake import State
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.operations import Handler, admitted
from escrowmq.wire.amqp091.publishing import LONGEST_RUN, PublishReader
from escrowmq.wire.amqp091.settling import settle, settle_each
from escrowmq.wire.amqp091.versions import ACCESS_REQUEST, ACCESS_REQUEST_OK, VERSIONS, from_older
from escrowmq.wire.login import LoginFault
from escrowmq.wire.outbox import LARGE
from escrowmq.wire.unread import Unread

if TYPE_CHECKING:
    from escrowmq.wire.amqp091.connection import Connection

_END: Final = codes.FRAME_END
_PUBLISH: Final = b"\x00\x3c\x00\x28"
_BLOCK: Final = spec.EscrowPublish.INDEX.to_bytes(4, "big")
_ACK: Final = b"\x00\x3c\x00\x50"
_GET: Final = b"\x00\x3c\x00\x46"
_ACK_REST: Final = struct.Struct(">QBB")  # tag, multiple, frame end
_ACK_FRAME: Final = 21
_ACKS: Final = 1000  # acknowledgements of single deliveries that are settled together
_HEADER_FRAME: Final = struct.Struct(">BHIIQ")  # frame header, class and weight, body size
_BASIC: Final = 60 << 16
_ACCEPTED: Final = Disposition.ACCEPTED  # found sooner than a member of an enumeration

# Methods without arguments, by their payload: one object of each suffices.
_COMMIT: Final = spec.TxCommit()
_PUBLISHED: Final = spec.BasicPublish()
_BARE: Final[dict[bytes, Method]] = {
    method.encode(): method for method in (spec.TxSelect(), _COMMIT, spec.TxRollback())
}
_LASTING: Final = frozenset(
    method.INDEX.to_bytes(4, "big")
    for method in (spec.ExchangeDeclare, spec.ExchangeBind, spec.QueueDeclare, spec.QueueBind, spec.BasicConsume)
)
"""The first bytes of methods whose arguments stay in memory."""
_CHANNEL_HANDLERS: Final = admitted(
    {
        **queue_methods.HANDLERS,
        **basic_methods.HANDLERS,
        **dtx_methods.HANDLERS,
        **escrow_methods.HANDLERS,
    }
)


class Task(NamedTuple):
    """A method that takes more than one turn. `rest` does a piece of its work in each step."""

    channel: Channel
    method: Method
    rest: Iterator[bool | None]


class Reader:
    """Reads one connection. Closes it for a SyntaxFault; for a fault that concerns a channel, closes the channel."""

    __slots__ = ("_connection", "_grown", "_last", "_partial", "_publishes", "_requests", "_task", "_unread")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._publishes = PublishReader(connection)
        self._last: Channel | None = None  # the channel of the last publish that came as three consecutive frames
        self._partial: PartialFrame | None = None
        self._grown: dict[Channel, None] = {}  # channels that got a part of a message in this read
        self._unread = Unread()
        self._requests = connection.broker.engine.requests
        self._task: Task | None = None  # a method that is not finished; nothing is read until it is

    def receive(self, data: bytes) -> None:
        """Process bytes from the socket. Empty `data` means to continue with the bytes that were held back."""
        connection, unread = self._connection, self._unread
        self._requests.admit()
        if self._task is not None:
            unread.add(data)
            data = b""
            if not self._go_on(self._task):
                return
        if connection.flow.is_crowded and connection.flow.crowded():
            unread.add(data)
            return
        if unread:
            unread.add(data, unread.need)
            if data and not unread.ready:
                return
            data = unread.take()
        if connection.state is State.AUTHENTICATING:
            if len(data) <= codes.FRAME_MIN_SIZE:
                unread.add(data)  # to be read when the login has been checked
            else:
                connection.fail(codes.UNEXPECTED_FRAME, "frames before the login was answered")
            return
        start = 0
        try:
            if self._partial is not None:
                start = self._read_partial(self._partial, data)
                if not start:
                    return
            at = self._read_header(data) if connection.state is State.HEADER else start
            if at >= 0 and connection.state is not State.HEADER and self._task is None:
                at = self._read(data, at)
                if self._grown:
                    self._count_parts()
            if at < len(data) and connection.state is not State.CLOSED:
                self._keep(data, at)
                if self._task is not None or (self._requests.left <= 0 and self._partial is None):
                    connection.carry_on()
            elif self._task is not None:
                connection.carry_on()
        except SyntaxFault as fault:
            self._partial = None
            self._grown.clear()
            connection.fail(fault.code, fault.text, fault.index)
            unread.add(remainder(data[start:]))  # the client's answer to the close will be in these bytes
        except LoginFault as error:
            connection.login_refused(str(error))

    @property
    def unread(self) -> int:
        """The number of bytes that were received and wait to be read."""
        return self._unread.size

    def resume(self) -> None:
        """Continue with the bytes that were held back."""
        if self._unread:
            self.receive(b"")

    def end_run(self) -> None:
        """Read the next publish in full, and ask the gate about it if necessary."""
        self._last = None

    def _keep(self, data: bytes, at: int) -> None:
        """Keep the bytes that could not be read. The octets of a large incomplete body frame go into the content at
        once.

        A small body frame is kept until it is complete, so that it is read as a part of a run.
        """
        need, connection = 0, self._connection
        if len(data) - at >= FRAME_HEADER_SIZE and connection.state not in (State.HEADER, State.AUTHENTICATING):
            need = frame_size(data, at)
            if need > connection.frame_max + FRAME_OVERHEAD:
                need = 0  # a fault, which the next read reports
            elif at + need > len(data) and need > LARGE and not connection.gate.shut:
                partial = self._open_partial(data, at)
                if partial is not None:
                    partial.feed(data, at + FRAME_HEADER_SIZE)
                    self._partial = partial
                    self._count_part(connection.channels[partial.number])
                    return
        self._unread.add(data[at:] if at else data, need)

    def _read_header(self, data: bytes) -> int:
        size = len(PROTOCOL_HEADER)
        if len(data) < size and any(header.startswith(data) for header in VERSIONS):
            return 0
        version = VERSIONS.get(data[:size])
        if version is None:
            self._connection.refuse_protocol()
            return len(data)
        self._connection.version = version
        handshake.start(self._connection)
        return size

    def _read(self, buf: bytes, at: int) -> int:
        """Parse all complete frames. Returns where the rest begins. Raises SyntaxFault if the connection must end."""
        end = len(buf)
        startswith, unpack = buf.startswith, FRAME_HEADER.unpack_from
        connection = self._connection
        gate, channels, publishes = connection.gate, connection.channels, self._publishes
        most = connection.frame_max  # of payload: some clients do not count the overhead
        begin, requests, committed = at, self._requests, False
        while end - at >= 8:
            if at > begin and (requests.left <= 0 or self._task is not None):
                break
            if (last := self._last) is not None and startswith(last.method_start, at):
                if startswith(last.commit_frame, at):
                    self._call(last, basic_methods.tx_commit, _COMMIT)
                    at += len(last.commit_frame)
                    committed = True
                    continue
                behind = publishes.go_on(last, buf, at, end)
                if behind != at:
                    at = behind
                    continue
            kind, number, size = unpack(buf, at)
            if size > most:
                raise SyntaxFault(codes.FRAME_ERROR, f"frame of {size + 8} octets, at most {most} were agreed")
            stop = at + 7 + size
            if stop >= end:
                break
            if buf[stop] != _END:
                raise SyntaxFault(codes.FRAME_ERROR, f"frame ends with 0x{buf[stop]:02x}, not with 0xce")
            channel = channels.get(number)
            if kind == codes.FRAME_METHOD and channel is not None:
                if channel.closing:
                    self._method_on_closing(channel, buf[at + 7 : stop])
                elif channel.content is not None:
                    raise SyntaxFault(codes.UNEXPECTED_FRAME, "expected a content frame, got a method frame")
                elif startswith(_PUBLISH, at + 7):
                    if gate.shut and gate.keeps_back():
                        break
                    behind = at if channel is last else publishes.return_to(channel, buf, at, end)
                    if behind != at:
                        self._last = channel
                    at = behind if behind != at else self._read_publish(channel, buf, at, stop, end)
                    continue
                elif startswith(_ACK, at + 7) and size == 13:
                    at = self._read_acks(channel, buf, at, end)
                    continue
                elif startswith(_GET, at + 7):
                    at = self._read_gets(channel, buf, at, stop + 1)
                    if connection.flow.crowded():
                        break
                    continue
                else:
                    self._method(channel, buf[at + 7 : stop])
                    if connection.flow.crowded() or self._task is not None:
                        at = stop + 1
                        break
            else:
                if gate.shut and channel is not None and channel.content is not None and gate.keeps_back():
                    break
                # A large body is copied only once, into the content.
                large = size >= LARGE and kind == codes.FRAME_BODY
                self._read_other(kind, number, channel, (memoryview(buf) if large else buf)[at + 7 : stop])
            at = stop + 1
            if connection.state is State.AUTHENTICATING or connection.state is State.CLOSED:
                break
            most = connection.frame_max
        if committed:
            connection.flow.crowded()
        return at

    def _count_parts(self) -> None:
        """Count the messages that are incomplete at the end of a read."""
        grown, self._grown = self._grown, {}
        for channel in grown:
            self._count_part(channel)

    def _count_part(self, channel: Channel) -> None:
        if channel.content is not None:
            channel.count_content(channel.content)

    def _read_publish(self, channel: Channel, buf: bytes, at: int, stop: int, end: int) -> int:
        """Read a publish whose method frame ends at `stop`. Returns where the next frame begins.

        If header and body follow in one frame each, all three are read together, otherwise frame by frame.
        """
        number, connection, publishes = channel.number, self._connection, self._publishes
        header = stop + 1
        if end - header >= _HEADER_FRAME.size + 8:
            kind, same, size, basic, body_size = _HEADER_FRAME.unpack_from(buf, header)
            body = header + 8 + size
            behind = body + 7 + body_size
            if (
                kind == codes.FRAME_HEADER
                and same == number
                and basic == _BASIC
                and 14 <= size <= connection.limits.header_size
                and 0 < body_size <= connection.most_body
                and behind < end
                and buf[body - 1] == _END == buf[behind]
                and FRAME_HEADER.unpack_from(buf, body) == (codes.FRAME_BODY, number, body_size)
            ):
                method, props = buf[at + 7 : stop], buf[header + 19 : body - 1]
                form = publishes.forms.known(number, method, props)
                if form is None:
                    past = publishes.read_first(channel, buf[at : header + 3], buf, at, end)
                    if past != at:
                        self._last = channel
                        return past
                    form = publishes.find_form(channel, method, props)
                if form is not None:
                    used = form.version >= 0
                    channel.lone = True
                    publishes.publish(channel, form, [buf[body + 7 : behind]])
                    if form.version >= 0 and len(props) <= LONGEST_RUN and not channel.closing:
                        head, middle = buf[header : header + 11], buf[header + 19 : body + 3]
                        publishes.scattered.learn(channel, form, buf[at:header], head, middle)
                        if used:  # a run may begin
                            channel.prefix = buf[at:header] + head
                            channel.middle = middle
                            channel.form = form
                            self._last = channel
                return int(behind) + 1
        channel.content = Content(buf[at + 7 : stop])
        self._await_content(channel)
        return header

    def _await_content(self, channel: Channel) -> None:
        if self._last is channel:
            self._last = None  # while content is awaited, bytes that look like a publish are not one
        self._grown[channel] = None

    def _read_acks(self, channel: Channel, buf: bytes, at: int, end: int) -> int:
        """Read a run of acknowledgements on one channel."""
        head = buf[at : at + 11]
        startswith, unpack = buf.startswith, _ACK_REST.unpack_from
        tags: list[int] = []
        last = end - _ACK_FRAME
        try:
            while at <= last and startswith(head, at) and len(tags) < _ACKS:
                tag, multiple, mark = unpack(buf, at + 11)
                if mark != _END:
                    if tags:
                        break
                    raise SyntaxFault(codes.FRAME_ERROR, f"frame ends with 0x{mark:02x}, not with 0xce")
                at += _ACK_FRAME
                if multiple & 1:
                    if tags:
                        settle_each(channel, tags)
                        tags.clear()
                    before = channel.unsettled.count
                    if before > basic_methods.ACKED_AT_ONCE:
                        self._call(channel, basic_methods.basic_ack, spec.BasicAck(tag, True))
                        return at
                    settle(channel, tag, _ACCEPTED, multiple=True)
                    self._requests.left -= (before - channel.unsettled.count) // SETTLED
                    if self._requests.left <= 0:
                        break
                else:
                    tags.append(tag)
            if tags:
                self._requests.left -= len(tags) // SETTLED_APART
                settle_each(channel, tags)
        except BrokerError as error:
            channel.refuse(error, spec.BasicAck())
        return at

    def _read_gets(self, channel: Channel, buf: bytes, at: int, behind: int) -> int:
        """Read a `basic.get` whose frame ends at `behind`, and the equal ones that follow it."""
        frame = buf[at:behind]
        count = 1
        while count < RUN and buf.startswith(frame, behind):
            count += 1
            behind += len(frame)
        method = channel.getting.decode(frame[7:-1])
        self._call(
            channel, partial(basic_methods.basic_get, count=count) if count > 1 else basic_methods.basic_get, method
        )
        return behind

    def _read_other(self, kind: int, number: int, channel: Channel | None, payload: bytes | memoryview) -> None:
        """Handle a frame that is not a method of an open channel."""
        self._requests.left -= FRAME
        if kind == codes.FRAME_HEARTBEAT:
            if number or payload:
                raise SyntaxFault(codes.FRAME_ERROR, "heartbeat frame with a channel or a payload")
        elif kind == codes.FRAME_METHOD:
            if number == 0:
                self._connection_method(bytes(payload))
            else:
                self._open_channel(number, bytes(payload))
        elif kind not in (codes.FRAME_HEADER, codes.FRAME_BODY):
            raise SyntaxFault(codes.FRAME_ERROR, f"unknown frame type {kind}")
        elif channel is None:
            if self._connection.state is not State.CLOSING:
                raise SyntaxFault(codes.CHANNEL_ERROR, f"content frame on channel {number}, which is not open")
        elif not channel.closing:
            self._content(channel, kind, payload)

    def _content(self, channel: Channel, kind: int, payload: bytes | memoryview) -> None:
        content = channel.content
        if content is None:
            raise SyntaxFault(codes.UNEXPECTED_FRAME, "content frame without a method that has content")
        if content.take(kind, payload, self._connection.limits):
            self._finish_content(channel, content)
        else:
            self._grown[channel] = None

    def _open_partial(self, buf: bytes, at: int) -> PartialFrame | None:
        """Open the incomplete body frame at `at`. Returns None if it is not a body frame that the channel awaits."""
        kind, number, size = FRAME_HEADER.unpack_from(buf, at)
        channel = self._connection.channels.get(number)
        if kind != codes.FRAME_BODY or channel is None or channel.closing or channel.content is None:
            return None
        return PartialFrame(number, channel.content, size)

    def _read_partial(self, partial: PartialFrame, data: bytes) -> int:
        """Read more of a body frame. Returns where the next frame begins, or 0 while the frame is incomplete."""
        if self._connection.gate.shut and self._connection.gate.keeps_back():
            self._unread.add(data)
            return 0
        at = partial.feed(data, 0)
        if at:
            self._partial = None
        channel = self._connection.channels.get(partial.number)
        if channel is None or channel.closing or channel.content is None:
            return at
        if at and channel.content.whole:
            self._finish_content(channel, channel.content)
        else:
            self._count_part(channel)
        return at

    def _finish_content(self, channel: Channel, content: Content) -> None:
        channel.take_content(content)
        self._grown.pop(channel, None)
        if content.too_large:
            method = spec.EscrowPublish() if content.method.startswith(_BLOCK) else spec.BasicPublish()
            channel.fail(codes.PRECONDITION_FAILED, content.too_large, method)
            return
        if content.method.startswith(_BLOCK):
            publish = partial(publish_block, self._publishes, data=content.body)
            self._call(channel, publish, spec.EscrowPublish.decode(content.method))
            return
        form = self._publishes.find_form(channel, content.method, content.props)
        if form is not None:
            self._publishes.publish(channel, form, [content.body])

    # -- methods

    def _method(self, channel: Channel, payload: bytes) -> None:
        if len(payload) > self._connection.limits.arguments and payload[:4] in _LASTING:
            channel.fail(
                codes.PRECONDITION_FAILED,
                f"declaration of {len(payload)} bytes, with its arguments, is larger than "
                f"{self._connection.limits.arguments} bytes, the configured limit",
                decode(payload),
            )
            return
        if self._connection.version.is_older:
            if payload.startswith(ACCESS_REQUEST):
                self._connection.put(channel.number, frame(codes.FRAME_METHOD, channel.number, ACCESS_REQUEST_OK))
                return
            payload = from_older(payload)
        method = decode(payload)
        self._requests.left -= METHOD
        handler = _CHANNEL_HANDLERS.get(method.INDEX)
        if handler is not None:
            self._call(channel, handler, method)
            if channel.content is not None:
                self._await_content(channel)
        elif isinstance(method, spec.ChannelClose):
            self._connection.close_channel(channel)
        elif isinstance(method, spec.ChannelOpen):
            raise SyntaxFault(codes.CHANNEL_ERROR, f"second 'channel.open' seen on channel {channel.number}")
        elif isinstance(method, spec.ChannelCloseOk):
            return
        elif method.CLASS_ID == spec.ConnectionClose.CLASS_ID:
            raise SyntaxFault(codes.COMMAND_INVALID, f"{method.NAME} on channel {channel.number}")
        else:
            raise SyntaxFault(
                codes.NOT_IMPLEMENTED if method.TO_SERVER else codes.COMMAND_INVALID, f"unexpected {method.NAME}"
            )

    def _call(self, channel: Channel, handler: Handler, method: Method) -> None:
        """Execute a method, or begin it. A refusal closes the channel, or the connection if it is a hard one."""
        try:
            task = handler(channel, method)
            if task is not None and self._works(task):
                self._task = Task(channel, method, task)
        except BrokerError as error:
            if REPLIES[error.condition].hard:
                raise SyntaxFault(REPLIES[error.condition].code, error.text, method.INDEX) from None
            channel.refuse(error, method)
        except SyntaxFault as fault:
            fault.index = method.INDEX
            raise

    def _works(self, task: Iterator[bool | None]) -> bool:
        """Do pieces of a task until the turn's work is done. False if the task is finished."""
        requests = self._requests
        return any(waits or requests.left <= 0 for waits in task)

    def _go_on(self, task: Task) -> bool:
        """Go on with a method. True if it is finished, so that reading continues."""
        self._task = None
        if not task.channel.closing:
            try:
                self._call(task.channel, lambda *_: task.rest, task.method)
            except SyntaxFault as fault:
                self._connection.fail(fault.code, fault.text, fault.index)
        if self._busy:
            self._connection.carry_on()
        return not self._busy

    @property
    def _busy(self) -> bool:
        """Whether a method is not finished."""
        return self._task is not None

    def await_rest(self, channel: Channel, rest: Iterator[bool]) -> None:
        """Read nothing more until `rest`, which belongs to a publish of `channel`, has come to its end."""
        before = self._task.rest if self._task is not None else ()
        self._task = Task(channel, _PUBLISHED, chain(before, rest))

    def _method_on_closing(self, channel: Channel, payload: bytes) -> None:
        """The broker has closed the channel: ignore everything but the methods that end it."""
        (index,) = METHOD_INDEX.unpack_from(payload.ljust(4, b"\0"))
        if index == spec.ChannelCloseOk.INDEX:
            self.drop(channel)
        elif index == spec.ChannelClose.INDEX:
            channel.send(spec.ChannelCloseOk())
            self.drop(channel)

    def _open_channel(self, number: int, payload: bytes) -> None:
        connection = self._connection
        if connection.state is State.CLOSING:
            return
        if connection.state is not State.RUNNING:
            raise SyntaxFault(codes.CHANNEL_ERROR, f"method on channel {number} before connection.open")
        method = decode(payload)
        if isinstance(method, spec.ChannelCloseOk):
            return
        if not isinstance(method, spec.ChannelOpen):
            raise SyntaxFault(codes.CHANNEL_ERROR, f"expected 'channel.open' on channel {number}, got {method.NAME}")
        count, most = len(connection.channels), connection.channel_max
        if most and count >= most:
            raise SyntaxFault(
                codes.NOT_ALLOWED,
                f"number of channels opened ({count}) has reached the negotiated channel_max ({most})",
            )
        try:
            broker = connection.broker
            broker.access.check_channels(connection.user, broker.engine.channels[connection.user])
        except BrokerError as error:
            raise SyntaxFault(codes.NOT_ALLOWED, error.text, method.INDEX) from None
        connection.channels[number] = Channel(connection, number)
        connection.send(spec.ChannelOpenOk(), number)

    def _connection_method(self, payload: bytes) -> None:
        connection = self._connection
        method = decode(from_older(payload) if connection.version.is_older else payload)
        handler = handshake.HANDLERS.get(connection.state, {}).get(method.INDEX)
        if handler is not None:
            try:
                handler(connection, method)
            except SyntaxFault as fault:
                fault.index = method.INDEX
                raise
        elif connection.state is not State.CLOSING:
            raise SyntaxFault(
                codes.COMMAND_INVALID, f"{method.NAME} on channel 0 in state {connection.state.name.lower()}"
            )

    def drop(self, channel: Channel) -> None:
        """Forget a closed channel, whose number is free again."""
        self._connection.channels.pop(channel.number, None)
        self._last = None


def decode(payload: bytes) -> Method:
    """Like `decode_method`, but methods without arguments are not created again."""
    return _BARE.get(payload) or decode_method(payload)
