"""The console of a standby: one page at all paths, which says that the node is a standby, and leads to the leader."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from escrowmq.admin.http.broker import AskedBroker, BrokerUnavailable
from escrowmq.console.answers import HEADERS, file_routes, html

REFRESHED: Final = "standby"
"""The parameter of requests by which the page refreshes itself."""
_HOME: Final = "/console/"
_METHODS: Final = ("GET", "POST")
_log = logging.getLogger("escrowmq.http")


class StandbyConsole:
    """The page of `broker`, a standby. Without a login, which a standby cannot check, figures are shown only if
    `open_metrics`, as metrics are.
    """

    def __init__(self, broker: AskedBroker, *, open_metrics: bool = False) -> None:
        self._broker = broker
        self._open_metrics = open_metrics

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        paths = ("/", "/console", "/console/{path:path}")
        return [*file_routes(), *(Route(path, self.page, methods=_METHODS) for path in paths)]

    async def page(self, request: Request) -> Response:
        """Show the page. Its status is 503, so that no program takes it for the console."""
        refreshed = "hx-request" in request.headers
        if refreshed and REFRESHED not in request.query_params:  # a page of the time when this node led
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=HEADERS | {"HX-Refresh": "true"})
        try:
            standing = await self._broker.ask("replica.status")
        except BrokerUnavailable as error:
            _log.warning("%s: %s", request.url.path, error)
            text = "The broker does not answer. Try again in a moment."
            unavailable = HTTPStatus.SERVICE_UNAVAILABLE
            return html("failure.html", unavailable, title=unavailable.phrase, text=text)
        context = {
            "standing": standing,
            "own": standing["nodes"][0],
            "shown": self._open_metrics,
            "leader_console": leader_console(request.url, standing),
            "path": f"{_HOME}?{REFRESHED}=1",
        }
        # htmx shows only answers that are successful.
        return html("standby.html", HTTPStatus.OK if refreshed else HTTPStatus.SERVICE_UNAVAILABLE, **context)


def leader_console(own: URL, standing: Mapping[str, Any]) -> str:
    """Return the address of the leader's console, if its port is that of this page, `own`; empty if there is none.

    Nodes tell each other only their addresses for AMQP. Nodes on one machine have different ports, so the page has no
    link there.
    """
    host = urlsplit(standing["leader_url"]).hostname or ""
    if not host or host == own.hostname:
        return ""
    shown = f"[{host}]" if ":" in host else host
    return f"{own.scheme}://{shown}{'' if own.port is None else f':{own.port}'}{_HOME}"
