"""Headers of every answer: browsers must not guess its type, store it, or let pages of other sites include it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
STORED: Final = "/console/static/"
"""Files that may be stored: they are part of the program, and contain no data."""
_CACHE: Final = b"cache-control"
Pairs = list[tuple[bytes, bytes]]


def completed(headers: Iterable[tuple[bytes, bytes]], path: str = "") -> Pairs:
    """Return the headers of an answer with those that it lacks; `path` is that of the request."""
    given = [(name.lower(), value) for name, value in headers]
    names = {name for name, _ in given}
    more = [(name.lower().encode(), value.encode()) for name, value in SAFE.items()]
    stored = path.startswith(STORED)
    return given + [(name, value) for name, value in more if name not in names and not (stored and name == _CACHE)]


class SafeHeaders:
    """The application `app`, with complete headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def complete(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = completed(message.get("headers", ()), scope["path"])
            await send(message)

        await self._app(scope, receive, complete)
