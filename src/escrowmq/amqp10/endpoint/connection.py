"""The pure endpoint: one AMQP 1.0 connection, whose sessions and links outlive it and continue on the next one.

    state     may receive                     goes on to
    IDLE      –                               LOGIN (start)
    LOGIN     protocol headers, SASL frames   OPENING (login complete; open is sent)
    OPENING   open, close                     OPEN; OPENING if the open announces a refusal; ENDED (close received)
    OPEN      everything but open             CLOSING (close), ENDED (close received)
    CLOSING   anything, which is ignored      ENDED (close received)
    ENDED     –                               LOGIN (start again)

A lost transport ends the connection in every state.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import Any, Final

from escrowmq.amqp10.endpoint.events import Ended, Event, Opened
from escrowmq.amqp10.endpoint.handshake import LoginSteps
from escrowmq.amqp10.endpoint.session import SessionEndpoint
from escrowmq.amqp10.errors import AmqpError, ConnectionLost, ConnectionRefused, ProtocolViolation, described, reason
from escrowmq.amqp10.parameters import Parameters
from escrowmq.wire.amqp10.codec import frames
from escrowmq.wire.amqp10.codec.encoding import CodecError
from escrowmq.wire.amqp10.codec.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Transfer,
    decode_performative,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.types import Symbol

_CHANNELS: Final = 1024
MIN_FRAME: Final = 512
_REFUSAL: Final = Symbol("amqp:connection-establishment-failed")
"""A property of the peer's open: it refuses the connection, and a close with the reason follows."""
_FORCED: Final = "amqp:connection:forced"


class ConnectionState(Enum):
    """The states of the table in this module's docstring."""

    IDLE = "idle"
    LOGIN = "login"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    ENDED = "ended"


