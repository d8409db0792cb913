"""Exactly once with asyncio against a real broker that is killed while messages are under way."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from escrowmq.amqp10 import Backoff, Message, aio, queue
from escrowmq.client import connect
from tests.broker import running_broker

COUNT = 300
KILLS = 3


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.rule("SET-3")
def test_every_order_is_shipped_once_although_the_broker_is_killed(tmp_path: Path) -> None:
    shop, warehouse = tmp_path / "shop.db", tmp_path / "warehouse.db"
    with sqlite3.connect(warehouse) as table:
        table.execute("CREATE TABLE shipments (id INTEGER)")
    patient = Backoff(0.01, 0.2)

    def shipped() -> list[int]:
        return [number for (number,) in table.execute("SELECT id FROM shipments ORDER BY id")]

    with running_broker(tmp_path) as broker:
        with connect(broker.url) as connection, connection.channel() as channel:
            channel.queue_declare("orders", durable=True)

        progress = asyncio.Event()

        async def sell() -> None:
            sender = await aio.exactly_once_sender(
                broker.url, queue("orders"), name="shop", database=shop, window=20, reconnect=patient, timeout=60
            )
            async with sender:
                for number in range(COUNT):
                    sender.put(Message(number))
                    if number % 10 == 9:
                        await sender.flush()

        async def ship() -> None:
            receiver = await aio.exactly_once_receiver(
                broker.url, queue("orders"), name="store", database=warehouse, reconnect=patient, timeout=60
            )
            async with receiver:
                while len(shipped()) < COUNT:
                    deliveries = await receiver.receive_many(20, timeout=5)
                    async with receiver.process(*deliveries) as database:
                        rows = [(delivery.body,) for delivery in deliveries]
                        database.executemany("INSERT INTO shipments VALUES (?)", rows)
                    progress.set()

        async def kill() -> None:
            for number in range(1, KILLS + 1):
                while len(shipped()) < number * COUNT // (KILLS + 2):
                    progress.clear()
                    await progress.wait()
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)

        async def main() -> None:
            await asyncio.gather(sell(), ship(), kill())

        asyncio.run(main())
    assert shipped() == list(range(COUNT))
    table.close()
