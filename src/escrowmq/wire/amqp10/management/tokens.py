"""The request by which clients of OAuth renew their token."""

from __future__ import annotations

from escrowmq.wire.amqp10.management.requests import ManagementRequest, Problem, Response


def renew(request: ManagementRequest) -> Response:
    """Accept a new token. As with `connection.update-secret` of AMQP 0-9-1, the login does not depend on it."""
    if not isinstance(request.body, bytes):
        raise Problem(400, "the body must be a token, as binary")
    request.connection.update_secret(request.body)
    return Response(204)
