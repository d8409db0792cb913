"""The routes of the HTTP process. Each one but `/health` needs a login, unless metrics are configured to be open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from escrowmq.admin.http.access_changes import ACCESS_CHANGES
from escrowmq.admin.http.answers import JsonAnswer
from escrowmq.admin.http.broker import AskedBroker, BrokerRefused, BrokerUnavailable
from escrowmq.admin.http.channels import CHANNEL_ROUTES
from escrowmq.admin.http.definition_routes import DEFINITION_CHANGES, DEFINITION_ROUTES
from escrowmq.admin.http.escrow import CHANGE_PATHS, ESCROW_ROUTES, check_kind, reason_of
from escrowmq.admin.http.headers import SAFE, SafeHeaders
from escrowmq.admin.http.kept_lists import KeptLists
from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.logins import ADMINISTRATOR, NotAuthorised, Operator, login_of, monitor
from escrowmq.admin.http.management import MANAGEMENT, READ_ROUTES, HealthFailure, NothingThere, Reading, ReadRoute
from escrowmq.admin.http.metrics import FAMILIES, detailed, exposition, identity, overview, replication
from escrowmq.admin.http.object_changes import OBJECT_CHANGES
from escrowmq.admin.http.paths import PathTable, segments
from escrowmq.admin.http.policies import POLICY_CHANGES, POLICY_ROUTES
from escrowmq.admin.http.refusals import refusal
from escrowmq.admin.http.turns import RequestTurns
from escrowmq.admin.http.writing import LONGEST_BODY, WriteRoute, Writing, parsed

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
CHANGE_ROUTES: Final = {**ACCESS_CHANGES, **OBJECT_CHANGES, **DEFINITION_CHANGES, **POLICY_CHANGES}
READING: Final = {**READ_ROUTES, **CHANNEL_ROUTES, **ESCROW_ROUTES, **DEFINITION_ROUTES, **POLICY_ROUTES}
HEALTH_SECONDS: Final = 5.0
"""The time in which the broker must answer for `/health`."""
NO_PATH: Final = "the HTTP API of this broker has no such path, see docs/guides/http-api.md"
NOT_ALLOWED: Final = "this path does not take this method"
_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="EscrowMQ"'}
T = TypeVar("T")
_log = logging.getLogger("escrowmq.http")

Handler = Callable[[Request], Awaitable[Response]]


class MoreRoutes(NamedTuple):
    """Routes by path below `/api/` that are answered from elsewhere: for reading, and for changes by method."""

    reading: Mapping[str, ReadRoute]
    changes: Mapping[str, Mapping[str, WriteRoute]]


NO_ROUTES: Final = MoreRoutes({}, {})


class HttpInterface:
    """Answers requests by operations of `broker`. With `open_metrics`, metrics are shown without a login. `more` has
    further routes. `lists` are those that the process keeps. Requests get their turns from `turns`.
    """

    def __init__(
        self,
        broker: AskedBroker,
        *,
        open_metrics: bool = False,
        more: MoreRoutes = NO_ROUTES,
        lists: KeptLists | None = None,
        turns: RequestTurns | None = None,
    ) -> None:
        self._broker = broker
        self._lists = lists or KeptLists(broker)
        self._turns = turns or RequestTurns()
        self._open_metrics = open_metrics
        self._paths = PathTable({**READING, **more.reading})
        self._write_paths = PathTable({**CHANGE_ROUTES, **more.changes})

    def app(self, others: Sequence[BaseRoute] = ()) -> Starlette:
        """Return the application, which also has the routes `others`."""
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/health/leader", self.leader_health),
                Route("/metrics", self.metrics),
                Route("/metrics/detailed", self.metrics_detailed),
                Route("/api/{path:rest}", self.read),
                Route("/api/{path:rest}", self.change, methods=["POST", "PUT", "DELETE"]),
                *others,
            ],
            middleware=[Middleware(SafeHeaders)],
            exception_handlers={
                NotAuthorised: _not_authorised,
                NothingThere: _not_found,
                BadQuery: _refused,
                HealthFailure: _unhealthy,
                BrokerUnavailable: _unavailable,
                BrokerRefused: _broker_refused,
                HTTPException: _fault,
                ClientDisconnect: _gone,
                Exception: _internal,
            },
        )

    async def health(self, request: Request) -> Response:
        """Say whether the broker answers in time, and whether it is a standby. Raises BrokerUnavailable."""
        del request
        return JsonAnswer({"status": await self._role() or "ok"})

    async def leader_health(self, request: Request) -> Response:
        """Say whether the broker serves clients, which a standby does not. Raises BrokerUnavailable."""
        del request
        role = await self._role()
        return JsonAnswer({"status": role or "ok"}, 503 if role else 200)

    async def _role(self) -> str:
        """Return `standby` if the broker is one, and nothing otherwise."""
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                return await self._broker.ask("ping") or ""
        except TimeoutError as error:
            raise BrokerUnavailable(f"the broker did not answer within {HEALTH_SECONDS:g} s") from error

    async def read(self, request: Request) -> Response:
        """Answer a request of RabbitMQ's management API (see `management.READ_ROUTES`)."""
        operator = await self._user(request)
        route, names = _found(request, self._paths)
        if not route.tags & set(operator.tags):
            raise NotAuthorised("User lacks the tag that this needs")
        query, headers = request.query_params, request.headers
        reading = Reading(self._broker, self._lists, operator, names, query, headers, lambda: self._user(request))
        async with self._turns.turn(operator.user):
            if await request.is_disconnected():
                raise ClientDisconnect
            answer = await route.answer(reading)
            return answer if isinstance(answer, Response) else JsonAnswer(answer)

    async def change(self, request: Request) -> Response:
        """Change something, as RabbitMQ's management API does, or as an operator decides (see `escrow.CHANGES`)."""
        operator = await self._user(request)
        _refuse_foreign(request)
        decision = _decision(request)
        if decision is not None:
            return await self._decide(request, operator, *decision)
        route, names = self._change_route(request)
        if not route.tags & set(operator.tags):
            raise NotAuthorised("User lacks the tag that this needs")
        if request.method == "POST":
            check_kind(request.headers.get("content-type", ""))
        async with self._turns.turn(operator.user):
            body = parsed(await _body(request, route.longest))
            if not isinstance(body, dict):
                raise BadQuery("the body must be a JSON object")
            writing = Writing(self._broker, self._lists, operator, names, request.query_params, request.headers, body)
            done = await route.change(writing)
        if done.has_body:
            return JsonAnswer(done.body, done.status, done.headers)
        return Response(b"", done.status, done.headers)

    async def _decide(self, request: Request, operator: Operator, operation: str, names: dict[str, str]) -> Response:
        if ADMINISTRATOR not in operator.tags:
            raise NotAuthorised("User lacks the tag that this needs")
        reason = reason_of(request.headers.get("content-type", ""), await _body(request))
        return JsonAnswer(await self._broker.ask(operation, **names, **operator.asking, why=reason))

    def _change_route(self, request: Request) -> tuple[WriteRoute, dict[str, str]]:
        """Return the route of a change, and the names in its path. Raises NothingThere, and HTTPException: 405 for a
        path that cannot be changed in this way, 501 for one that this broker does not have.
        """
        path = _path(request)
        allowed: set[str] = set()
        if path is None:
            raise NothingThere
        for methods, names in self._write_paths.find_all(path):
            if request.method in methods:
                return methods[request.method], names
            allowed.update(methods)
        if self._paths.find(path) is not None:
            allowed.update(("GET", "HEAD"))
        if CHANGE_PATHS.find(path) is not None:
            allowed.add("POST")
        if not allowed:
            raise HTTPException(501, NO_PATH)
        raise HTTPException(405, headers={"Allow": ", ".join(sorted(allowed))})

    async def _user(self, request: Request) -> Operator:
        """Return the user of a request below `/api/`. Raises NotAuthorised for one without a tag."""
        operator = await login_of(request, self._broker)
        if not MANAGEMENT & set(operator.tags):
            raise NotAuthorised("Not management user")
        return operator

    async def metrics(self, request: Request) -> Response:
        """Return the sums for the whole broker; of a standby, numbers about itself. Raises NotAuthorised.

        A standby knows no users, so it shows them only if a login is not needed at all.
        """
        if await self._role():
            if not self._open_metrics:
                raise NotAuthorised("a standby knows no users; it shows metrics if http.open_metrics is true")
            return Response(exposition(replication(await self._broker.ask("replica.status"))), media_type=TEXT)
        async with self._turns.turn(await self._metrics_user(request)):
            status, totals = await self._broker.ask("status"), await self._broker.ask("counter.totals")
            return Response(exposition(overview(status, totals)), media_type=TEXT)

    async def metrics_detailed(self, request: Request) -> Response:
        """Return metrics of each queue: those of the families in the query, of the virtual hosts in the query."""
        user = await self._metrics_user(request)
        families = list(dict.fromkeys(request.query_params.getlist("family")))
        unknown = [family for family in families if family not in FAMILIES]
        if unknown:
            raise HTTPException(400, f"unknown family {unknown[0]!r}; known ones: {', '.join(sorted(FAMILIES))}")
        async with self._turns.turn(user):
            status, totals = await self._broker.ask("status"), await self._broker.ask("counter.totals")
            rows = []
            if families:
                rows = await self._broker.ask("counter.queues", vhosts=request.query_params.getlist("vhost"))
            return Response(exposition([*identity(status, totals), *detailed(rows, families)]), media_type=TEXT)

    async def _metrics_user(self, request: Request) -> str:
        """Return the user that asks for metrics, an empty text without a login. Raises NotAuthorised."""
        return "" if self._open_metrics else (await monitor(request, self._broker)).user


