"""Pulls from the views of half messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from escrowmq.wire.rocketmq.remoting.fields import number
from escrowmq.wire.rocketmq.remoting.frames import Command
from escrowmq.wire.rocketmq.remoting.reply import HandlerReply

if TYPE_CHECKING:
    from escrowmq.core.deadlines import Deadline
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
    from escrowmq.wire.rocketmq.remoting.views import HalfView

MOST: Final = 256
"""Messages in one response."""


class ViewPull:
    """One pull. While it waits, nothing wakes it: it is answered when its time is over."""

    __slots__ = ("_connection", "_deadline", "_group", "_most", "_position", "_request", "_view")

    def __init__(self, connection: RemotingConnection, request: Command, view: HalfView, group: str) -> None:
        self._connection: RemotingConnection | None = connection
        self._request = request
        self._view = view
        self._group = group
        self._most = min(max(number(request.fields, "maxMsgNums", 32), 1), MOST)
        self._position = number(request.fields, "queueOffset") + 1
        self._deadline: Deadline | None = None

    def answer_now(self) -> HandlerReply | None:
        """Return the response, or None if there is no message yet."""
        view, position = self._view, self._position
        if not view.begin <= position <= view.end:
            return self._response(ResultCode.PULL_OFFSET_MOVED, min(max(position, view.begin), view.end))
        found, after = view.read(position, self._most, self._group)
        if found:
            return self._response(ResultCode.SUCCESS, after, b"".join(found))
        return None if after == position else self._response(ResultCode.PULL_RETRY_IMMEDIATELY, after)

    def nothing(self) -> HandlerReply:
        """Return the response to a pull for which there is no message."""
        return self._response(ResultCode.PULL_NOT_FOUND, self._position)

    def hold(self, until: int) -> None:
        """Wait until a time."""
        assert self._connection is not None
        self._deadline = self._connection.engine.deadlines.set(until, self._expire)

    def close(self) -> None:
        """Wait no longer."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._connection = self._deadline = None

    def _expire(self) -> None:
        connection = self._connection
        if connection is not None:
            connection.pulls.forget(self)
            self.close()
            connection.respond(self._request, (self.answer_now() or self.nothing()).response)

    def _response(self, result: ResultCode, position: int, body: bytes = b"") -> HandlerReply:
        fields = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(position - 1),
            "minOffset": str(self._view.begin - 1),
            "maxOffset": str(self._view.end - 1),
        }
        return HandlerReply(Command(result, fields, body))
