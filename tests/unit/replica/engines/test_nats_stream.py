"""The stream of a log on NATS is created once, and is there when it has been opened."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple, cast

import pytest
from nats.aio.client import Client

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