def _decision(request: Request) -> tuple[str, dict[str, str]] | None:
    """Return the operation of a POST below `escrow/`, and the names in its path; None if it is another change."""
    path = _path(request)
    return CHANGE_PATHS.find(path) if path is not None and request.method == "POST" else None


def _refuse_foreign(request: Request) -> None:
    """Raises HTTPException (403) for a change that a page of another site asks for with a login that the browser has
    stored. Tools do not send this header.
    """
    if request.headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        raise HTTPException(403, "a page of another site cannot change anything")


async def _body(request: Request, longest: int = LONGEST_BODY) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > longest:
            raise HTTPException(413, f"the body has more than {longest} octets")
    return bytes(body)


def _path(request: Request) -> list[str] | None:
    path = segments(request.scope.get("raw_path") or request.scope["path"].encode())
    if path is None:
        return None
    end = -1 if len(path) > 2 and not path[-1] else len(path)  # some tools end paths of lists with a slash
    return path[1:end]


def _found(request: Request, paths: PathTable[T]) -> tuple[T, dict[str, str]]:
    """Return what a table has for the path of a request, and the names in it. Raises NothingThere."""
    path = _path(request)
    found = None if path is None else paths.find(path)
    if found is None:
        raise NothingThere(NO_PATH)
    return found


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
