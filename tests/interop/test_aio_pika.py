"""aio-pika on asyncio, including its robust connections, works with the broker."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage, AbstractQueue, AbstractRobustConnection
from aio_pika.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed, DeliveryError
from aiormq.exceptions import ProbableAuthenticationError, PublishError

from tests.broker import BrokerProcess

pytestmark = pytest.mark.interop

PATIENCE = 30.0


@asynccontextmanager
async def robust(broker: BrokerProcess) -> AsyncIterator[AbstractRobustConnection]:
    connection = await aio_pika.connect_robust(broker.url, reconnect_interval=0.1)
    async with connection:
        yield connection


@asynccontextmanager
async def named_timeout(what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    except TimeoutError:
        raise TimeoutError(f"timed out after {PATIENCE} s waiting for {what}") from None


async def until(condition: Callable[[], object], what: str) -> None:
    """Poll `condition` until it is true. Raises TimeoutError, which names `what`."""
    async with named_timeout(what):
        while not condition():  # noqa: ASYNC110 - another process sets no event
            await asyncio.sleep(0.02)


async def take(queue: AbstractQueue, count: int) -> list[AbstractIncomingMessage]:
    got: list[AbstractIncomingMessage] = []
    async with asyncio.timeout(PATIENCE), queue.iterator() as messages:
        async for message in messages:
            await message.ack()
            got.append(message)
            if len(got) == count:
                break
    return got


def run(scenario: Callable[[], object]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


def test_published_messages_are_confirmed_and_consumed(broker: BrokerProcess, name: str) -> None:
    async def scenario() -> None:
        async with robust(broker) as connection, connection.channel(on_return_raises=True) as channel:
            await channel.set_qos(prefetch_count=20)
            queue = await channel.declare_queue(name, durable=True)
            exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.TOPIC, auto_delete=True)
            await queue.bind(exchange, "a.*")
            await asyncio.gather(
                *(exchange.publish(aio_pika.Message(b"%d" % i, delivery_mode=2), f"a.{i}") for i in range(200))
            )
            got = await take(queue, 200)
            assert [message.body for message in got] == [b"%d" % i for i in range(200)]
            assert [message.routing_key for message in got] == [f"a.{i}" for i in range(200)]
            with pytest.raises(PublishError):
                await exchange.publish(aio_pika.Message(b"nobody"), "b", mandatory=True)
            await channel.declare_queue(
                name + " full", exclusive=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
            )
            await channel.default_exchange.publish(aio_pika.Message(b"fits"), name + " full")
            with pytest.raises(DeliveryError):
                await channel.default_exchange.publish(aio_pika.Message(b"does not"), name + " full")

    run(scenario)


def test_transactions_commit_and_roll_back(broker: BrokerProcess, name: str) -> None:
    async def scenario() -> None:
        async with robust(broker) as connection:
            channel = await connection.channel(publisher_confirms=False)
            queue = await channel.declare_queue(name, durable=True)
            async with channel.transaction():
                await channel.default_exchange.publish(aio_pika.Message(b"committed"), name)
                assert await queue.get(fail=False, no_ack=True) is None
            transaction = channel.transaction()
            await transaction.select()
            await channel.default_exchange.publish(aio_pika.Message(b"rolled back"), name)
            await transaction.rollback()
            message = await queue.get()
            assert message.body == b"committed"
            assert message.message_count == 0

    run(scenario)


def test_errors_close_the_channel_only(broker: BrokerProcess, name: str) -> None:
    async def scenario() -> None:
        async with robust(broker) as connection:
            channel = await connection.channel()
            with pytest.raises(ChannelNotFoundEntity, match=f"no queue '{name}' in vhost '/'"):
                await channel.get_queue(name, ensure=True)
            channel = await connection.channel()
            await channel.declare_queue(name, exclusive=True)
            with pytest.raises(ChannelPreconditionFailed, match="inequivalent arg 'x-max-length'"):
                await channel.declare_queue(name, exclusive=True, arguments={"x-max-length": 5})
            channel = await connection.channel()
            assert (await channel.declare_queue(name, passive=True)).name == name
        with pytest.raises(ProbableAuthenticationError):
            await aio_pika.connect(f"amqp://guest:wrong@127.0.0.1:{broker.port}/")

    run(scenario)


def test_headers_of_every_type_arrive_unchanged(broker: BrokerProcess, name: str) -> None:
    headers: dict[str, object] = {
        "bool": True,
        "int": -5,
        "large": 2**60,
        "float": 0.5,
        "text": "ü",
        "bytes": bytearray(b"\x00\xff"),
        "when": dt.datetime(2020, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
        "list": [1, "a", [False, None]],
        "table": {"a": {"b": [1.5]}},
        "none": None,
    }

    async def scenario() -> None:
        async with robust(broker) as connection, connection.channel() as channel:
            queue = await channel.declare_queue(name, exclusive=True)
            sent = aio_pika.Message(
                b"",
                headers=headers,  # type: ignore[arg-type]
                expiration=30.5,
                priority=3,
                timestamp=dt.datetime(2020, 2, 3, tzinfo=dt.UTC),
                correlation_id="c",
                reply_to="r",
                message_id="m",
                type="t",
                user_id="guest",
                app_id="a",
                content_type="text/plain",
                content_encoding="utf-8",
            )
            await channel.default_exchange.publish(sent, name)
            message = await queue.get(no_ack=True)
            assert {**message.headers} == headers
            for field in ("expiration", "priority", "timestamp", "correlation_id", "reply_to", "message_id", "type"):
                assert getattr(message, field) == getattr(sent, field)

    run(scenario)


def test_dead_letters_carry_their_history(broker: BrokerProcess, name: str) -> None:
    async def scenario() -> None:
        async with robust(broker) as connection, connection.channel() as channel:
            dead = await channel.declare_queue(name + " dead", exclusive=True)
            arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name, "x-message-ttl": 50}
            queue = await channel.declare_queue(name, exclusive=True, arguments=arguments)
            await channel.default_exchange.publish(aio_pika.Message(b"rejected"), name)
            await (await queue.get()).reject(requeue=False)
            await channel.default_exchange.publish(aio_pika.Message(b"expired"), name)
            for body, reason in ((b"rejected", "rejected"), (b"expired", "expired")):
                (message,) = await take(dead, 1)
                assert message.body == body
                headers: dict[str, Any] = message.headers
                (death,) = headers["x-death"]
                assert (death["queue"], death["reason"], death["count"]) == (name, reason, 1)
                assert message.headers["x-first-death-queue"] == name

    run(scenario)


def test_a_stream_is_read_from_an_offset(broker: BrokerProcess, name: str) -> None:
    async def scenario() -> None:
        async with robust(broker) as connection, connection.channel() as channel:
            await channel.set_qos(prefetch_count=5)
            stream = await channel.declare_queue(name, durable=True, arguments={"x-queue-type": "stream"})
            for i in range(20):
                await channel.default_exchange.publish(aio_pika.Message(b"%d" % i), name)
            got: list[tuple[object, bytes]] = []

            async def read(message: AbstractIncomingMessage) -> None:
                got.append((message.headers["x-stream-offset"], message.body))
                await message.ack()

            await stream.consume(read, arguments={"x-stream-offset": 12})
            await until(lambda: len(got) == 8, "eight messages")
            assert got == [(i, b"%d" % i) for i in range(12, 20)]

    run(scenario)


def test_the_rpc_pattern_works(broker: BrokerProcess, name: str) -> None:
    async def scenario() -> None:
        async with robust(broker) as connection, connection.channel() as channel:
            rpc = await aio_pika.patterns.RPC.create(channel)

            async def double(*, number: int) -> int:
                return 2 * number

            await rpc.register(name, double, auto_delete=True)
            async with asyncio.timeout(PATIENCE):
                assert await rpc.call(name, kwargs={"number": 21}) == 42

    run(scenario)


def test_a_robust_connection_survives_kills(own_broker: Callable[[str], BrokerProcess], name: str) -> None:
    """Publisher and consumer reconnect automatically, and no confirmed message is lost."""
    broker = own_broker("")
    confirmed: set[int] = set()
    got: list[int] = []

    async def publish(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        number = 0
        while True:
            number += 1
            try:
                async with asyncio.timeout(2):
                    await channel.default_exchange.publish(aio_pika.Message(b"%d" % number, delivery_mode=2), name)
            except (TimeoutError, *aio_pika.exceptions.CONNECTION_EXCEPTIONS, aio_pika.exceptions.AMQPError):
                await asyncio.sleep(0.05)
            else:
                confirmed.add(number)

    async def scenario() -> None:
        async with robust(broker) as publisher, robust(broker) as consumer:
            channel = await consumer.channel()
            await channel.set_qos(prefetch_count=50)
            queue = await channel.declare_queue(name, durable=True)

            async def receive(message: AbstractIncomingMessage) -> None:
                got.append(int(message.body))
                await message.ack()

            await queue.consume(receive)
            publishing = asyncio.create_task(publish(publisher))
            for _ in range(2):
                sent, received = len(confirmed), len(got)
                await until(lambda n=sent: len(confirmed) >= n + 100, "100 confirms")  # type: ignore[misc]
                await until(lambda n=received: len(got) >= n + 100, "100 deliveries")  # type: ignore[misc]
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
            sent, received = len(confirmed), len(got)
            await until(
                lambda: len(confirmed) >= sent + 50 and len(got) >= received + 50, "publisher and consumer to continue"
            )
            publishing.cancel()
            await until(lambda: confirmed <= set(got), "all confirmed messages")

    run(scenario)
