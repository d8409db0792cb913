"""Exactly once with asyncio: table to queue and queue to table, wherever the connection or the process ends."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from escrowmq.amqp10 import Backoff, ConnectionLost, LinkStolen, Message, OperationTimeout, aio
from escrowmq.amqp10.exactly_once import Database
from escrowmq.amqp10.exactly_once.outbox import OutboxTable
from tests.harness.amqp10_broker import Cut, ResumingBroker

FAST = Backoff(0.001, 0.01)
COUNT = 10


@pytest.fixture
def broker() -> Iterator[ResumingBroker]:
    broker = ResumingBroker()
    yield broker
    broker.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with a table for the results."""
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("CREATE TABLE done (id INTEGER)")
    connection.close()
    return tmp_path / "x.db"


def bodies(broker: ResumingBroker) -> list[Any]:
    return [Message.decode(message).body for message in broker.queue("q")]


def done(path: Path) -> list[int]:
    with sqlite3.connect(path) as connection:
        found = [number for (number,) in connection.execute("SELECT id FROM done ORDER BY id")]
    connection.close()
    return found


def put(path: Path, *contents: int) -> None:
    """Commit messages to the outbox."""
    database = Database(path)
    outbox = OutboxTable(database, "out")
    with database.transaction():
        for content in contents:
            outbox.put(Message(content).encode())
    database.close()


def cut_at(broker: ResumingBroker, place: int) -> None:
    """Drop the connection once, at a frame behind the login."""
    frames = 0

    def on_frame(direction: str, performative: object) -> None:
        nonlocal frames
        frames += 1
        if frames == place + 4:
            raise Cut

    broker.on_frame = on_frame


def run_until_done(attempt: Coroutine[Any, Any, None], *, reconnects: bool) -> bool:
    try:
        asyncio.run(attempt)
    except ConnectionLost:
        assert not reconnects, "the client must reconnect by itself"
        return False
    return True


@pytest.mark.rule("SET-3", "SET-11")
@pytest.mark.parametrize("reconnects", [True, False], ids=["same process", "next process"])
@pytest.mark.parametrize("place", range(0, 40, 3))
def test_a_sender_that_is_cut_off_neither_loses_nor_doubles(
    broker: ResumingBroker, path: Path, place: int, reconnects: bool
) -> None:
    put(path, *range(COUNT))
    cut_at(broker, place)

    async def attempt() -> None:
        again = FAST if reconnects else False
        sender = await aio.exactly_once_sender(broker.url, "q", name="out", database=path, window=4, reconnect=again)
        async with sender:
            await sender.flush()

    while not run_until_done(attempt(), reconnects=reconnects):
        pass
    assert bodies(broker) == list(range(COUNT))


@pytest.mark.rule("SET-3", "SET-11")
@pytest.mark.parametrize("reconnects", [True, False], ids=["same process", "next process"])
@pytest.mark.parametrize("place", range(0, 40, 3))
def test_a_receiver_that_is_cut_off_neither_loses_nor_doubles(
    broker: ResumingBroker, path: Path, place: int, reconnects: bool
) -> None:
    broker.queue("q").extend(Message(number).encode() for number in range(COUNT))
    cut_at(broker, place)

    async def attempt() -> None:
        again = FAST if reconnects else False
        receiver = await aio.exactly_once_receiver(broker.url, "q", name="in", database=path, credit=4, reconnect=again)
        async with receiver:
            while len(done(path)) < COUNT:
                deliveries = await receiver.receive_many(2, timeout=5)
                async with receiver.process(*deliveries) as connection:
                    rows = [(delivery.body,) for delivery in deliveries]
                    connection.executemany("INSERT INTO done VALUES (?)", rows)

    while not run_until_done(attempt(), reconnects=reconnects):
        pass
    assert done(path) == list(range(COUNT))


def test_tasks_share_a_sender_and_a_receiver(broker: ResumingBroker, path: Path) -> None:
    async def main() -> None:
        sender = await aio.exactly_once_sender(broker.url, "q", name="out", database=path)
        async with sender:
            shipping = asyncio.create_task(sender.run(poll=0.01))
            for number in range(4):
                sender.put(Message(number))
            async with asyncio.timeout(5):
                while len(broker.queue("q")) < 4:
                    await sender.flush()
            shipping.cancel()
            await asyncio.gather(shipping, return_exceptions=True)
        async with await aio.exactly_once_receiver(broker.url, "q", name="in", database=path) as receiver:

            async def consume() -> None:
                delivery = await receiver.receive(timeout=5)
                async with receiver.process(delivery) as connection:
                    await asyncio.sleep(0)
                    connection.execute("INSERT INTO done VALUES (?)", (delivery.body,))

            await asyncio.gather(*[consume() for _ in range(4)])
            assert await receiver.receive_many(1, timeout=0.01) == []

    asyncio.run(main())
    assert done(path) == [0, 1, 2, 3]


def test_a_failed_processing_returns_the_message(broker: ResumingBroker, path: Path) -> None:
    broker.queue("q").extend(Message(number).encode() for number in range(3))

    async def main() -> None:
        async with await aio.exactly_once_receiver(broker.url, "q", name="in", database=path, credit=1) as receiver:
            async for delivery in receiver:
                try:
                    async with receiver.process(delivery) as connection:
                        connection.execute("INSERT INTO done VALUES (?)", (delivery.body,))
                        raise ZeroDivisionError
                except ZeroDivisionError:
                    break
            mine = sqlite3.connect(path)
            for _ in range(3):
                again = await receiver.receive(timeout=5)
                with mine:
                    mine.execute("INSERT INTO done VALUES (?)", (again.body,))
                    receiver.record([again], mine)
                receiver.confirm([again])
            mine.close()

    asyncio.run(main())
    assert done(path) == [0, 1, 2]


def test_a_message_is_sent_by_itself_and_a_time_limit_leaves_it_in_flight(broker: ResumingBroker, path: Path) -> None:
    async def main() -> None:
        async with await aio.exactly_once_sender(broker.url, "q", name="out", database=path) as sender:
            await sender.send(Message(1))
            broker.on_frame = lambda *_: None
            sender.put(Message(2))
            with pytest.raises(OperationTimeout, match="still in flight"):
                await sender.flush(timeout=0)
            assert await sender.flush() == 1
            assert sender.refused() == []
            sender.retry([])
            sender.discard([])

    asyncio.run(main())
    assert bodies(broker) == [1, 2]


def test_an_earlier_run_cannot_commit_any_more(broker: ResumingBroker, path: Path) -> None:
    async def main() -> None:
        first = await aio.exactly_once_sender(broker.url, "q", name="out", database=path)
        second = await aio.exactly_once_sender(broker.url, "q", name="out", database=path)
        second.put(Message(1))
        with pytest.raises(LinkStolen, match="another process runs it now"):
            await first.flush()
        assert await second.flush() == 1
        await first.close()
        await second.close()

    asyncio.run(main())
    assert bodies(broker) == [1]
