"""Answers of NATS without headers, whose entries are counted; `tests/engines` has the tests against real servers."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

from escrowmq.config.replication import ReplicationSection
from escrowmq.replica.engines.nats_reader import NatsReader, answer_seconds
from escrowmq.replica.log import StoredEntry

STREAM = {3: b"three", 4: b"four", 5: b"five"}


class Server:
    """A client of a server that has these entries, by their sequence numbers."""

    def __init__(self, stream: dict[int, bytes], *, knows_bare: bool = True, ends: bool = True) -> None:
        self.stream = stream
        self.knows_bare = knows_bare
        self.ends = ends
        self.asked: list[dict[str, Any]] = []

    def new_inbox(self) -> str:
        """Return a subject."""
        return "inbox"

    async def subscribe(self, subject: str, cb: Any) -> None:
        """Send all answers to `cb`."""
        assert subject == "inbox.*"
        self.receive = cb

    async def publish(self, subject: str, data: bytes, reply: str) -> None:
        """Answer a question."""
        assert subject == "$JS.API.DIRECT.GET.journal"
        request = json.loads(data)
        self.asked.append(request)
        last, bare = 0, request["no_hdr"] and self.knows_bare
        for last in [number for number in sorted(self.stream) if number >= request["seq"]][: request["batch"]]:
            headers = None if bare else {"Nats-Sequence": str(last)}
            await self.receive(SimpleNamespace(subject=reply, headers=headers, data=self.stream[last]))
        if self.ends:
            headers = {"Status": "204", "Nats-Last-Sequence": str(last)} if last else {"Status": "404"}
            await self.receive(SimpleNamespace(subject=reply, headers=headers, data=b""))


def read(server: Server, position: int, most: int = 10) -> list[StoredEntry]:
    async def run() -> list[StoredEntry]:
        reader = NatsReader(server, "journal")  # type: ignore[arg-type]
        await reader.open()
        return await reader.read(position, most, 0.01)

    return asyncio.run(run())


def stored(*numbers: int) -> list[StoredEntry]:
    return [StoredEntry(number - 1, STREAM[number]) for number in numbers]


def test_entries_without_headers_are_counted() -> None:
    server = Server(STREAM)
    assert read(server, 2) == stored(3, 4, 5)
    assert read(server, 3, 1) == stored(4)
    assert [asked["no_hdr"] for asked in server.asked] == [True, True]


def test_a_question_behind_the_end_is_answered_with_nothing() -> None:
    server = Server(STREAM)
    assert read(server, 5) == []
    assert len(server.asked) == 1


def test_entries_that_do_not_follow_each_other_are_asked_for_with_their_numbers() -> None:
    server = Server({3: b"three", 5: b"five"})
    assert read(server, 2) == stored(3, 5)
    assert [asked["no_hdr"] for asked in server.asked] == [True, False]


def test_a_stream_that_begins_later_is_asked_for_its_numbers() -> None:
    assert read(Server(STREAM), 0) == stored(3, 4, 5)


def test_an_answer_without_its_end_is_not_counted() -> None:
    server = Server(STREAM, ends=False)
    assert read(server, 2) == stored(3, 4, 5)
    assert [asked["no_hdr"] for asked in server.asked] == [True, False]


def test_an_older_server_says_the_numbers_anyway() -> None:
    server = Server(STREAM, knows_bare=False)
    assert read(server, 2, 2) == stored(3, 4)
    assert len(server.asked) == 1


def test_a_leader_may_ask_a_lost_replica_five_times_and_another_one_before_it_is_silent() -> None:
    waits = [answer_seconds(attempt) for attempt in range(20)]
    assert sum(waits[:5]) <= ReplicationSection().silence_seconds / 2
    assert waits == sorted(waits)
    assert waits[-1] == 2.0
