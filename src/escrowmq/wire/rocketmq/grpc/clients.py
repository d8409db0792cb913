"""The clients behind a connection, and their telemetry streams: settings up and down, checks of transactions down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.wire.rocketmq.grpc.answers import ok
from escrowmq.wire.rocketmq.grpc.settings import completed
from escrowmq.wire.rocketmq.proto.definition_pb2 import ClientType, Settings
from escrowmq.wire.rocketmq.proto.service_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    TelemetryCommand,
)

if TYPE_CHECKING:
    from escrowmq.wire.rocketmq.grpc.calls import Call
    from escrowmq.wire.rocketmq.grpc.session import GrpcSession


class GrpcClient:
    """One client. Its telemetry stream is the way by which the broker reaches it."""

    __slots__ = ("_session", "ident", "kind", "language", "settings", "telemetry")

    def __init__(self, session: GrpcSession, ident: str, language: str) -> None:
        self._session = session
        self.ident = ident
        self.language = language
        self.kind = ClientType.CLIENT_TYPE_UNSPECIFIED
        self.settings = Settings()
        self.telemetry: Call | None = None

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
                self._session.left(self)

        call.on_end = ended

    def configure(self, settings: Settings) -> None:
        """Take the client's settings, and answer with ours."""
        self.settings = settings
        self.kind = settings.client_type
        self._session.settings_changed(self)
        if self.telemetry is not None:
            answer = completed(settings, self._session.retries(settings))
            self.telemetry.send(TelemetryCommand(status=ok(), settings=answer))

    def describe(self) -> dict[str, object]:
        """Return the client's entry in lists of connections."""
        kind = ClientType.Name(self.kind).lower().replace("_", " ") if self.kind else ""
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
