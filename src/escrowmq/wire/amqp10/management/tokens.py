"""The request by which clients of OAuth renew their token."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.wire.amqp10.handshake import ConnectionState
from escrowmq.wire.amqp10.management.requests import AwaitedResponse, ManagementRequest, Problem, Response, refused


def renew(request: ManagementRequest) -> AwaitedResponse:
    """Take a new token. After a refusal, the connection ends with the former one."""
    token = request.body
    if not isinstance(token, bytes):
        raise Problem(400, "the body must be a token, as binary")

    def begin(respond: Callable[[Response], None]) -> None:
        def done(refusal: str) -> None:
            if request.connection.state is ConnectionState.RUNNING:
                respond(refused(Problem(403, refusal)) if refusal else Response(204))

        request.connection.login.renew(token, done)

    return AwaitedResponse(begin)
