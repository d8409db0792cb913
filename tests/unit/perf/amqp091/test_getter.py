"""Fetching messages: the number of requests, the acknowledgements, and a new request for each answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from struct import pack
from types import SimpleNamespace
from typing import cast

import pytest

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.content import body_frames, properties
from escrowmq.perf.amqp091.getter import Getter
from escrowmq.perf.messages import LoadMessage
from escrowmq.perf.sampling import PublishedContents
from escrowmq.perf.totals import Totals

EMPTY = frames.method(1, frames.BASIC_GET_EMPTY, b"\0")


def got(tag: int) -> bytes:
    arguments = pack(">QB", tag, 0) + frames.shortstr("") + frames.shortstr("q") + pack(">I", 0)
    header = pack(">HHQ", 60, 0, 4) + properties(LoadMessage(b""), 1)
    return (
        frames.method(1, frames.BASIC_GET_OK, arguments)
        + frames.frame(frames.HEADER, 1, header)
        + body_frames(1, b"body", 0)
    )


class Fetching:
    """A getter, and the broker's end of its socket."""

    def __init__(self, ack_every: int, outstanding: int) -> None:
        ours, self.broker = socket.socketpair()
        ours.setblocking(False)
        self.broker.setblocking(False)
        contents = PublishedContents()
        contents.enabled = False
        self.totals = Totals()
        connection = cast("Connection", SimpleNamespace(socket=ours))
        self.getter = Getter(connection, self.totals, "c", ["a", "b"], contents, ack_every, outstanding)
        self.ours = ours

    def sent(self) -> bytes:
        try:
            return self.broker.recv(65536)
        except BlockingIOError:
            return b""

    def answer(self, data: bytes) -> bytes:
        self.broker.sendall(data)
        self.getter.on_readable(5)
        return self.sent()


@pytest.fixture
def fetching(request: pytest.FixtureRequest) -> Iterator[Fetching]:
    made = Fetching(*request.param)
    yield made
    made.ours.close()
    made.broker.close()


def asked(*queues: str, auto_ack: bool = False) -> bytes:
    return b"".join(frames.basic_get(1, queue, auto_ack) for queue in queues)


@pytest.mark.parametrize("fetching", [(1, 1)], indirect=True)
def test_messages_are_fetched_one_by_one(fetching: Fetching) -> None:
    fetching.getter.start(0)
    assert fetching.sent() == asked("a")
    assert fetching.answer(got(1)) == frames.basic_ack(1, 1, multiple=False) + asked("b")
    assert fetching.totals.consumed == 1


@pytest.mark.parametrize("fetching", [(0, 3)], indirect=True)
def test_messages_are_fetched_pipelined_without_acknowledgements(fetching: Fetching) -> None:
    fetching.getter.start(0)
    assert fetching.sent() == asked("a", "b", "a", auto_ack=True)
    assert fetching.answer(got(1) + got(2)) == asked("b", "a", auto_ack=True)
    fetching.getter.finish(9)
    assert fetching.sent() == b""


@pytest.mark.parametrize("fetching", [(2, 1)], indirect=True)
def test_several_are_acknowledged_at_once_and_the_rest_at_the_end(fetching: Fetching) -> None:
    fetching.getter.start(0)
    fetching.sent()
    assert fetching.answer(got(1)) == asked("b")
    assert fetching.answer(got(2)) == frames.basic_ack(1, 2, multiple=True) + asked("a")
    assert fetching.answer(got(3)) == asked("b")
    fetching.getter.finish(9)
    assert fetching.sent() == frames.basic_ack(1, 3, multiple=True)


@pytest.mark.parametrize("fetching", [(1, 1)], indirect=True)
def test_an_empty_answer_is_followed_by_another_request(fetching: Fetching) -> None:
    fetching.getter.start(0)
    fetching.sent()
    assert fetching.answer(EMPTY) == asked("b")
    assert fetching.totals.consumed == 0
