"""The endpoint of one gRPC connection: HTTP/2 below, the services of RocketMQ above.

The first call logs the client in: as the user of the access key that it names, or as the user for clients without one.
Later calls must be of the same user.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from escrowmq.core.budget import METHOD
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.flow import OutputFlow
from escrowmq.wire.http2.connection import Http2Connection
from escrowmq.wire.http2.frames import ErrorCode, Http2Fault
from escrowmq.wire.http2.headers import encode
from escrowmq.wire.http2.limits import SETTINGS, Http2Limits
from escrowmq.wire.outbox import Outbox, Piece
from escrowmq.wire.rocketmq.grpc.answers import RocketmqRefusal, refusal
from escrowmq.wire.rocketmq.grpc.calls import Call
from escrowmq.wire.rocketmq.grpc.identity import claim_of
from escrowmq.wire.rocketmq.grpc.methods import METHODS, UnaryMethod
from escrowmq.wire.rocketmq.grpc.session import GrpcSession
from escrowmq.wire.rocketmq.grpc.status import GrpcFault, GrpcStatus
from escrowmq.wire.rocketmq.keys import enter_with_key
from escrowmq.wire.rocketmq.login import RocketmqLogin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from escrowmq.wire.endpoint import Host, Peer
    from escrowmq.wire.http2.headers import Headers
    from escrowmq.wire.http2.stream import Stream

INCOMPLETE: Final = 32 << 20
"""Octets of incomplete requests that a connection may have."""
_CONTENT_TYPE: Final = b"application/grpc"
_UNSUPPORTED: Final = encode([(b":status", b"415"), (b"content-type", b"text/plain")])
_ONLY_GRPC: Final = b"this port serves gRPC\n"
_DENIED: Final = frozenset({Condition.ACCESS_REFUSED, Condition.NOT_ALLOWED})


class GrpcEndpoint:
    """The endpoint of one connection (`wire.endpoint.Endpoint`)."""

    def __init__(self, host: Host, peer: Peer) -> None:
        self._host = host
        self.peer = peer
        self.label = f"{peer} (RocketMQ gRPC)"
        self.large_bodies = False
        self.answered = True
        self._broker = host.broker
        self._requests = host.broker.engine.requests
        self._outbox = Outbox(host.broker.log)
        self.flow = OutputFlow(self._outbox, host.limits.outbox, self._read_on)
        self._http2 = Http2Connection(self, self._put, Http2Limits(), self._pauses)
        self._login = RocketmqLogin(host, self, peer, "rocketmq-grpc")
        self._session: GrpcSession | None = None
        self._incomplete = 0
        self._is_lost = False
        self._blocked = ""

    # -- called by the server

    def receive(self, data: bytes) -> None:
        """See `Endpoint.receive`."""
        http2 = self._http2
        if self.flow.is_crowded:
            self.flow.crowded()
        http2.receive(data)
        if self._session is not None:
            self._session.gathered.flush()
        if http2.fault is not None and http2.fault.code:
            self._host.failed(self, http2.fault.code.name, http2.fault.text)
        elif http2.has_unread and self._requests.left <= 0:
            self._host.carry_on(self)

    def output(self) -> list[Piece]:
        """See `Endpoint.output`."""
        pieces = self._outbox.take()
        self.flow.relax()
        return pieces

    @property
    def finished(self) -> bool:
        """See `Endpoint.finished`."""
        return self._http2.is_closed and not self._outbox.holding

    def synced(self, lsn: int) -> bool:
        """See `Endpoint.synced`."""
        holding = self._outbox.release(lsn)
        self._host.stir(self)
        return holding

    def congested(self, unsent: int) -> None:
        """See `Endpoint.congested`."""
        self.flow.congested(unsent)

    def block(self, reason: str) -> None:
        """Refuse messages while there is a reason; clients try again."""
        self._blocked = reason
        if self._session is not None:
            self._session.blocked = reason

    def tick(self, now_ms: int, idle_in_ms: int, idle_out_ms: int) -> None:
        """Probe a silent client, and give up on one that does not answer."""
        self._http2.patience.tick()
        limit_ms = self._host.limits.heartbeat * 2000
        if limit_ms and idle_in_ms > limit_ms:
            self.shut(f"nothing arrived for {idle_in_ms / 1000:g} s")
        elif limit_ms and idle_in_ms * 2 > limit_ms:
            self._http2.ping()

    @property
    def unread(self) -> int:
        """See `Endpoint.unread`."""
        return self._http2.unread

    def permissions_changed(self) -> Iterator[None]:
        """Do nothing: each call and each delivery is checked."""
        return iter(())

    def shut(self, text: str) -> None:
        """See `Endpoint.shut`."""
        self._http2.end(Http2Fault(ErrorCode.NO_ERROR, text))
        self._host.stir(self)

    def lost(self) -> None:
        """See `Endpoint.lost`."""
        self._is_lost = True
        self._http2.abandon()
        if self._session is not None:
            self._session.end()
        # These parts refer to the endpoint. Without them its memory is free at once, and needs no garbage collector.
        del self._http2, self.flow, self._login, self._session

    def describe(self) -> dict[str, object]:
        """See `Endpoint.describe`."""
        session = self._session
        return {
            "name": self.label,
            "peer": str(self.peer),
            "protocol": "RocketMQ gRPC",
            "user": self._login.user,
            "vhost": self._login.vhost_name,
            "state": "running" if session is not None else "opening",
            "channels": len(self._http2.streams),
            "tls": self.peer.tls,
            "client": {},
            "clients": [] if session is None else [client.describe() for client in session.clients.values()],
        }

    def channel_rows(self) -> Iterator[dict[str, object]]:
        """See `Endpoint.channel_rows`: the protocol has no channels."""
        return iter(())

    # -- called by HTTP/2

    def opened(self, stream: Stream, headers: Headers) -> None:
        """A call has begun. A request of another kind than gRPC is refused at its end, as by any server of HTTP."""
        if not any(name == b"content-type" and value.startswith(_CONTENT_TYPE) for name, value in headers):
            self._requests.left -= METHOD
            return
        try:
            engine = self._broker.engine
            call = Call(self._http2, stream, headers, engine.now, engine.log.proof_lsn)
        except GrpcFault as fault:
            self._refuse(stream, headers, fault)
            return
        stream.call = call
        method = METHODS.get(call.metadata[b":path"])
        if not isinstance(method, UnaryMethod):
            self._requests.left -= METHOD
        if method is None:
            call.fail(GrpcFault(GrpcStatus.UNIMPLEMENTED, "the service has no such method"))
            return
        call.method = method
        try:
            self._open(self._identify(call), call)
        except GrpcFault as fault:
            self._requests.left -= METHOD
            call.fail(fault)

    def _refuse(self, stream: Stream, headers: Headers, fault: GrpcFault) -> None:
        self._requests.left -= METHOD
        kept = [(name, value) for name, value in headers if name not in {b"grpc-encoding", b"grpc-timeout"}]
        Call(self._http2, stream, kept, 0).fail(fault)

    def data(self, stream: Stream, data: bytes) -> None:
        """A part of a request has arrived."""
        call = stream.call
        if not isinstance(call, Call) or call.is_over:
            return
        try:
            found = call.reader.feed(data)
            if isinstance(call.method, UnaryMethod):
                call.requests += found
            self._incomplete += call.kept - call.counted
            call.counted = call.kept
            if self._incomplete > INCOMPLETE:
                raise GrpcFault(GrpcStatus.RESOURCE_EXHAUSTED, "too many incomplete requests on one connection")
            if len(call.requests) > 1:
                raise _not_one()
        except GrpcFault as fault:
            self._give_up(call, fault)
            return
        self.large_bodies = call.reader.size > len(data)
        if not found:
            self._requests.left -= 1  # so that DATA in many small frames is divided into turns
        if call.on_message is not None:
            for message in found:
                self._http2.patience.spend(SETTINGS)
                self._message(call, message)

    def ended(self, stream: Stream) -> None:
        """The client has sent all of a call's requests."""
        call = stream.call
        if not isinstance(call, Call):
            self._http2.respond(stream, _UNSUPPORTED, _ONLY_GRPC, b"")
            return
        if call.is_over:
            return
        self._drop_incomplete(call)
        if not isinstance(call.method, UnaryMethod):
            call.finish()
        elif len(call.requests) != 1:
            call.fail(_not_one())
        elif self._session is not None:
            self._run(self._session, call, call.method, call.requests.pop())

    def cancelled(self, stream: Stream) -> None:
        """The client has given a call up, or the connection has ended."""
        call = stream.call
        if isinstance(call, Call):
            self._drop_incomplete(call)
            call.over()

    # -- calls

    def _run(self, session: GrpcSession, call: Call, method: UnaryMethod, data: bytes) -> None:
        self._requests.left -= METHOD
        try:
            request = method.request.FromString(data)
            if method.gather is not None and method.gather(session.gathered, call, request):
                return  # the answer follows at the end of this read
            session.gathered.flush()
            method.handle(session, call, request)
        except DecodeError:
            call.fail(GrpcFault(GrpcStatus.INTERNAL, "the request is no message of its type"))
        except BrokerError as error:
            self._login.refusals.call(error)
            call.answer(method.response(status=refusal(error)))
        except RocketmqRefusal as error:
            call.answer(method.response(status=error.status))
        except GrpcFault as fault:
            call.fail(fault)
        self._watch(call)

    def _watch(self, call: Call) -> None:
        """End a call at its deadline."""
        if call.due is not None and not call.is_over and call.deadline is None:
            call.deadline = self._broker.engine.deadlines.set(call.due, partial(self._expire, call))

    def _expire(self, call: Call) -> None:
        self._give_up(call, GrpcFault(GrpcStatus.DEADLINE_EXCEEDED, "the deadline of the call has passed"))

    def _open(self, session: GrpcSession, call: Call) -> None:
        """Open a stream of requests."""
        if isinstance(call.method, UnaryMethod):
            return
        try:
            call.method.open(session, call)
        except RocketmqRefusal as error:
            call.fail(GrpcFault(GrpcStatus.INVALID_ARGUMENT, error.status.message))
        self._watch(call)

    def _message(self, call: Call, data: bytes) -> None:
        self._requests.left -= METHOD
        handle = call.on_message
        if handle is None:
            return
        try:
            handle(call.method.request.FromString(data))
        except DecodeError:
            self._give_up(call, GrpcFault(GrpcStatus.INTERNAL, "the request is no message of its type"))
        except BrokerError as error:
            self._login.refusals.call(error)
            status = GrpcStatus.PERMISSION_DENIED if error.condition in _DENIED else GrpcStatus.INVALID_ARGUMENT
            self._give_up(call, GrpcFault(status, error.text))
        except RocketmqRefusal as error:
            self._give_up(call, GrpcFault(GrpcStatus.INVALID_ARGUMENT, str(error)))

    def _give_up(self, call: Call, fault: GrpcFault) -> None:
        self._drop_incomplete(call)
        call.fail(fault)

    def _drop_incomplete(self, call: Call) -> None:
        self._incomplete -= call.counted
        call.counted = 0
        call.reader.clear()

    # -- the login

    def _identify(self, call: Call) -> GrpcSession:
        """Return the session in which a call acts. Raises GrpcFault if it does not prove to be of the same user."""
        login = self._login
        try:
            claim = claim_of(call.metadata)
        except GrpcFault as fault:
            login.refusals.login("", fault.text)
            raise
        try:
            if claim.access_key:
                enter_with_key(self._host, login, claim.access_key, claim.proof)
            else:
                login.enter_anonymously()
        except BrokerError as error:
            login.refusals.login(claim.access_key, error.text)
            raise GrpcFault(GrpcStatus.UNAUTHENTICATED, error.text) from None
        if self._session is None:
            self._session = GrpcSession(self._host, self, self.peer, login)
            self._session.blocked = self._blocked
        return self._session

    # -- output

    def _put(self, lane: int, data: bytes, after: int) -> None:
        outbox = self._outbox
        outbox.put(lane, data, after)
        if after and outbox.holding:
            self._host.await_sync(self)
        self._host.stir(self)

    def _pauses(self) -> bool:
        return self.flow.is_crowded or self._requests.left <= 0

    def _read_on(self) -> None:
        if not self._is_lost and self._http2.has_unread:
            self._host.carry_on(self)


def _not_one() -> GrpcFault:
    return GrpcFault(GrpcStatus.INVALID_ARGUMENT, "the method takes exactly one request")
