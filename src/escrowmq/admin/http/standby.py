"""The routes of the HTTP process of a standby.

Users are in the journal, which a standby does not read, so it cannot check a login. Without one, it shows whether it is
healthy and who leads, as it tells every client. Figures are shown if metrics are open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from escrowmq.admin.http.answers import JsonAnswer
from escrowmq.admin.http.broker import AskedBroker
from escrowmq.admin.http.failures import FAILURES
from escrowmq.admin.http.headers import SafeHeaders
from escrowmq.admin.http.health import health_routes
from escrowmq.admin.http.logins import NotAuthorised
from escrowmq.admin.http.metrics import TEXT, exposition, replication
from escrowmq.admin.replica import refusal_text

CLOSED: Final = "a standby knows no users; it shows this if http.open_metrics is true"
_METHODS: Final = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")


class StandbyInterface:
    """Answers requests to a standby, which is `broker`. With `open_metrics`, its standing and metrics are shown."""

    def __init__(self, broker: AskedBroker, *, open_metrics: bool = False) -> None:
        self._broker = broker
        self._open_metrics = open_metrics

    def app(self, others: Sequence[BaseRoute] = ()) -> Starlette:
        """Return the application, which also has the routes `others`."""
        return Starlette(
            routes=[
                *health_routes(self._broker),
                Route("/metrics", self.metrics),
                Route("/api/escrow/replica", self.standing),
                *others,
                Route("/{path:path}", self.refuse, methods=_METHODS),
            ],
            middleware=[Middleware(SafeHeaders)],
            exception_handlers=dict(FAILURES),
        )

    async def metrics(self, request: Request) -> Response:
        """Return the metrics of the node. Raises NotAuthorised."""
        del request
        return Response(exposition(replication(await self._shown())), media_type=TEXT)

    async def standing(self, request: Request) -> Response:
        """Return the standing of the node, as a leader does. Raises NotAuthorised."""
        del request
        return JsonAnswer(await self._shown())

    async def refuse(self, request: Request) -> Response:
        """Name the node that leads."""
        del request
        leader = (await self._broker.ask("replica.status"))["leader_url"]
        return JsonAnswer({"error": "standby", "reason": refusal_text(leader), "leader": leader}, 503)

    async def _shown(self) -> dict[str, Any]:
        if not self._open_metrics:
            raise NotAuthorised(CLOSED)
        found: dict[str, Any] = await self._broker.ask("replica.status")
        return found
