"""The stream of a log on NATS is created once, and is there when it has been opened."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple, cast

import pytest
from nats.aio.client import Client

from escrowmq.replica.engines import nats_stream
from escrowmq.replica.engines.address import EngineAddress
from escrowmq.replica.engines.nats_stream import NatsStream

ADDRESS = EngineAddress.parse("nats://127.0.0.1:4222/journal?replicas=3")
MISSING = {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}
THERE: dict[str, Any] = {"config": {}, "state": {"first_seq": 0, "last_seq": 0}}


class Reply(NamedTuple):
    """A message of NATS, as far as the stream looks at it."""

    data: bytes


class Servers:
    """Servers that say `missing` times after a stream was created that it is not there."""

    connected_url = "only"

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.created = 0
        self.client = cast("Client", self)

    async def request(self, subject: str, _data: bytes, **_: object) -> Reply:
        if ".CREATE." in subject:
            self.created += 1
            return Reply(json.dumps(THERE).encode())
        known = self.created > 0 and self.missing == 0
        if self.created and self.missing:
            self.missing -= 1
        return Reply(json.dumps(THERE if known else MISSING).encode())


@pytest.mark.parametrize("missing", [0, 1, 3])
def test_a_new_stream_is_there_when_it_has_been_opened(missing: int) -> None:
    servers = Servers(missing)

    async def opened() -> None:
        stream = NatsStream(ADDRESS, servers.client, timeout=60)
        await stream.open()
        assert await stream.ends() == (0, 0)

    asyncio.run(opened())
    assert servers.created == 1


def test_a_stream_that_does_not_come_is_told() -> None:
    servers = Servers(1 << 30)
    with pytest.raises(TimeoutError, match=r"the stream journal was created on NATS .* and is not there"):
        asyncio.run(NatsStream(ADDRESS, servers.client, timeout=0.3).open())


class CutOffServer:
    """A client's connection to the first of three servers, which is cut off, and to the next ones once it is left.

    `answer` is the answer of the first one, or None if it gives none. The others know a stream with five entries.
    """

    def __init__(self, answer: dict[str, Any] | None) -> None:
        self.server = 1
        self.client = cast("Client", self)
        self._answer = answer

    @property
    def connected_url(self) -> int:
        return self.server

    async def force_reconnect(self) -> None:
        self.server += 1

    async def request(self, _subject: str, _data: bytes, **_: object) -> Reply:
        answer = with_entries(5) if self.server > 1 else self._answer
        if answer is None:
            raise TimeoutError
        return Reply(json.dumps(answer).encode())


def with_entries(count: int) -> dict[str, Any]:
    return {"config": {}, "state": {"first_seq": 1, "last_seq": count}}


def test_a_server_that_does_not_answer_is_left_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_stream, "_SILENT_SECONDS", 0.2)
    connection = CutOffServer(None)
    stream = NatsStream(ADDRESS, connection.client, timeout=60)

    async def asked() -> list[tuple[int, int]]:
        return list(await asyncio.gather(stream.ends(), stream.ends()))

    assert asyncio.run(asked()) == [(0, 5), (0, 5)]
    assert connection.server == 2, "two questions left one server each"


def test_a_server_that_does_not_know_what_was_acknowledged_is_left_for_the_next_one() -> None:
    connection = CutOffServer(with_entries(3))
    stream = NatsStream(ADDRESS, connection.client, timeout=60)
    assert asyncio.run(stream.ends()) == (0, 3)
    stream.acknowledged = 5
    assert asyncio.run(stream.ends()) == (0, 5)
    assert connection.server == 2


def test_entries_that_no_server_knows_any_more_are_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_stream, "_BEHIND_SECONDS", 0.0)
    connection = CutOffServer(with_entries(3))
    stream = NatsStream(ADDRESS, connection.client, timeout=0.6)
    stream.acknowledged = 9
    assert asyncio.run(stream.ends()) == (0, 5)
    left = connection.server
    assert left > 2
    assert asyncio.run(stream.ends()) == (0, 5)
    assert connection.server == left
