"""The asyncio face: many tasks on one connection, reconnecting, time limits, closing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from escrowmq.amqp10 import Backoff, ConnectionLost, ConnectionRefused, Message, OperationTimeout, UsageError, aio
from tests.harness.amqp10_broker import Cut, ResumingBroker
from tests.ports import reserve_port

FAST = Backoff(0.001, 0.01)


@pytest.fixture
def broker() -> Iterator[ResumingBroker]:
    broker = ResumingBroker()
    yield broker
    broker.close()


def test_tasks_share_a_connection(broker: ResumingBroker) -> None:
    async def main() -> list[int]:
        async with await aio.connect(broker.url) as connection:
            receiver = await connection.receiver("q")
            found: list[int] = []

            async def consume() -> None:
                async for delivery in receiver:
                    found.append(delivery.body)
                    delivery.accept()
                    if len(found) == 400:
                        return

            async def produce(begin: int) -> None:
                sender = await connection.sender("q")
                assert await sender.send_many(Message(begin + number) for number in range(100)) == 100

            await asyncio.gather(consume(), *(produce(begin) for begin in (0, 100, 200, 300)))
            return found

    assert sorted(asyncio.run(main())) == list(range(400))


def test_a_call_goes_on_after_a_reconnection(broker: ResumingBroker) -> None:
    def on_frame(direction: str, performative: object) -> None:
        if direction == "out" and type(performative).__name__ == "Disposition":
            broker.on_frame = lambda *_: None
            raise Cut

    async def main() -> None:
        async with await aio.connect(broker.url, reconnect=FAST) as connection:
            sender = await connection.sender("q", mode="second")
            broker.on_frame = on_frame
            assert (await sender.send(Message("x"))).accepted

    asyncio.run(main())
    assert len(broker.queue("q")) == 1


def test_without_reconnection_every_waiting_call_fails(broker: ResumingBroker) -> None:
    async def main() -> None:
        connection = await aio.connect(broker.url, reconnect=False)
        receivers = [await connection.receiver("q") for _ in range(3)]
        waiting = [asyncio.create_task(receiver.receive()) for receiver in receivers]
        await asyncio.sleep(0)
        broker.close()
        for result in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(result, ConnectionLost)
        await connection.close()

    asyncio.run(main())


def test_the_next_url_is_used_if_the_first_does_not_answer(broker: ResumingBroker) -> None:
    dead = f"amqp://127.0.0.1:{reserve_port(broker)}"

    async def main() -> None:
        async with await aio.connect([dead, broker.url], reconnect=False) as connection:
            assert connection.is_open
        with pytest.raises(ConnectionLost):
            await aio.connect(dead, reconnect=False)

    asyncio.run(main())


def test_time_limits_and_closing(broker: ResumingBroker) -> None:
    async def main() -> None:
        connection = await aio.connect(broker.url)
        receiver = await connection.receiver("q", credit=0)
        with pytest.raises(OperationTimeout, match="a message on link"):
            await receiver.receive(timeout=0.01)
        await receiver.detach()
        assert not receiver.is_open
        await connection.close()
        with pytest.raises(UsageError, match="is closed"):
            await connection.sender("q")

    asyncio.run(main())


def test_a_refused_connection_is_reported_as_such(broker: ResumingBroker) -> None:
    async def main() -> None:
        async with await aio.connect(broker.url, reconnect=FAST) as connection:
            receiver = await connection.receiver("q")
            broker.refuses = True
            with pytest.raises(ConnectionRefused, match="refused the connection: amqp:not-allowed"):
                await aio.connect(broker.url)
            waiting = asyncio.create_task(receiver.receive())
            await asyncio.sleep(0)
            broker.drop()
            with pytest.raises(ConnectionRefused):
                await waiting

    asyncio.run(main())


def test_only_messages_can_be_sent(broker: ResumingBroker) -> None:
    async def main() -> None:
        async with await aio.connect(broker.url) as connection:
            sender = await connection.sender("q")
            with pytest.raises(UsageError, match="expected a Message, not str"):
                await sender.send("text")  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="expected a Message, not str"):
                sender.post("text")  # type: ignore[arg-type]
            assert (await sender.send(Message("x"))).accepted

    asyncio.run(main())
    assert len(broker.queue("q")) == 1


def test_a_connection_shows_its_virtual_host_as_in_a_url(broker: ResumingBroker) -> None:
    async def main() -> None:
        async with await aio.connect(broker.url + "/shop") as connection:
            assert repr(connection) == f"<AsyncConnection to 127.0.0.1:{broker.port}/shop, open>"

    asyncio.run(main())
