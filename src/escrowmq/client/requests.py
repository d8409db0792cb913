"""The outstanding requests of a channel and their answers, in order (specification, section 2.2.2)."""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, NamedTuple, TypeVar

from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.spec import METHODS

M_co = TypeVar("M_co", bound=Method, covariant=True)


class Content(NamedTuple):
    """The content that follows a method: `props` in wire format, and the complete body."""

    props: bytes
    body: bytes

    @property
    def properties(self) -> Properties:
        """The decoded properties."""
        return Properties.decode(self.props)


class Answer(NamedTuple, Generic[M_co]):
    """The answer to a request: the broker's method, and its content or None."""

    method: M_co
    content: Content | None


def _answers(request: type[Method]) -> frozenset[int]:
    """Return the answers of a request. They are named after it: get → get-ok and get-empty, declare → declare-ok."""
    return frozenset(
        method.INDEX
        for method in METHODS.values()
        if method.TO_CLIENT and method.CLASS_ID == request.CLASS_ID and method.NAME.startswith(request.NAME + "-")
    )


ANSWERS: Final[dict[int, frozenset[int]]] = {
    method.INDEX: _answers(method) for method in METHODS.values() if method.TO_SERVER
}
"""The answers of each request, by `Method.INDEX`. The set is empty for methods without an answer."""


class Request:
    """A request that was sent. `answer` is None until the answer has arrived."""

    __slots__ = ("answer", "expected", "name")

    def __init__(self, method: Method) -> None:
        self.name = method.NAME
        self.expected = ANSWERS[method.INDEX]
        self.answer: Answer[Method] | None = None

    def __repr__(self) -> str:
        return f"<Request {self.name}: {'answered' if self.answer else 'open'}>"


class Requests:
    """The requests of one channel that await an answer."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, method: Method) -> Request | None:
        """Record a request that is being sent. Returns None if it has no answer."""
        if not ANSWERS[method.INDEX] or getattr(method, "no_wait", False):
            return None
        request = Request(method)
        self._open.append(request)
        return request

    def expects(self, index: int) -> bool:
        """Return whether this method is an answer to the oldest request."""
        return bool(self._open) and index in self._open[0].expected

    def answered(self, method: Method, content: Content | None) -> None:
        """Record the answer to the oldest request."""
        self._open.popleft().answer = Answer(method, content)

    def clear(self) -> None:
        """Drop all requests, because no answer will come."""
        self._open.clear()
