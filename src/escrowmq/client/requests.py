"""Requests and their answers on one channel, in order; several may be under way (specification, section 2.2.2)."""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, NamedTuple, TypeVar

from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.spec import METHODS

M_co = TypeVar("M_co", bound=Method, covariant=True)


class Content(NamedTuple):
    """What follows a method that has content: `props` as on the wire, and the whole body."""

    props: bytes
    body: bytes

    @property
    def properties(self) -> Properties:
        """The properties, decoded."""
        return Properties.decode(self.props)


class Answer(NamedTuple, Generic[M_co]):
    """What a request brought: the broker's method, and its content if it has any."""

    method: M_co
    content: Content | None


def _answers(request: type[Method]) -> frozenset[int]:
    """Answers are named after their request: get → get-ok and get-empty, declare → declare-ok."""
    return frozenset(
        method.INDEX
        for method in METHODS.values()
        if method.TO_CLIENT and method.CLASS_ID == request.CLASS_ID and method.NAME.startswith(request.NAME + "-")
    )


ANSWERS: Final[dict[int, frozenset[int]]] = {
    method.INDEX: _answers(method) for method in METHODS.values() if method.TO_SERVER
}
"""Request → the methods that answer it, none for those that are not answered; all by `Method.INDEX`."""


class Request:
    """One that was sent. `answer` is there when it has come."""

    __slots__ = ("answer", "expected", "name")

    def __init__(self, method: Method) -> None:
        self.name = method.NAME
        self.expected = ANSWERS[method.INDEX]
        self.answer: Answer[Method] | None = None

    def __repr__(self) -> str:
        return f"<Request {self.name}: {'answered' if self.answer else 'open'}>"


class Requests:
    """Those of one channel that wait for an answer."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, method: Method) -> Request | None:
        """A request is sent; None if it has no answer."""
        if not ANSWERS[method.INDEX] or getattr(method, "no_wait", False):
            return None
        request = Request(method)
        self._open.append(request)
        return request

    def expects(self, index: int) -> bool:
        """Whether a method of this number is the answer to the oldest one."""
        return bool(self._open) and index in self._open[0].expected

    def answered(self, method: Method, content: Content | None) -> None:
        """The answer to the oldest one is there."""
        self._open.popleft().answer = Answer(method, content)

    def clear(self) -> None:
        """No answer will come."""
        self._open.clear()
