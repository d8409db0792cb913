"""Answers that their clients have requested and do not read.

An answer is passed to its connection in pieces, each when the one before has left the process. The rest of it waits
here, and all rests together have a limit. At the limit, the connections whose clients have read nothing for the longest
time are ended. A client that reads nothing at all is disconnected after `UNREAD_SECONDS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any, Final

UNREAD_BYTES: Final = 128 << 20
"""The limit of all answers together. An answer that is longer is sent if no other one waits."""
UNREAD_SECONDS: Final = 60.0
PIECE_BYTES: Final = 64 << 10

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Callable[[], Awaitable[Message]], Send], Awaitable[None]]


class UnreadAnswer:
    """An answer that is being sent. `left` is the number of bytes that wait, `abort` ends its connection."""

    __slots__ = ("abort", "is_ended", "left")

    def __init__(self, left: int, abort: Callable[[], None]) -> None:
        self.left = left
        self.abort = abort
        self.is_ended = False


class UnreadAnswers:
    """All answers that are being sent by this process."""

    def __init__(self, limit_bytes: int = UNREAD_BYTES) -> None:
        self.waiting_bytes = 0
        self._limit_bytes = limit_bytes
        self._answers: dict[UnreadAnswer, None] = {}  # those that were read least recently come first

    def begin(self, size: int, abort: Callable[[], None]) -> UnreadAnswer:
        """Count an answer of this size. End others if all together would be too large."""
        while self._answers and self.waiting_bytes + size > self._limit_bytes:
            oldest = next(iter(self._answers))
            self.end(oldest)
            oldest.abort()
        answer = UnreadAnswer(size, abort)
        self._answers[answer] = None
        self.waiting_bytes += size
        return answer

    def passed_on(self, answer: UnreadAnswer, size: int) -> None:
        """Note that a part of an answer has been passed on, because its client has read what came before."""
        if not answer.is_ended:
            del self._answers[answer]
            self._answers[answer] = None
            self.waiting_bytes -= size
            answer.left -= size

    def end(self, answer: UnreadAnswer) -> None:
        """Count an answer no longer."""
        if not answer.is_ended:
            answer.is_ended = True
            del self._answers[answer]
            self.waiting_bytes -= answer.left


class BoundedSending:
    """The application `app` for one connection, which `abort` ends. Its answers are counted in `unread`."""

    def __init__(self, app: App, unread: UnreadAnswers, abort: Callable[[], None]) -> None:
        self._app = app
        self._unread = unread
        self._abort = abort

    async def __call__(self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, partial(self._send, send))

    async def _send(self, send: Send, message: Message) -> None:
        body = message.get("body", b"")
        if len(body) <= PIECE_BYTES:
            await self._send_in_time(send, message)
            return
        answer = self._unread.begin(len(body), self._abort)
        view, more = memoryview(body), message.get("more_body", False)
        del body
        message["body"] = b""  # the caller keeps the message
        try:
            for begin in range(0, len(view), PIECE_BYTES):
                piece = view[begin : begin + PIECE_BYTES]
                end = begin + len(piece)
                await self._send_in_time(send, {**message, "body": piece, "more_body": more or end < len(view)})
                if answer.is_ended:
                    return
                self._unread.passed_on(answer, len(piece))
        finally:
            self._unread.end(answer)

    async def _send_in_time(self, send: Send, message: Message) -> None:
        try:
            async with asyncio.timeout(UNREAD_SECONDS):
                await send(message)
        except TimeoutError:
            self._abort()
