"""The AMQP 1.0 client against the real broker: modes, outcomes, browsing, selectors, dynamic nodes, transactions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from escrowmq import amqp10
from escrowmq.amqp10 import (
    Backoff,
    ConnectionRefused,
    DeliveryLost,
    ExactlyOnceSender,
    Message,
    MessageRejected,
    NodeNotFound,
    TransactionFailed,
    aio,
    queue,
)
from escrowmq.client import connect
from tests.broker import BrokerProcess, running_broker
from tests.harness.relay import relayed


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def address(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    name = request.node.name
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare(name, durable=True)
    return queue(name)


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[amqp10.Connection]:
    with amqp10.connect(broker.url, timeout=20) as connection:
        yield connection


@pytest.mark.parametrize("mode", ["presettled", "first", "second"])
def test_messages_pass_in_every_mode(
    connection: amqp10.Connection, address: str, mode: Literal["presettled", "first", "second"]
) -> None:
    assert connection.sender(address, mode=mode).send_many(Message(number) for number in range(300)) == 300
    receiver = connection.receiver(address, mode=mode)
    found: list[int] = []
    while len(found) < 300:
        deliveries = receiver.receive_many(100)
        found += [delivery.body for delivery in deliveries]
        receiver.accept(deliveries)
        if mode == "second":
            receiver.wait_settled(deliveries)
    assert found == list(range(300))


def test_outcomes_have_their_effects(connection: amqp10.Connection, address: str) -> None:
    connection.sender(address).send(Message("x"))
    receiver = connection.receiver(address, credit=1)
    receiver.receive().release()
    again = receiver.receive()
    assert not again.message.delivery_count
    again.modify(failed=True)
    failed = receiver.receive()
    assert failed.message.delivery_count == 1
    failed.reject("app:bad", "cannot read it")
    assert receiver.receive_many(timeout=0.1) == []


def test_refusals_name_the_reason(connection: amqp10.Connection) -> None:
    with pytest.raises(NodeNotFound, match="no queue 'nowhere'"):
        connection.receiver(queue("nowhere"))
    with pytest.raises(MessageRejected, match="no queue 'nowhere'"):
        connection.sender().send(Message("x", to=queue("nowhere")))


def test_browsing_and_selecting_leave_other_messages_alone(connection: amqp10.Connection, address: str) -> None:
    sender = connection.sender(address)
    for level in range(10):
        sender.send(Message(level, application_properties={"level": level}))
    with connection.receiver(address, browse=True) as browser:
        assert browser.receive().body == 0
    with connection.receiver(address, filters=amqp10.selector("level >= 8")) as chooser:
        for level in (8, 9):
            delivery = chooser.receive()
            assert delivery.body == level
            delivery.accept()
    assert [delivery.body for delivery in connection.receiver(address, credit=0).drain(20)] == list(range(8))


def test_a_dynamic_node_has_a_name(connection: amqp10.Connection) -> None:
    receiver = connection.receiver(dynamic=True)
    assert receiver.address
    connection.sender(receiver.address).send(Message("reply"))
    assert receiver.receive().body == "reply"


@pytest.mark.rule("SET-7")
@pytest.mark.parametrize("mode", ["first", "second"])
def test_a_transaction_moves_a_message_or_does_nothing(
    connection: amqp10.Connection, address: str, mode: Literal["first", "second"]
) -> None:
    sender, receiver = connection.sender(address, mode=mode), connection.receiver(address, mode=mode, credit=1)
    sender.send(Message("in"))
    delivery = receiver.receive()
    with pytest.raises(ZeroDivisionError), connection.transaction() as transaction:
        sender.send(Message(1 // 0), transaction=transaction)
    with connection.transaction() as transaction:
        sender.send(Message("lost"), transaction=transaction)
        delivery.accept(transaction)
        connection.rollback(transaction)
    with pytest.raises(TransactionFailed, match="is rolled back"):
        sender.send(Message("late"), transaction=transaction)
    if mode == "first":  # the outcome had settled the delivery, so it has returned to the queue
        with pytest.raises(DeliveryLost, match="rolled back"):
            delivery.accept()
        delivery = receiver.receive()
    with connection.transaction() as transaction:
        sender.send(Message("out"), transaction=transaction)
        delivery.accept(transaction)
    moved = receiver.receive()
    assert moved.body == "out"
    moved.accept()
    assert receiver.receive_many(timeout=0.1) == []


@pytest.mark.rule("SET-7")
def test_a_message_that_is_refused_rolls_the_transaction_back(connection: amqp10.Connection, address: str) -> None:
    sender, anywhere = connection.sender(address), connection.sender()
    transaction = connection.begin()
    sender.send(Message("x"), transaction=transaction)
    anywhere.post(Message("y", to=queue("nowhere")), transaction=transaction)
    with pytest.raises(MessageRejected):
        connection.commit(transaction)
    assert connection.receiver(address, credit=0).drain(5) == []


@pytest.mark.rule("SET-7")
def test_acquired_messages_return_after_a_rollback(connection: amqp10.Connection, address: str) -> None:
    connection.sender(address).send(Message("x"))
    receiver = connection.receiver(address, credit=0)
    transaction = connection.begin()
    receiver.acquire(transaction, 1)
    assert receiver.receive().body == "x"
    connection.rollback(transaction)
    assert [delivery.body for delivery in connection.receiver(address, credit=0).drain(5)] == ["x"]


def test_asyncio_does_the_same(broker: BrokerProcess, address: str) -> None:
    async def main() -> list[str]:
        async with await aio.connect(broker.url) as connection:
            sender, receiver = await connection.sender(address), await connection.receiver(address)
            async with connection.transaction() as transaction:
                await sender.send_many([Message("a"), Message("b")], transaction=transaction)
            deliveries = [await receiver.receive(), await receiver.receive()]
            receiver.accept(deliveries)
            return [delivery.body for delivery in deliveries]

    assert asyncio.run(main()) == ["a", "b"]


@pytest.mark.rule("SET-4", "SET-11")
def test_a_large_message_goes_on_where_its_connection_was_cut(
    broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    body = random.Random(1).randbytes(3_000_000)
    with relayed(broker.port, 1_000_000, 1_000_000) as relay:
        url = f"amqp://guest:guest@127.0.0.1:{relay.port}/"
        sender = ExactlyOnceSender(
            url, address, name="large", database=tmp_path / "x.db", reconnect=Backoff(0.01, 0.1), timeout=30
        )
        with sender:
            sender.send(Message(body))
    assert len(relay.sent) == 3
    assert sum(relay.sent) < 3_300_000  # the frame that was cut is sent again, and little else
    with amqp10.connect(broker.url, timeout=20) as connection:
        assert connection.receiver(address, mode="presettled").receive().body == body


def test_a_missing_virtual_host_is_a_refused_connection(broker: BrokerProcess) -> None:
    with pytest.raises(ConnectionRefused, match=r"refused the connection: amqp:not-allowed: .*nope"):
        amqp10.connect(broker.url, virtual_host="nope")
