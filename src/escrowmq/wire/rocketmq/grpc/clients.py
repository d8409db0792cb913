"""The clients behind a connection, and their telemetry streams: settings up and down, checks of transactions down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError
from escrowmq.wire.rocketmq.grpc.answers import named, ok
from escrowmq.wire.rocketmq.grpc.attempts import ReceiveAttempts
from escrowmq.wire.rocketmq.grpc.leases import RenewedLeases
from escrowmq.wire.rocketmq.grpc.outgoing import outgoing_message
from escrowmq.wire.rocketmq.grpc.settings import completed
from escrowmq.wire.rocketmq.names import topic_fault
from escrowmq.wire.rocketmq.proto.definition_pb2 import ClientType, Settings
from escrowmq.wire.rocketmq.proto.service_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    RecoverOrphanedTransactionCommand,
    TelemetryCommand,
)

if TYPE_CHECKING:
    from escrowmq.core.half.message import HalfMessage
    from escrowmq.wire.rocketmq.grpc.calls import Call
    from escrowmq.wire.rocketmq.grpc.session import GrpcSession

MOST_TOPICS: Final = 1024
"""Topics of one client for which it gets checks."""


class GrpcClient:
    """One client. Its telemetry stream is the way by which the broker reaches it."""

    __slots__ = ("_session", "_topics", "attempts", "ident", "kind", "language", "leases", "telemetry")

    def __init__(self, session: GrpcSession, ident: str, language: str) -> None:
        self._session = session
        self.ident = ident
        self.language = language
        self.kind = ClientType.CLIENT_TYPE_UNSPECIFIED
        self.telemetry: Call | None = None
        self.leases = RenewedLeases(session.broker.engine)
        self.attempts = ReceiveAttempts()
        self._topics: dict[str, None] = {}  # to which it sends transactional messages

    @property
    def user(self) -> str:
        """The user as which the client has logged in."""
        return self._session.user

    @property
    def label(self) -> str:
        """The client's name, which it keeps when it connects again."""
        return self.ident

    def opened(self, call: Call) -> None:
        """The client has opened a telemetry stream, which replaces an earlier one."""
        earlier, self.telemetry = self.telemetry, call
        if earlier is not None:
            earlier.finish()

        def ended() -> None:
            if self.telemetry is call:
                self.telemetry = None
                self._session.broker.half.producers.leave(self)

        call.on_end = ended
        for topic in self._topics:
            self._join(topic)

    def configure(self, settings: Settings) -> None:
        """Take the client's settings, and answer with ours."""
        self.kind = settings.client_type
        for topic in settings.publishing.topics[:MOST_TOPICS]:
            self.produces(named(topic))
        if self.telemetry is not None:
            answer = completed(settings, self._session.retries(settings))
            self.telemetry.send(TelemetryCommand(status=ok(), settings=answer))

    def produces(self, topic: str) -> None:
        """Note that the client sends to a topic, so that it can be asked about half messages there."""
        if topic not in self._topics and len(self._topics) < MOST_TOPICS and not topic_fault(topic):
            self._topics[topic] = None
            if self.telemetry is not None:
                self._join(topic)

    def _join(self, topic: str) -> None:
        session = self._session
        session.door.check(Operation.JOIN_PRODUCERS)
        session.broker.half.producers.join(session.vhost.name, topic, self)

    def check(self, half: HalfMessage) -> bool:
        """Ask the client for its decision. Return whether the question was written to its telemetry stream (HALF-5)."""
        call = self.telemetry
        if call is None or not call.writable or not self._session.writable:
            return False
        try:
            message = outgoing_message(half.topic, half.envelope, half.content)
        except BrokerError:  # it cannot be read, or was decided meanwhile
            return False
        command = RecoverOrphanedTransactionCommand(message=message, transaction_id=half.message_id)
        call.send(TelemetryCommand(recover_orphaned_transaction_command=command))
        return True

    def end(self) -> None:
        """The client has ended, or its connection is lost."""
        self.leases.end()
        if self.telemetry is not None:
            self.telemetry.finish()

    def describe(self) -> dict[str, object]:
        """Return the client's entry in lists of connections."""
        kind = ClientType.Name(self.kind).lower().replace("_", " ") if self.kind in ClientType.values() else ""
        return {"id": self.ident, "language": self.language, "kind": kind, "telemetry": self.telemetry is not None}


def telemetry(session: GrpcSession, call: Call) -> None:
    """Open the stream over which a client and the broker exchange commands."""
    client = session.client(call)
    client.opened(call)

    def command(request: TelemetryCommand) -> None:
        if request.WhichOneof("command") == "settings":
            client.configure(request.settings)

    call.on_message = command


def heartbeat(session: GrpcSession, call: Call, request: HeartbeatRequest) -> None:
    """Note that a client is alive. The connection itself tells when it is gone."""
    client = session.client(call)
    client.kind = request.client_type or client.kind
    call.answer(HeartbeatResponse(status=ok()))


def notify_client_termination(session: GrpcSession, call: Call, request: NotifyClientTerminationRequest) -> None:
    """Forget a client that ends."""
    client = session.client(call)
    session.forget(client)
    call.answer(NotifyClientTerminationResponse(status=ok()))
