"""The routes of the HTTP process. Each one but `/health` needs a login, unless metrics are configured to be open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from escrowmq.admin.http.access_changes import ACCESS_CHANGES
from escrowmq.admin.http.answers import JsonAnswer
from escrowmq.admin.http.broker import AskedBroker
from escrowmq.admin.http.channels import CHANNEL_ROUTES
from escrowmq.admin.http.definition_routes import DEFINITION_CHANGES, DEFINITION_ROUTES
from escrowmq.admin.http.escrow import CHANGE_PATHS, ESCROW_ROUTES, check_kind, reason_of
from escrowmq.admin.http.failures import FAILURES
from escrowmq.admin.http.headers import SafeHeaders
from escrowmq.admin.http.health import health_routes
from escrowmq.admin.http.kept_lists import KeptLists
from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.logins import ADMINISTRATOR, NotAuthorised, Operator, login_of, monitor
from escrowmq.admin.http.management import MANAGEMENT, READ_ROUTES, NothingThere, Reading, ReadRoute
from escrowmq.admin.http.metrics import FAMILIES, TEXT, detailed, exposition, identity, overview
from escrowmq.admin.http.object_changes import OBJECT_CHANGES
from escrowmq.admin.http.paths import PathTable, segments
from escrowmq.admin.http.policies import POLICY_CHANGES, POLICY_ROUTES
from escrowmq.admin.http.turns import RequestTurns
from escrowmq.admin.http.writing import LONGEST_BODY, WriteRoute, Writing, parsed

CHANGE_ROUTES: Final = {**ACCESS_CHANGES, **OBJECT_CHANGES, **DEFINITION_CHANGES, **POLICY_CHANGES}
READING: Final = {**READ_ROUTES, **CHANNEL_ROUTES, **ESCROW_ROUTES, **DEFINITION_ROUTES, **POLICY_ROUTES}
NO_PATH: Final = "the HTTP API of this broker has no such path, see docs/guides/http-api.md"
T = TypeVar("T")

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
                *health_routes(self._broker),
                Route("/metrics", self.metrics),
                Route("/metrics/detailed", self.metrics_detailed),
                Route("/api/{path:rest}", self.read),
                Route("/api/{path:rest}", self.change, methods=["POST", "PUT", "DELETE"]),
                *others,
            ],
            middleware=[Middleware(SafeHeaders)],
            exception_handlers=dict(FAILURES),
        )

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
        """Return the sums for the whole broker."""
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
