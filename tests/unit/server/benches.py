"""A broker on a simulated disk, with its turns, for tests of the server's parts."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from escrowmq.core.broker import Broker
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.queue import Queue, Session
from escrowmq.core.topology.declaration import Declaration
from escrowmq.journal.journal import Journal
from escrowmq.journal.memory import MemoryStorage
from escrowmq.server.start import recover
from escrowmq.server.turn import Turns
from escrowmq.wire.endpoint import Endpoint
from escrowmq.wire.outbox import Piece

T = TypeVar("T")
TIMEOUT = 60.0


class FakeEndpoint:
    """Outputs the bytes that a test puts into `says`, and records the calls on it."""

    def __init__(self) -> None:
        self.label = "fake"
        self.says = b""
        self.finished = False
        self.large_bodies = self.answered = False
        self.waits_for = self.unread = 0
        self.heard: list[bytes] = []
        self.told: list[Any] = []
        self.fault: Exception | None = None
        self.outputs = 0

    def receive(self, data: bytes) -> None:
        if self.fault is not None:
            raise self.fault
        self.heard.append(data)

    def output(self) -> list[Piece]:
        self.outputs += 1
        says, self.says = self.says, b""
        return [says] if says else []

    def synced(self, lsn: int) -> bool:
        self.told.append(("synced", lsn))
        return lsn < self.waits_for

    def congested(self, unsent: int) -> None:
        self.told.append(("congested", unsent))

    def block(self, reason: str) -> None:
        self.told.append(("block", reason))

    def tick(self, now_ms: int, idle_in_ms: int, idle_out_ms: int) -> None:
        self.told.append(("tick", idle_in_ms, idle_out_ms))

    def permissions_changed(self) -> Iterator[None]:
        """It has no consumers."""
        return iter(())

    def shut(self, text: str) -> None:
        self.told.append(("shut", text))

    def lost(self) -> None:
        self.told.append("lost")

    def describe(self) -> dict[str, object]:
        return {"user": "alice", "vhost": "/", "state": "running"}

    def channel_rows(self) -> Iterator[dict[str, object]]:
        yield {"number": 1}


def as_endpoint(fake: FakeEndpoint) -> Endpoint:
    """Checked by mypy: the fake keeps the contract."""
    return fake


class Bench:
    """A broker with turns. It must be created within a running loop."""

    def __init__(self, storage: MemoryStorage | None = None, withheld: Callable[[], bool] | None = None) -> None:
        self.storage = storage or MemoryStorage(random.Random(1))
        self.journal = Journal.open(self.storage, segment_bytes=1 << 20)
        self.broker = Broker(self.journal, random.Random(2))
        recover(self.journal, self.broker)
        self.ahead_ms = 0
        self.turns = Turns(asyncio.get_running_loop(), self.broker, self.journal, self._clock, withheld)

    def _clock(self) -> int:
        return time.time_ns() + self.ahead_ms * 1_000_000

    def queue(self, name: str = "q") -> Queue:
        self.broker.directory.add_vhost("/")
        return self.broker.directory.declare_queue(
            self.broker.directory.vhosts["/"], name, Declaration(durable=True), Session("test")
        )

    def publish(self, queue: Queue, *bodies: bytes) -> int:
        """Publish persistent messages, and return the LSN for which their confirm waits."""
        return self.broker.engine.publish(envelope(queue.name), list(bodies), (queue,)).lsn

    async def close(self) -> None:
        await self.turns.synced()
        self.turns.stop()


def envelope(key: str) -> Envelope:
    return Envelope("", key, durable=True)


def on_loop(test: Callable[[], Awaitable[T]]) -> T:
    """Run a test's coroutine with a time limit."""

    async def bounded() -> T:
        return await asyncio.wait_for(test(), TIMEOUT)

    return asyncio.run(bounded())


async def until(condition: Callable[[], object], what: str = "the condition") -> None:
    """Let the loop run until the condition holds."""
    deadline = asyncio.get_running_loop().time() + TIMEOUT / 2
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come about"
        await asyncio.sleep(0.001)
