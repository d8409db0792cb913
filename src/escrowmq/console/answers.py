"""Pages with their headers, and the console's own files."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from escrowmq.admin.http.headers import SAFE
from escrowmq.console.rendering import render

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""The content security policy: nothing comes from elsewhere, and no script is in a page."""
HEADERS: Final[dict[str, str]] = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    **SAFE,
}
_STATIC: Final = Path(__file__).with_name("static")
_ICON: Final = (_STATIC / "icon.svg").read_bytes()


def file_routes() -> list[BaseRoute]:
    """Return the routes of files that contain no data."""
    return [Route("/favicon.ico", _icon), Mount("/console/static", StaticFiles(directory=_STATIC))]


async def _icon(request: Request) -> Response:
    """Return the icon to browsers that ask for it at its usual place. They go by the type, not by the name."""
    del request
    return Response(_ICON, headers=HEADERS | {"Cache-Control": "max-age=86400"}, media_type="image/svg+xml")


def html(template: str, status: HTTPStatus = HTTPStatus.OK, /, **context: Any) -> Response:
    """Return a page."""
    # Clients can bring texts into the broker that have half of a surrogate pair; a question mark is shown for it.
    return HTMLResponse(render(template, **context).encode("utf-8", "replace"), status, HEADERS)
