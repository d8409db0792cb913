"""Requests and replies: a window of requests, and a reply for each of them."""

from __future__ import annotations

import socket
from itertools import repeat
from struct import pack
from types import SimpleNamespace
from typing import Self, cast

import pytest

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.content import Ids, body_frames, ids_of, properties
from escrowmq.perf.amqp091.encoding import publish_block
from escrowmq.perf.amqp091.requests import REPLY_TO, Requester, replies
from escrowmq.perf.errors import PerfError
from escrowmq.perf.messages import Variety, messages
from escrowmq.perf.publisher import ConfirmingPublisher
from escrowmq.perf.totals import Totals

MADE = list(messages(Variety(correlation_ids=True), 10, 4))


def reply(number: int) -> bytes:
    """Return the delivery of a reply to a request. The delivery tag is always 1, as with RabbitMQ."""
    deliver = frames.shortstr("perf-reply") + pack(">QB", 1, 0) + frames.shortstr("") + frames.shortstr("r")
    header = pack(">HHQ", 60, 0, 0) + properties(MADE[number], 1)
    return frames.method(1, frames.BASIC_DELIVER, deliver) + frames.frame(frames.HEADER, 1, header)


class Asking:
    """A requester, and the broker's end of its socket."""

    def __init__(self, window: int, count: int) -> None:
        self.ours, self.broker = socket.socketpair()
        self.ours.setblocking(False)
        self.totals = Totals()
        block = publish_block(MADE, 1, "", repeat("q"), False, 0, REPLY_TO)
        publisher = ConfirmingPublisher(1, block, self.totals, count, False, window)
        connection = SimpleNamespace(socket=self.ours, call=lambda *_: b"")
        self.requester = Requester(cast("Connection", connection), self.totals, "p", publisher)
        self.requester.prepare([message.correlation_id or "" for message in MADE])

    def answer(self, data: bytes) -> None:
        self.broker.sendall(data)
        self.requester.on_readable(7)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ours.close()
        self.broker.close()


def test_no_more_requests_than_allowed_are_outstanding() -> None:
    with Asking(window=2, count=3) as asking:
        asking.requester.wake(1)
        assert asking.totals.published == 2
        asking.answer(reply(1))
        assert (asking.totals.published, asking.totals.confirmed) == (3, 1)
        finished = [asking.requester.finished]
        asking.answer(reply(2) + reply(0))
        assert [*finished, asking.requester.finished] == [False, True]
        assert asking.totals.answer.count > 0


def test_an_unexpected_reply_is_an_error() -> None:
    with Asking(window=1, count=3) as asking:
        asking.requester.wake(1)
        with pytest.raises(PerfError, match="no open request has it"):
            asking.answer(reply(3))


def test_a_stopped_requester_waits_for_its_replies() -> None:
    with Asking(window=1, count=3) as asking:
        asking.requester.wake(1)
        asking.requester.stop()
        finished = [asking.requester.finished]
        asking.answer(reply(0))
        assert [*finished, asking.requester.finished] == [False, True]


def test_a_reply_is_sent_to_the_reply_queue_with_the_correlation_id() -> None:
    reply = replies(0, 3)
    reply(Ids(None, "you", "there"))
    made = reply(Ids(None, "me", "there"))
    assert frames.shortstr("there") in made
    size = frames.FRAME_HEAD.unpack_from(made)[2]
    header = made[size + frames.FRAME_OVERHEAD + frames.FRAME_HEAD_SIZE :]
    assert ids_of(header).correlation_id == "me"
    assert made.endswith(body_frames(1, bytes(3), 0))


@pytest.mark.parametrize("ids", [Ids(None, "me", None), Ids(None, None, "there")])
def test_a_request_that_cannot_be_answered_is_an_error(ids: Ids) -> None:
    with pytest.raises(PerfError, match="without reply-to or correlation-id"):
        replies(0, 3)(ids)
