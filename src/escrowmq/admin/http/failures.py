"""What a request that fails is answered with, by the exception that its handler raises."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from escrowmq.admin.http.answers import JsonAnswer
from escrowmq.admin.http.broker import BrokerRefused, BrokerUnavailable
from escrowmq.admin.http.headers import SAFE
from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.logins import NotAuthorised
from escrowmq.admin.http.management import HealthFailure, NothingThere
from escrowmq.admin.http.refusals import refusal

NOT_ALLOWED: Final = "this path does not take this method"
_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="EscrowMQ"'}
_log = logging.getLogger("escrowmq.http")


async def _not_authorised(request: Request, error: Exception) -> Response:
    del request
    body = {"error": "not_authorized", "reason": str(error)}
    return JsonAnswer(body, 401, _CHALLENGE)


async def _not_found(request: Request, error: Exception) -> Response:
    del request
    return JsonAnswer({"error": "Object Not Found", "reason": str(error) or "Not Found"}, 404)


async def _unhealthy(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HealthFailure)
    return JsonAnswer({"status": "failed", "reason": str(error), **error.more}, 503)


async def _unavailable(request: Request, error: Exception) -> Response:
    _log.warning("%s: %s", request.url.path, error)
    return JsonAnswer({"error": "unavailable", "reason": "the broker does not answer"}, 503)


async def _refused(request: Request, error: Exception) -> Response:
    del request
    return JsonAnswer({"error": "bad_request", "reason": str(error)}, 400)


async def _broker_refused(request: Request, error: Exception) -> Response:
    """Answer what the broker refused; a decision of an operator that is not possible is 400, whatever the reason."""
    assert isinstance(error, BrokerRefused)
    if request.url.path.startswith("/api/escrow/"):
        return await _refused(request, error)
    found = refusal(error)
    headers = _CHALLENGE if found.status == HTTPStatus.UNAUTHORIZED else {}
    return JsonAnswer({"error": found.error, "reason": found.reason}, found.status, headers)


async def _gone(request: Request, error: Exception) -> Response:
    """Answer a client that is gone: nobody reads it, and it is no fault of the process."""
    del request, error
    return Response(status_code=400)


async def _internal(request: Request, error: Exception) -> Response:
    """Answer after a fault of the process, which is in the log."""
    del request, error
    return JsonAnswer({"error": "internal_error", "reason": "see the broker's log"}, 500, SAFE)


async def _fault(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)
    names: dict[int, Any] = {
        400: "bad_request",
        403: "forbidden",
        404: "Object Not Found",
        405: "Method Not Allowed",
        413: "payload_too_large",
        429: "too_many_requests",
        501: "not_implemented",
        503: "unavailable",
    }
    reason = NOT_ALLOWED if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED else error.detail
    return JsonAnswer(
        {"error": names.get(error.status_code, "error"), "reason": reason}, error.status_code, error.headers
    )


FAILURES: Final[Mapping[Any, Callable[[Request, Exception], Awaitable[Response]]]] = {
    NotAuthorised: _not_authorised,
    NothingThere: _not_found,
    BadQuery: _refused,
    HealthFailure: _unhealthy,
    BrokerUnavailable: _unavailable,
    BrokerRefused: _broker_refused,
    HTTPException: _fault,
    ClientDisconnect: _gone,
    Exception: _internal,
}
"""The exception handlers of an application."""
