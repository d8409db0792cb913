"""A connection of classic remoting: frames in, requests by a table, responses out."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from escrowmq.core.budget import METHOD
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.flow import OutputFlow
from escrowmq.wire.outbox import Outbox, Piece
from escrowmq.wire.rocketmq.keys import enter_with_key
from escrowmq.wire.rocketmq.login import RocketmqLogin
from escrowmq.wire.rocketmq.remoting.clients import ConsumerRegistry
from escrowmq.wire.rocketmq.remoting.codes import UNSUPPORTED, Code, ResultCode
from escrowmq.wire.rocketmq.remoting.errors import RESULTS, RequestFault
from escrowmq.wire.rocketmq.remoting.frames import (
    HEAD,
    ONE_WAY,
    RESPONSE,
    Command,
    RemotingError,
    encode,
    frame_size,
)
from escrowmq.wire.rocketmq.remoting.producing import RemotingProducer
from escrowmq.wire.rocketmq.remoting.pulling import HeldPulls
from escrowmq.wire.rocketmq.remoting.questions import Answered, Questions
from escrowmq.wire.rocketmq.remoting.requests import HANDLERS
from escrowmq.wire.rocketmq.remoting.runs import SendRuns
from escrowmq.wire.rocketmq.remoting.sending import born_at
from escrowmq.wire.rocketmq.remoting.shapes import HeaderShapes
from escrowmq.wire.rocketmq.signature import remoting_proof
from escrowmq.wire.rocketmq.topics import Catalogue
from escrowmq.wire.unread import Unread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from escrowmq.core.broker import Broker
    from escrowmq.core.engine import Engine
    from escrowmq.wire.endpoint import Host, Peer
    from escrowmq.wire.rocketmq.options import RocketmqOptions

SILENCE_MS: Final = 120_000
"""The time without any request after which a client is given up. Clients send heartbeats every 30 seconds."""
LARGE_BODY: Final = 64 << 10
LONGEST_LANGUAGE: Final = 64
ACCESS_KEY: Final = "AccessKey"
_LANES: Final = 1 << 30


class RemotingConnection:
    """The endpoint of one connection (`wire.endpoint.Endpoint`).

    Each response has a lane of its own, so no response waits for another: clients tell them apart by their number.
    """

    def __init__(self, host: Host, peer: Peer, label: str = "") -> None:
        self._host = host
        self.peer = peer
        self.label = label or str(peer)
        self.broker: Broker = host.broker
        self.engine: Engine = host.broker.engine
        self.options: RocketmqOptions = host.limits.rocketmq
        self.largest_body = host.limits.message_size
        self.most_subscriptions = host.limits.subscriptions
        self.login = RocketmqLogin(host, self, peer, "rocketmq-remoting")
        self.consumers = host.common(ConsumerRegistry)
        self.producer = RemotingProducer(self)
        self.client_id = ""
        self.finished = False
        self.large_bodies = False
        self.answered = True
        self.busy_reason = ""
        self.born = born_at(peer)
        self.address: tuple[bytes, int] = (
            address_of(self.options.advertised_host or peer.local_host),
            self.options.broker_port,
        )
        self._outbox = Outbox(host.broker.log)
        self.flow = OutputFlow(self._outbox, host.limits.outbox, self._read_on)
        self.pulls = HeldPulls(self)
        self._sends = SendRuns(self)
        self._headers = HeaderShapes()
        self._unread = Unread()
        self._lane = 0
        self._number = 0
        self._turn = 0
        self._catalogue: Catalogue | None = None
        self._publishes = False
        self._closed = False
        self._has_key = False
        self._changed: dict[str, None] = {}  # groups of which the client has yet to be told
        self.searches: int = 0
        self._questions = Questions(self)

    # -- called by the server

    def receive(self, data: bytes) -> None:
        """Process bytes from the socket. Empty `data` means to continue with the bytes that were held back."""
        unread = self._unread
        unread.add(data, unread.need)
        if self._closed or not unread.ready or self.flow.is_crowded:
            return
        data, at, crowded = unread.take(), 0, False
        budget, sends = self.engine.requests, self._sends
        budget.admit()
        try:
            while len(data) - at >= HEAD and not crowded:
                if budget.left <= 0:
                    unread.add(data[at:])
                    self._host.carry_on(self)
                    return
                size = frame_size(data[at : at + HEAD])
                if len(data) - at < size:
                    self.large_bodies = size > LARGE_BODY
                    unread.add(data[at:] if at else data, size)
                    return
                command = self._headers.decode(data[at : at + size])
                at += size
                budget.left -= METHOD
                if not sends.take(command):
                    sends.flush()
                    self._handle(command)
                crowded = self.flow.crowded()
        except RemotingError as error:
            self._host.failed(self, "malformed", str(error))
            self._end()
            return
        finally:
            sends.flush()
        unread.add(data[at:], 0 if crowded else HEAD)

    def output(self) -> list[Piece]:
        """Remove and return the bytes that can be sent now."""
        changed, self._changed = self._changed, {}
        for group in changed:
            self.request(Code.CONSUMERS_CHANGED, {"consumerGroup": group})
        pieces = self._outbox.take()
        self.flow.relax()
        if self._closed and not self._outbox.holding:
            self.finished = True
        return pieces

    def synced(self, lsn: int) -> bool:
        """Release output that waited for a sync up to `lsn`. Return True while output is still held."""
        holding = self._outbox.release(lsn)
        self._host.stir(self)
        return holding

    def congested(self, unsent: int) -> None:
        """Note that `unsent` bytes wait in the socket's buffer."""
        self.flow.congested(unsent)

    def block(self, reason: str) -> None:
        """Refuse sends as busy while there is a reason; the clients try again."""
        self.busy_reason = reason

    def tick(self, now_ms: int, idle_in_ms: int, idle_out_ms: int) -> None:
        """Give up on a silent client."""
        del now_ms, idle_out_ms
        if idle_in_ms > SILENCE_MS:
            self._host.failed(self, "silent", f"nothing arrived for {idle_in_ms / 1000:g} s")
            self._end()

    @property
    def unread(self) -> int:
        """See `Endpoint.unread`."""
        return self._unread.size

    def permissions_changed(self) -> Iterator[None]:
        """Do nothing: each request is checked by itself."""
        return iter(())

    def shut(self, text: str) -> None:
        """Close the connection; clients connect again by themselves."""
        del text
        self._end()

    def lost(self) -> None:
        """Release everything after the connection was lost."""
        self._closed = True
        self.pulls.close()
        self._questions.close()
        self.consumers.leave_all(self)
        self.producer.close()
        # These parts refer to the connection. Without them its memory is free at once, and needs no garbage collector.
        del self.flow, self.pulls, self.producer, self.login, self._questions, self._sends

    def describe(self) -> dict[str, object]:
        """Return the connection's entry in lists of connections. It contains nothing secret."""
        return {
            "name": self.label,
            "peer": str(self.peer),
            "protocol": "RocketMQ remoting",
            "user": self.login.user,
            "vhost": self.login.vhost_name,
            "state": "running" if self.login.user else "login",
            "channels": 0,
            "tls": self.peer.tls,
            "client": {"client id": self.client_id, "consumer groups": len(self.consumers.groups_of(self))},
        }

    def channel_rows(self) -> Iterator[dict[str, object]]:
        """See `Endpoint.channel_rows`: the protocol has no channels."""
        return iter(())

    # -- called by the handlers of requests

    @property
    def is_anonymous(self) -> bool:
        """Whether the client has logged in without an access key."""
        return bool(self.login.user) and not self._has_key

    @property
    def writable(self) -> bool:
        """Whether a request of the broker's own, or messages, may be sent now."""
        return not self._closed and self.flow.writable

    @property
    def is_closed(self) -> bool:
        """Whether the connection is gone, or about to be."""
        return self._closed

    @property
    def catalogue(self) -> Catalogue:
        """The topics and groups, for the user of this connection."""
        if self._catalogue is None:
            self._catalogue = Catalogue(self.broker, self.login.vhost, self.login.door)
        return self._catalogue

    def next_queue(self, count: int) -> int:
        """Return the next of `count` queues, in turn, for a message whose producer has chosen none."""
        self._turn += 1
        return self._turn % count

    def failed(self, code: str, text: str) -> None:
        """Log a fault of the client."""
        self._host.failed(self, code, text)

    def note_client(self, client_id: str, request: Command) -> None:
        """Keep the client's id, language and version, for lists."""
        self.producer.client_id, self.producer.seen_ms = client_id, self.engine.now
        self.producer.language, self.producer.version = request.language[:LONGEST_LANGUAGE], request.version
        if client_id != self.client_id:
            self.client_id = client_id
            self.label = f"{self.peer} ({client_id[:100]})"

    def publishes(self) -> None:
        """Note that the client sends. Raises RequestFault while the broker has no room for messages."""
        if not self._publishes:
            self._publishes = True
            self._host.publishing(self)  # this call may block the endpoint at once
        if self.busy_reason:
            raise RequestFault(ResultCode.SYSTEM_BUSY, f"the broker accepts no messages now: {self.busy_reason}")

    def respond(self, request: Command, response: Command, after: int = 0, *, urgent: bool = True) -> None:
        """Send a response when the log is synced up to `after`. See `HandlerReply`."""
        if request.is_one_way or self._closed:
            return
        if urgent:
            after = self.engine.log.proof_lsn(after)
        response.opaque = request.opaque
        response.flag = RESPONSE
        response.form = request.form
        self.put(encode(response), after, urgent=urgent)

    def request(self, code: Code, fields: dict[str, str], body: bytes = b"") -> None:
        """Send a request of the broker's own, to which the client sends no response."""
        self._number = (self._number + 1) % _LANES
        self.put(encode(Command(code, fields, body, self._number, ONE_WAY)), 0)

    def ask(self, code: Code, fields: dict[str, str], body: bytes, answered: Answered) -> None:
        """Send a request of the broker's own, and call `answered` with the response, or with None if there is none in
        time, or the client does not read.
        """
        if not self.writable:
            answered(None)
            return
        self._number = (self._number + 1) % _LANES
        if self._questions.add(self._number, answered):
            self.put(encode(Command(code, fields, body, self._number)), 0)

    def consumers_changed(self, group: str) -> None:
        """See `Notified.consumers_changed`. The client is told once at the end of the turn."""
        if not self._closed:
            self._changed[group] = None
            self._host.stir(self)

    # -- inside

    def _handle(self, command: Command) -> None:
        if command.is_response:
            self._questions.answer(command)
            return
        try:
            self._log_in(command)
        except BrokerError as error:
            self.login.refusals.login(command.fields.get(ACCESS_KEY, ""), error.text)
            self.respond(command, Command(RESULTS[error.condition], remark=error.text))
            return
        try:
            handler = HANDLERS.get(command.code)
            if handler is None:
                text = UNSUPPORTED.get(command.code, "it is not supported")
                raise RequestFault(ResultCode.NOT_SUPPORTED, f"request code {command.code}: {text}")
            reply = handler(self, command)
        except RequestFault as fault:
            self.respond(command, Command(fault.result, remark=fault.text))
        except BrokerError as error:
            self.login.refusals.call(error)
            self.respond(command, Command(RESULTS[error.condition], remark=error.text))
        else:
            if reply is not None:
                self.respond(command, reply.response, reply.after, urgent=reply.urgent)

    def _log_in(self, command: Command) -> None:
        """Check the signature of each request of a client with an access key. Raises BrokerError."""
        access_key = command.fields.get(ACCESS_KEY)
        if access_key is not None:
            proof = remoting_proof(command.fields, command.body, command.version)
            enter_with_key(self._host, self.login, access_key, proof)
            self._has_key = True
        elif self._has_key:
            raise BrokerError(Condition.ACCESS_REFUSED, "a request on a connection with an access key is not signed")
        elif not self.login.user:
            self.login.enter_anonymously()

    def put(self, data: bytes, after: int, *, urgent: bool = True) -> None:
        """Send bytes when the log is synced up to `after`, independent of all others. See `HandlerReply`."""
        if self._closed:
            return
        self._lane = self._lane % _LANES + 1
        self._outbox.put(self._lane, data, after)
        if after and self._outbox.holding:
            self._host.await_sync(self, urgent=urgent)
        self._host.stir(self)

    def _read_on(self) -> None:
        self._host.stir(self)
        self.receive(b"")

    def _end(self) -> None:
        self._closed = True
        self._unread.clear()
        self._host.stir(self)


def address_of(host: str) -> bytes:
    """Return a numeric address in 4 or 16 octets; that of 127.0.0.1 for a name, which ids cannot contain."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return bytes((127, 0, 0, 1))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).packed