class Endpoint:
    """A connection without I/O. `product` and `version` go into the properties of open."""

    def __init__(self, container_id: str, *, version: str = "") -> None:
        self.container_id = container_id
        self.state = ConnectionState.IDLE
        self.error: AmqpError | None = None
        self.remote: Open | None = None
        self.peer_max_frame_size = MIN_FRAME
        self.dirty: set[SessionEndpoint] = set()
        self.guard: AbstractContextManager[object] = nullcontext()
        """Protects the endpoint while one of its deliveries is used; set by a face with threads."""
        self.wake: Callable[[], object] = bool
        """Called when output is ready outside of `receive`; set by the face that sends it."""
        self._version = version
        self._wanted = Parameters()
        self._reader = frames.FrameReader()
        self._handshake: LoginSteps | None = None
        self._sessions: dict[int, SessionEndpoint] = {}
        self._by_peer: dict[int, SessionEndpoint] = {}
        self._output: list[bytes] = []
        self._events: list[Event] = []
        self._sent = self._received = False
        self._sent_at = self._received_at = 0.0

    # -- the connection

    def start(self, wanted: Parameters) -> None:
        """Begin on a new transport, which carries the bytes of `output`."""
        self._wanted = wanted
        self.state, self.error, self.remote = ConnectionState.LOGIN, None, None
        self.peer_max_frame_size = MIN_FRAME
        self._output.clear()
        self._by_peer.clear()
        self._reader = frames.FrameReader(wanted.max_frame_size)
        self._received_at = self._sent_at = 0.0
        self._handshake = LoginSteps(wanted, self.write)

    def receive(self, data: bytes) -> list[Event]:
        """Take bytes of the peer, and return what has happened.

        Errors end the connection: they are in `error` and in the event `Ended`, and a close that says why is in the
        output.
        """
        self._received = True
        try:
            self._reader.feed(data)
            self._advance()
        except AmqpError as error:
            self._violated(error)
        except CodecError as error:
            self._violated(ProtocolViolation(f"{self._wanted.address} sent what cannot be decoded: {error}"))
        events, self._events = self._events, []
        return events

    def output(self) -> bytes:
        """Return the bytes to send, and forget them."""
        if self.dirty:
            for session in self.dirty:
                session.flush()
            self.dirty.clear()
        if not self._output:
            return b""
        self._sent = True
        data = b"".join(self._output)
        self._output.clear()
        return data

    def close(self, error: Error | None = None) -> None:
        """Send close. Uncommitted transactions are rolled back; durable termini stay at the peer."""
        if self.state in (ConnectionState.OPENING, ConnectionState.OPEN):
            self.output_dispositions()
            self.write(frames.frame(0, encode_performative(Close(error=error))))
            self.state = ConnectionState.CLOSING
        elif self.state is not ConnectionState.CLOSING:
            self.lost("the connection was closed", final=True)

    def lost(self, why: str, *, final: bool = False) -> None:
        """The transport has ended. Unless `final`, sessions and links wait for the next `start`."""
        if self.state is not ConnectionState.ENDED:
            closed = self.state is ConnectionState.CLOSING
            self.state = ConnectionState.ENDED
            self.error = self.error or (None if closed else ConnectionLost(why))
            final = final or closed
            self._events.append(Ended(self.error))
        self.dirty.clear()
        for session in list(self._sessions.values()):
            session.lost(why, final=final)

    def tick(self, now: float) -> float:
        """Send a heartbeat if one is due at `now` (s). Returns the seconds until the next call, at most.

        If the peer was silent for too long, the connection is lost.
        """
        if self._sent or not self._sent_at:
            self._sent, self._sent_at = False, now
        if self._received or not self._received_at:
            self._received, self._received_at = False, now
        waits = [60.0]
        idle = 0.0 if self.remote is None else int(self.remote.idle_time_out or 0) / 1000
        if idle and self.state is ConnectionState.OPEN:
            if now - self._sent_at >= idle / 2:
                self._sent_at = now
                self.write(frames.EMPTY_FRAME)
            waits.append(idle / 4)
        limit = self._wanted.idle_timeout
        if limit and self.state in (ConnectionState.OPEN, ConnectionState.CLOSING):
            if now - self._received_at > limit:
                self.lost(f"{self._wanted.address} sent nothing for {limit:g} s, not even a heartbeat")
            waits.append(limit / 4)
        return min(waits)

    def output_dispositions(self) -> None:
        """Write the dispositions that wait into the output."""
        for session in self.dirty:
            session.flush()
        self.dirty.clear()

    # -- for sessions

    def session(self) -> SessionEndpoint:
        """Add a session. It begins now, or when the connection opens."""
        limit = _CHANNELS if self.remote is None else min(int(self.remote.channel_max) + 1, _CHANNELS)
        channel = next((number for number in range(limit) if number not in self._sessions), None)
        if channel is None:
            raise ConnectionLost(f"all {limit} channels of the connection are in use; end a session")
        session = self._sessions[channel] = SessionEndpoint(self, channel)
        if self.state is ConnectionState.OPEN:
            session.begin()
        return session

    def forget(self, session: SessionEndpoint) -> None:
        """A session is gone; its channel is free."""
        self._sessions.pop(session.channel, None)
        self._by_peer = {channel: each for channel, each in self._by_peer.items() if each is not session}
        self.dirty.discard(session)

    def write(self, frame: bytes) -> None:
        """Add a frame to the output."""
        self._output.append(frame)

    def event(self, event: Event) -> None:
        """Report an event with the input that caused it."""
        self._events.append(event)

    # -- inside

    def _advance(self) -> None:
        handshake = self._handshake
        if handshake is not None:
            handshake.advance(self._reader)
            if not handshake.done:
                return
            self._handshake = None
            self._open()
        reader = self._reader
        while (frame := reader.next()) is not None:
            _, channel, data, at, end = frame
            if at == end or self.state in (ConnectionState.CLOSING, ConnectionState.ENDED):
                if at != end and self.state is ConnectionState.CLOSING:
                    self._closing(data, at, end)
                continue
            performative, at = decode_performative(data, at, end)
            if type(performative) is Transfer:
                self._mapped(channel).on_transfer(performative, data[at:end])
            else:
                self._take(channel, performative)

    def _closing(self, data: bytes, at: int, end: int) -> None:
        if type(decode_performative(data, at, end)[0]) is Close:
            self.lost("the connection was closed", final=True)

    def _open(self) -> None:
        wanted = self._wanted
        self.state = ConnectionState.OPENING
        properties: dict[Any, Any] = {Symbol("product"): "escrowmq.amqp10", Symbol("version"): self._version}
        properties.update({Symbol(name): value for name, value in wanted.properties.items()})
        self.write(
            frames.frame(
                0,
                encode_performative(
                    Open(
                        container_id=self.container_id,
                        hostname=wanted.hostname,
                        max_frame_size=wanted.max_frame_size,
                        channel_max=_CHANNELS - 1,
                        idle_time_out=int(wanted.idle_timeout * 500) or None,  # half: the peer sends in time
                        properties=properties,
                    )
                ),
            )
        )

    def _take(self, channel: int, performative: Any) -> None:
        match performative:
            case Disposition():
                self._mapped(channel).on_disposition(performative)
            case Flow():
                self._mapped(channel).on_flow(performative)
            case Attach():
                self._mapped(channel).on_attach(performative)
            case Detach():
                self._mapped(channel).on_detach(performative)
            case Begin():
                self._on_begin(channel, performative)
            case End():
                self._mapped(channel).on_end(performative)
            case Open():
                self._on_open(performative)
            case Close():
                self._on_close(performative)
            case _:
                raise ProtocolViolation(f"{self._wanted.address} sent {type(performative).__name__} after the login")

    def _on_open(self, remote: Open) -> None:
        if self.state is not ConnectionState.OPENING:
            raise ProtocolViolation(f"{self._wanted.address} sent a second open")
        self.remote = remote
        if (remote.properties or {}).get(_REFUSAL):
            return
        self.state = ConnectionState.OPEN
        self.peer_max_frame_size = max(int(remote.max_frame_size), MIN_FRAME)
        self._events.append(Opened(remote.container_id))
        for session in list(self._sessions.values()):
            session.begin()

    def _on_begin(self, channel: int, begin: Begin) -> None:
        session = None if begin.remote_channel is None else self._sessions.get(int(begin.remote_channel))
        if session is None:
            raise ProtocolViolation(f"{self._wanted.address} began a session that the client did not ask for")
        self._by_peer[channel] = session
        session.on_begin(begin)

    def _on_close(self, close: Close) -> None:
        condition, description = described(close.error)
        refused = self.state is ConnectionState.OPENING and condition != _FORCED
        kind = ConnectionRefused if refused else ConnectionLost
        done = "refused" if refused else "closed"
        text = f"{self._wanted.address} {done} the connection: {reason(close.error, 'without a reason')}"
        self.error = kind(text, condition, description)
        self.write(frames.frame(0, encode_performative(Close())))
        self.lost(text)

    def _violated(self, error: AmqpError) -> None:
        self.error = error
        if self.state is ConnectionState.OPEN:
            condition = Symbol(error.condition or "amqp:framing-error")
            self.write(frames.frame(0, encode_performative(Close(Error(condition=condition, description=str(error))))))
        self.lost(str(error))

    def _mapped(self, channel: int) -> SessionEndpoint:
        session = self._by_peer.get(channel)
        if session is None:
            raise ProtocolViolation(f"{self._wanted.address} used channel {channel}, on which no session has begun")
        return session
