"""Answers that clients do not read have a limit together, and do not wait without end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from escrowmq.admin.http import unread
from escrowmq.admin.http.unread import PIECE_BYTES, BoundedSending, UnreadAnswers


class Client:
    """A client that reads a number of pieces of one answer of `size` bytes, and then no more."""

    def __init__(self, answers: UnreadAnswers, size: int, reads: int = 0) -> None:
        self.reads = asyncio.Semaphore(reads)
        self.received: list[Any] = []
        self.is_aborted = False
        self._body = bytes(range(256)) * (size // 256)
        self._sending = BoundedSending(self._answer, answers, self._abort)
        self.task = asyncio.create_task(self._sending({}, self._receive, self._send))

    def _abort(self) -> None:
        self.is_aborted = True
        for _ in range(10_000):  # what is sent to a closed connection is dropped
            self.reads.release()

    async def _receive(self) -> Any:
        return {}

    async def _send(self, message: Any) -> None:
        await self.reads.acquire()
        self.received.append(dict(message, body=bytes(message.get("body", b""))))

    async def _answer(self, _scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": self._body, "more_body": False})


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_an_answer_arrives_whole_and_in_pieces() -> None:
    async def scenario() -> None:
        answers = UnreadAnswers()
        client = Client(answers, 3 * PIECE_BYTES + 256, reads=100)
        await client.task
        bodies = [message for message in client.received if message["type"] == "http.response.body"]
        assert b"".join(message["body"] for message in bodies) == bytes(range(256)) * (3 * PIECE_BYTES // 256 + 1)
        assert max(len(message["body"]) for message in bodies) == PIECE_BYTES
        assert [message["more_body"] for message in bodies] == [True, True, True, False]
        assert answers.waiting_bytes == 0

    asyncio.run(scenario())


@pytest.mark.rule("FAIR-3")
def test_at_the_limit_the_answers_that_were_read_least_recently_are_ended() -> None:
    async def scenario() -> None:
        size = 4 * PIECE_BYTES
        answers = UnreadAnswers(3 * size)
        first, second, third = (Client(answers, size, reads=1) for _ in range(3))
        await settled()
        first.reads.release()
        await settled()
        assert answers.waiting_bytes == 3 * size - PIECE_BYTES
        fourth = Client(answers, size, reads=1)
        await settled()
        assert [client.is_aborted for client in (first, second, third, fourth)] == [False, True, False, False]
        assert answers.waiting_bytes == 3 * size - PIECE_BYTES
        await second.task
        for client in (first, third, fourth):
            client.task.cancel()
        await settled()
        assert answers.waiting_bytes == 0

    asyncio.run(scenario())


def test_one_answer_may_be_longer_than_the_limit_if_no_other_waits() -> None:
    async def scenario() -> None:
        answers = UnreadAnswers(PIECE_BYTES)
        other = Client(answers, 2 * PIECE_BYTES, reads=1)
        await settled()
        client = Client(answers, 4 * PIECE_BYTES, reads=5)
        await client.task
        assert (other.is_aborted, client.is_aborted) == (True, False)

    asyncio.run(scenario())


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize("size", [256, 2 * PIECE_BYTES])
def test_a_client_that_reads_nothing_for_too_long_is_disconnected(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "UNREAD_SECONDS", 0.05)

    async def scenario() -> None:
        answers = UnreadAnswers()
        client = Client(answers, size, reads=1)
        await asyncio.wait_for(client.task, 5)
        assert client.is_aborted
        assert answers.waiting_bytes == 0

    asyncio.run(scenario())
