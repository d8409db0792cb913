"""A connection: frames in, frames out, channels. The reading loop is the hot path of the broker."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from escrowmq.core.broker import Broker
from escrowmq.core.conditions import BrokerError
from escrowmq.core.outcome import Outcome
from escrowmq.core.queue import Queue, Session
from escrowmq.core.topology import VirtualHost
from escrowmq.wire.amqp091 import basic_methods, codes, handshake, queue_methods, spec
from escrowmq.wire.amqp091.channel import Channel
from escrowmq.wire.amqp091.content import Content
from escrowmq.wire.amqp091.death import headers_of
from escrowmq.wire.amqp091.errors import REPLIES, SyntaxFault, reply_text
from escrowmq.wire.amqp091.frames import (
    FRAME_HEADER,
    HEARTBEAT,
    METHOD_INDEX,
    PROTOCOL_HEADER,
    decode_method,
    method_frame,
    remainder,
)
from escrowmq.wire.amqp091.handshake import LoginFault, State
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.outbox import Outbox
from escrowmq.wire.amqp091.publication import PROTOCOL, Form, Forms
from escrowmq.wire.amqp091.table import FieldTable
from escrowmq.wire.endpoint import EndpointLimits, Host, Peer, Verdict
from escrowmq.wire.sasl import Credentials

_END: Final = codes.FRAME_END
_PUBLISH: Final = b"\x00\x3c\x00\x28"
_ACK: Final = b"\x00\x3c\x00\x50"
_ACK_REST: Final = struct.Struct(">QBB")  # tag, multiple, frame end
_ACK_FRAME: Final = 21
_SIZE: Final = struct.Struct(">Q")
_FRAME_SIZE: Final = struct.Struct(">I")
_HEADER_FRAME: Final = struct.Struct(">BHIIQ")  # frame header, class and weight, body size
_BASIC: Final = 60 << 16

# Methods without arguments, by their payload: one object serves for all of them.
_BARE: Final[dict[bytes, Method]] = {
    method.encode(): method for method in (spec.TxSelect(), spec.TxCommit(), spec.TxRollback())
}
_CHANNEL_HANDLERS: Final = {**queue_methods.HANDLERS, **basic_methods.HANDLERS}


class Connection:
    """The endpoint of one AMQP 0-9-1 connection (`wire.endpoint.Endpoint`)."""

    def __init__(self, host: Host, peer: Peer, label: str = "") -> None:
        self._host = host
        self.peer = peer
        self.label = label or str(peer)
        self.broker: Broker = host.broker
        self.broker.headers_of.setdefault(PROTOCOL, headers_of)
        self.limits: EndpointLimits = host.limits
        # EXTERNAL only to who can use it: some clients take it whenever it is on offer.
        certified = peer.certificate_user is not None
        self.mechanisms = tuple(name for name in host.mechanisms if certified or name != "EXTERNAL")
        self.state = State.HEADER
        self.user = ""
        self.session = Session(self.label)
        self.vhost: VirtualHost[Queue]
        self.frame_max = codes.FRAME_MIN_SIZE
        self.most_body = 0  # the longest body that comes in one frame and is not too large for a message
        self.channel_max = 0
        self.heartbeat = 0
        self.client: FieldTable = {}
        self.cancel_notify = False
        self.channels: dict[int, Channel] = {}
        self.finished = False
        self.blocked_notify = False
        self._blocked = ""
        self._publishes = False
        self._began = self.broker.now
        self._closing_since: int | None = None
        self._outbox = Outbox()
        self._unsent = 0
        self._stalled = False
        self._confirming: dict[Channel, None] = {}
        self._forms = Forms()
        self._rest = b""
        self._last: Channel | None = None  # the channel of the last publish that came in three frames in a row

    # -- reading

    def receive(self, data: bytes) -> None:
        """Bytes came in."""
        if self._rest:
            data = self._rest + data
        self._rest = b""
        if self.state is State.AUTHENTICATING:
            if len(data) <= codes.FRAME_MIN_SIZE:
                self._rest = data  # read on when the login has been checked
            else:
                self.fail(codes.UNEXPECTED_FRAME, "frames before the login was answered")
            return
        try:
            at = self._read_header(data) if self.state is State.HEADER else 0
            if at >= 0 and self.state is not State.HEADER:
                at = self._read(data, at)
        except SyntaxFault as fault:
            self.fail(fault.code, fault.text, fault.index)
            self._rest = remainder(data)  # where the client's answer will be found
            return
        except LoginFault as error:
            self.login_refused(str(error))
            return
        if at < len(data) and self.state is not State.CLOSED:
            self._rest = data[at:] if at else data

    def _read_header(self, data: bytes) -> int:
        if len(data) < len(PROTOCOL_HEADER) and PROTOCOL_HEADER.startswith(data):
            return 0
        if not data.startswith(PROTOCOL_HEADER):
            self._outbox.put(0, PROTOCOL_HEADER)
            self.state = State.CLOSED
            self.finished = True
            self._host.stir(self)
            return len(data)
        handshake.start(self)
        return len(PROTOCOL_HEADER)

    def _read(self, buf: bytes, at: int) -> int:
        """Parse what is whole; where the rest begins. Raises SyntaxFault for what costs the connection."""
        end = len(buf)
        startswith, unpack = buf.startswith, FRAME_HEADER.unpack_from
        most = self.frame_max  # of payload, which is all that some clients count
        while end - at >= 8:
            last = self._last
            if last is not None and startswith(last.prefix, at):
                behind = self._read_run(last, buf, at, end)
                if behind != at:
                    at = behind
                    continue
            kind, number, size = unpack(buf, at)
            if size > most:
                raise SyntaxFault(
                    codes.FRAME_ERROR, f"frame of {size + 8} octets, at most {self.frame_max} were agreed"
                )
            stop = at + 7 + size
            if stop >= end:
                break
            if buf[stop] != _END:
                raise SyntaxFault(codes.FRAME_ERROR, f"frame ends with 0x{buf[stop]:02x}, not with 0xce")
            channel = self.channels.get(number)
            if kind == codes.FRAME_METHOD and channel is not None:
                if channel.closing:
                    self._method_on_closing(channel, buf[at + 7 : stop])
                elif channel.content is not None:
                    raise SyntaxFault(codes.UNEXPECTED_FRAME, "expected a content frame, got a method frame")
                elif startswith(_PUBLISH, at + 7):
                    behind = at
                    if channel is not last and channel.form is not None and startswith(channel.prefix, at):
                        self._last = channel
                        behind = self._read_run(channel, buf, at, end)
                    at = behind if behind != at else self._read_publish(channel, buf, at, stop, end)
                    continue
                elif startswith(_ACK, at + 7) and size == 13:
                    at = self._read_acks(channel, buf, at, end)
                    continue
                else:
                    self._method(channel, buf[at + 7 : stop])
            else:
                self._read_other(kind, number, channel, buf[at + 7 : stop])
            at = stop + 1
            if self.state is State.AUTHENTICATING or self.state is State.CLOSED:
                break
            most = self.frame_max
        return at

    def _read_run(self, channel: Channel, buf: bytes, at: int, end: int) -> int:
        """Publishes with method and properties of the channel's last one: only their bodies differ, size included.

        Where the first one begins that is not such, or not whole; the reading loop goes on with it.
        """
        form = channel.form
        if form is None:
            return at
        prefix, middle, startswith = channel.prefix, channel.middle, buf.startswith
        size_at = len(prefix)
        frame_at = size_at + 8 + len(middle)
        body_at = frame_at + 4
        last = end - body_at - 2
        most = self.most_body
        read_size, read_frame_size = _SIZE.unpack_from, _FRAME_SIZE.unpack_from
        bodies: list[bytes] = []
        append = bodies.append
        while at <= last and startswith(prefix, at) and startswith(middle, at + size_at + 8):
            (size,) = read_size(buf, at + size_at)
            stop = at + body_at + size
            if (
                not 0 < size <= most
                or stop >= end
                or buf[stop] != _END
                or read_frame_size(buf, at + frame_at)[0] != size
            ):
                break
            head, step = buf[at : at + body_at], body_at + size
            append(buf[at + body_at : stop])
            at = stop + 1
            while startswith(head, at):  # the same size again, which needs no more than this
                stop = at + step
                if stop >= end or buf[stop] != _END:
                    break
                append(buf[at + body_at : stop])
                at = stop + 1
        if bodies:
            self._publish(channel, form, bodies)
        return at

    def _read_publish(self, channel: Channel, buf: bytes, at: int, stop: int, end: int) -> int:
        """A publish whose method frame ends at `stop`; where the next frame begins.

        When header and body follow in one frame each, all three are taken together; else frame by frame.
        """
        number = channel.number
        header = stop + 1
        if end - header >= _HEADER_FRAME.size + 8:
            kind, same, size, basic, body_size = _HEADER_FRAME.unpack_from(buf, header)
            body = header + 8 + size
            behind = body + 7 + body_size
            if (
                kind == codes.FRAME_HEADER
                and same == number
                and basic == _BASIC
                and 14 <= size <= self.limits.header_size
                and 0 < body_size <= self.most_body
                and behind < end
                and buf[body - 1] == _END == buf[behind]
                and FRAME_HEADER.unpack_from(buf, body) == (codes.FRAME_BODY, number, body_size)
            ):
                form = self._find_form(channel, buf[at + 7 : stop], buf[header + 19 : body - 1])
                if form is not None:
                    if form.version >= 0:  # it was used before, so a run may begin
                        channel.prefix = buf[at : header + 11]
                        channel.middle = buf[header + 19 : body + 3]
                        channel.form = form
                        self._last = channel
                    self._publish(channel, form, [buf[body + 7 : behind]])
                return int(behind) + 1
        if self._last is channel:
            self._last = None  # while content is awaited, nothing that looks like a publish is one
        channel.content = Content(buf[at + 7 : stop])
        if not self._publishes:  # of messages that never become whole, too, memory runs short
            self._note_publishing()
        return header

    def _find_form(self, channel: Channel, method: bytes, props: bytes) -> Form | None:
        try:
            return self._forms.find(channel.number, method, props)
        except BrokerError as error:
            channel.refuse(error, spec.BasicPublish())
            return None

    def _note_publishing(self) -> None:
        self._publishes = True
        self._host.publishing(self)

    def _publish(self, channel: Channel, form: Form, bodies: list[bytes]) -> None:
        if not self._publishes:
            self._note_publishing()
        if channel.closing:
            return
        try:
            channel.publish(form, bodies)
        except BrokerError as error:
            channel.refuse(error, spec.BasicPublish())

    def _read_acks(self, channel: Channel, buf: bytes, at: int, end: int) -> int:
        """A run of acknowledgements on one channel."""
        head = buf[at : at + 11]
        startswith, unpack = buf.startswith, _ACK_REST.unpack_from
        tags: list[int] = []
        append = tags.append
        last = end - _ACK_FRAME
        try:
            while at <= last and startswith(head, at):
                tag, multiple, mark = unpack(buf, at + 11)
                if mark != _END:
                    if tags:
                        break
                    raise SyntaxFault(codes.FRAME_ERROR, f"frame ends with 0x{mark:02x}, not with 0xce")
                at += _ACK_FRAME
                if multiple & 1:
                    if tags:
                        channel.settle_each(tags)
                        tags.clear()
                    channel.settle(tag, Outcome.ACCEPTED, multiple=True)
                else:
                    append(tag)
            if tags:
                channel.settle_each(tags)
        except BrokerError as error:
            channel.refuse(error, spec.BasicAck())
        return at

    def _read_other(self, kind: int, number: int, channel: Channel | None, payload: bytes) -> None:
        """Frames that are not methods of an open channel."""
        if kind == codes.FRAME_HEARTBEAT:
            if number or payload:
                raise SyntaxFault(codes.FRAME_ERROR, "heartbeat frame with a channel or a payload")
        elif kind == codes.FRAME_METHOD:
            if number == 0:
                self._connection_method(payload)
            else:
                self._open_channel(number, payload)
        elif kind not in (codes.FRAME_HEADER, codes.FRAME_BODY):
            raise SyntaxFault(codes.FRAME_ERROR, f"unknown frame type {kind}")
        elif channel is None:
            if self.state is not State.CLOSING:
                raise SyntaxFault(codes.CHANNEL_ERROR, f"content frame on channel {number}, which is not open")
        elif not channel.closing:
            self._content(channel, kind, payload)

    def _content(self, channel: Channel, kind: int, payload: bytes) -> None:
        content = channel.content
        if content is None:
            raise SyntaxFault(codes.UNEXPECTED_FRAME, "content frame without a method that has content")
        if not content.take(kind, payload, self.limits):
            return
        channel.content = None
        if content.too_large:
            channel.fail(codes.PRECONDITION_FAILED, content.too_large, spec.BasicPublish())
            return
        form = self._find_form(channel, content.method, content.props)
        if form is not None:
            self._publish(channel, form, [content.body])

    # -- methods

    def _method(self, channel: Channel, payload: bytes) -> None:
        method = decode(payload)
        handler = _CHANNEL_HANDLERS.get(method.INDEX)
        if handler is not None:
            try:
                handler(channel, method)
            except BrokerError as error:
                if REPLIES[error.condition].hard:
                    raise SyntaxFault(REPLIES[error.condition].code, error.text, method.INDEX) from None
                channel.refuse(error, method)
            except SyntaxFault as fault:
                fault.index = method.INDEX
                raise
        elif isinstance(method, spec.ChannelClose):
            channel.send_confirms()
            channel.release()
            channel.send(spec.ChannelCloseOk())
            self._drop(channel)
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

    def _method_on_closing(self, channel: Channel, payload: bytes) -> None:
        """The channel was closed by the broker: only the end of it is of interest."""
        (index,) = METHOD_INDEX.unpack_from(payload.ljust(4, b"\0"))
        if index == spec.ChannelCloseOk.INDEX:
            self._drop(channel)
        elif index == spec.ChannelClose.INDEX:
            channel.send(spec.ChannelCloseOk())
            self._drop(channel)

    def _open_channel(self, number: int, payload: bytes) -> None:
        if self.state is State.CLOSING:
            return
        if self.state is not State.RUNNING:
            raise SyntaxFault(codes.CHANNEL_ERROR, f"method on channel {number} before connection.open")
        method = decode(payload)
        if isinstance(method, spec.ChannelCloseOk):
            return
        if not isinstance(method, spec.ChannelOpen):
            raise SyntaxFault(codes.CHANNEL_ERROR, f"expected 'channel.open' on channel {number}, got {method.NAME}")
        count = len(self.channels)
        if self.channel_max and count >= self.channel_max:
            raise SyntaxFault(
                codes.NOT_ALLOWED,
                f"number of channels opened ({count}) has reached the negotiated channel_max ({self.channel_max})",
            )
        self.channels[number] = channel = Channel(self, number)
        channel.send(spec.ChannelOpenOk())

    def _connection_method(self, payload: bytes) -> None:
        method = decode(payload)
        handler = handshake.HANDLERS.get(self.state, {}).get(method.INDEX)
        if handler is not None:
            try:
                handler(self, method)
            except SyntaxFault as fault:
                fault.index = method.INDEX
                raise
        elif self.state is not State.CLOSING:
            raise SyntaxFault(codes.COMMAND_INVALID, f"{method.NAME} on channel 0 in state {self.state.name.lower()}")

    def _drop(self, channel: Channel) -> None:
        self.channels.pop(channel.number, None)
        self._last = None

    # -- what the handshake asks for

    def tuned(self, frame_max: int, channel_max: int, heartbeat: int) -> None:
        """Client and broker have agreed."""
        self.frame_max = frame_max
        self.most_body = min(frame_max - 8, self.limits.message_size)
        self.channel_max = channel_max
        self.heartbeat = heartbeat

    def authenticate(self, credentials: Credentials, done: Callable[[Verdict], None]) -> None:
        self._host.authenticate(self.peer, credentials, done)

    def login_refused(self, text: str) -> None:
        """Tell a client that can take it (section 1.4.2.1 knows no answer), and close."""
        capabilities = self.client.get("capabilities")
        if isinstance(capabilities, dict) and capabilities.get("authentication_failure_close") is True:
            self.send(spec.ConnectionClose(codes.ACCESS_REFUSED, reply_text(codes.ACCESS_REFUSED, text)))
        self.state = State.CLOSED
        self.finished = True
        self._host.stir(self)

    def resume(self) -> None:
        """Go on with what came while the login was being checked."""
        if self._rest:
            self.receive(b"")

    def opened(self) -> None:
        """The connection is ready for channels."""
        self.session.label = self.label
        if self._blocked:
            self.block(self._blocked)

    def update_secret(self, secret: bytes) -> None:
        self._host.password_changed(self.peer, self.user, secret)

    # -- writing

    def put(self, channel: int, data: bytes, after: int = 0) -> None:
        """Send `data` on `channel` when the log is synced up to `after`."""
        outbox = self._outbox
        if after and after <= self.broker.log.synced_lsn:
            after = 0  # nothing of it is left to be synced, and so no sync may ever come
        outbox.put(channel, data, after)
        if after and outbox.holding:
            self._host.hold(self)
        self._host.stir(self)

    def send(self, method: Method) -> None:
        """Send a method on channel 0."""
        self.put(0, method_frame(0, method))

    def confirm_later(self, channel: Channel, after: int) -> None:
        """`channel` has something to confirm at the end of the turn, when the log is synced up to `after`."""
        if after:
            self._host.hold(self)
        if channel not in self._confirming:
            self._confirming[channel] = None
            self._host.stir(self)

    @property
    def writable(self) -> bool:
        """Whether consumers may be given more."""
        if self._unsent + self._outbox.size < self.limits.outbox:
            return True
        self._stalled = True
        return False

    def output(self) -> bytes:
        """What is to be sent now."""
        if self._confirming:
            confirming, self._confirming = self._confirming, {}
            for channel in confirming:
                channel.send_confirms()
        data = self._outbox.take()
        if self.state is State.CLOSED and not self._outbox.holding:
            self.finished = True
        if self._stalled:
            self._wake()
        return data

    def _wake(self) -> None:
        if self._unsent + self._outbox.size >= self.limits.outbox:
            return
        self._stalled = False
        for channel in self.channels.values():
            for consumer in channel.consumers.values():
                self.broker.wake(consumer.queue)

    def synced(self, lsn: int) -> bool:
        """The log is on disk up to `lsn`. True while output is still held."""
        holding = self._outbox.release(lsn)
        self._host.stir(self)
        return holding

    def congested(self, unsent: int) -> None:
        """`unsent` bytes wait in the socket's buffer."""
        self._unsent = unsent
        if self._stalled:
            self._wake()

    # -- the server's side

    def block(self, reason: str) -> None:
        """`connection.blocked` and `connection.unblocked`, to those who understand it."""
        self._blocked = reason
        if self.state is State.RUNNING and self.blocked_notify:
            method = spec.ConnectionBlocked(reason) if reason else spec.ConnectionUnblocked()
            self._outbox.put_now(method_frame(0, method))
            self._host.stir(self)

    def tick(self, now_ms: int, idle_in_ms: int, idle_out_ms: int) -> None:
        """Heartbeats (section 4.2.7); give up on a peer that is silent, or does not answer a close."""
        if self.state is State.CLOSING:
            if self._closing_since is None:
                self._closing_since = now_ms
            elif now_ms - self._closing_since > 5000:
                self.end()
        elif self.state is State.RUNNING and self.heartbeat:
            if idle_in_ms > 2000 * self.heartbeat:
                self.release()
                self.end()
            elif idle_out_ms >= 500 * self.heartbeat:
                self._outbox.put_now(HEARTBEAT)
                self._host.stir(self)
        elif self.state not in (State.RUNNING, State.CLOSED) and now_ms - self._began > self.limits.login_ms:
            self.end()

    def shut(self, text: str) -> None:
        """The server ends the connection: 320 CONNECTION_FORCED."""
        if self.state in (State.CLOSING, State.CLOSED):
            return
        if self.state is State.RUNNING:
            self.fail(codes.CONNECTION_FORCED, text)
        else:
            self.end()

    def fail(self, code: int, text: str, index: int = 0) -> None:
        """Close the connection for a fault (of the method `index`); from now on only the client's answer counts."""
        if self.state in (State.CLOSING, State.CLOSED):
            return
        before = self.state
        self.release()
        self.send(spec.ConnectionClose(code, reply_text(code, text), index >> 16, index & 0xFFFF))
        if before is State.RUNNING or before is State.OPEN:
            self.state = State.CLOSING
        else:
            self.state = State.CLOSED
        self._host.stir(self)

    def end(self) -> None:
        """When what is said is sent, the socket is to be closed."""
        self.state = State.CLOSED
        self._host.stir(self)

    def channel_failed(self) -> None:
        """A channel was closed for a fault."""
        self._last = None

    def release(self) -> None:
        """Give back everything that the connection's channels hold; drop its exclusive queues (EXC-1)."""
        for channel in list(self.channels.values()):
            channel.send_confirms()
            channel.release()
            channel.closing = True
        self._confirming.clear()
        self._last = None
        self.broker.end_session(self.session)

    def lost(self) -> None:
        """The connection is gone."""
        if self.state is not State.CLOSED or self.channels:
            self.state = State.CLOSED
            self.release()
            self.channels.clear()

    def describe(self) -> dict[str, object]:
        """For lists of connections; nothing secret."""
        return {
            "name": self.label,
            "peer": str(self.peer),
            "protocol": "AMQP 0-9-1",
            "user": self.user,
            "vhost": self.vhost.name if hasattr(self, "vhost") else "",
            "state": self.state.name.lower(),
            "channels": len(self.channels),
            "tls": self.peer.tls,
            "client": {key: value for key, value in self.client.items() if isinstance(value, (str, int))},
        }


def decode(payload: bytes) -> Method:
    """As `decode_method`, which makes an object; those without arguments are there already."""
    return _BARE.get(payload) or decode_method(payload)
