"""The audit of a real broker that served exactly-once links of AMQP 1.0, and was killed in between, is clean."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from escrowmq import amqp10
from escrowmq.admin.socket.client import ask
from escrowmq.amqp10 import DURABLE, ExactlyOnceReceiver, ExactlyOnceSender, Message, queue
from escrowmq.client import connect
from tests.broker import BrokerProcess, running_broker, wait_until
from tests.pipeline.direct import Audited, audited

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

CONFIG = """
[memory]
queue_resident_bytes = "64KiB"
[journal]
segment_bytes = "1MiB"
detail = "deliveries"
retain_bytes = "1GiB"
"""
QUEUES = ("in", "out", "later")
MESSAGES = 40


def exactly_once(broker: BrokerProcess, folder: Path, run: int) -> None:
    """Send messages, process a part of them, return one, and leave others unsettled in both directions. `run` counts
    from 1.
    """
    with ExactlyOnceSender(broker.url, queue("in"), name="orders", database=folder / "shop.db") as sender:
        for number in range(MESSAGES):
            sender.put(Message(number))
        sender.flush()
    name, database = "shipments", folder / "warehouse.db"
    receiver = ExactlyOnceReceiver(broker.url, queue("in"), name=name, database=database, credit=20)
    done = receiver.receive_many(10)
    with receiver.process(*done):
        pass
    with pytest.raises(ZeroDivisionError), receiver.process(receiver.receive()):
        raise ZeroDivisionError
    receiver.receive().release()
    receiver.receive().reject("app:bad", "cannot read it")
    wait_until(lambda: remaining(broker) == run * (MESSAGES - 11), what="the outcomes")
    receiver.connection.abort()  # the other deliveries stay locked for the terminus


def remaining(broker: BrokerProcess) -> int:
    """Return the number of messages in the queue `in`, unsettled ones included."""
    (row,) = [row for row in ask(broker.data_dir, "queue.list") if row["name"] == "in"]
    return int(row["ready"]) + int(row["unsettled"])


def transactions(broker: BrokerProcess, phase: int) -> None:
    """Move messages in transactions between durable links, and roll one back."""
    with amqp10.connect(broker.url, container_id=f"mover {phase}", timeout=20) as connection:
        sender = connection.sender(queue("out"), mode="second", name="to", terminus=DURABLE)
        sender.send(Message("first"))
        receiver = connection.receiver(queue("out"), mode="second", name="from", terminus=DURABLE, credit=1)
        delivery = receiver.receive()
        with connection.transaction() as transaction:
            sender.send(Message("never"), transaction=transaction)
            delivery.accept(transaction)
            connection.rollback(transaction)
        with connection.transaction() as transaction:
            for number in range(3):
                sender.send(Message(number), transaction=transaction)
            delivery.accept(transaction)
        receiver.receive()  # unsettled when the connection ends
        connection.sender(queue("later")).send(Message("delayed", annotations={"x-opt-delivery-delay": 1}))
        later = connection.receiver(queue("later"), mode="second", name="later", terminus=DURABLE)
        later.receive().accept()


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> list[Audited]:
    """The audits after each kill, and after the end of the broker."""
    folder = tmp_path_factory.mktemp("broker")
    config = folder / "escrowmq.toml"
    config.write_text(CONFIG, encoding="utf-8")
    found = []
    with running_broker(folder, "--config", str(config)) as broker:
        with connect(broker.url) as connection, connection.channel() as channel:
            for name in QUEUES:
                channel.queue_declare(name, durable=True)
        for phase in range(2):
            exactly_once(broker, folder, phase + 1)
            transactions(broker, phase)
            broker.kill()
            found.append(audited(broker.data_dir))
            broker.start()
        exactly_once(broker, folder, 3)
        assert broker.terminate() == 0
        found.append(audited(broker.data_dir))
    return found


@pytest.mark.rule("PIPE-5")
def test_exactly_once_links_transactions_and_delays_are_clean(histories: list[Audited]) -> None:
    assert [each.wrong for each in histories] == [[], [], []]


def test_outcomes_of_links_are_those_of_the_messages(histories: list[Audited]) -> None:
    ended = Counter((row["queue"], row["outcome"]) for row in histories[-1].messages)
    assert (ended["in", "accepted"], ended["in", "rejected"], ended["in", None]) == (30, 3, 3 * MESSAGES - 33)
    assert (ended["out", "accepted"], ended["out", None]) == (2, 6)
    assert (ended["amq.delayed", "due"], ended["later", "accepted"]) == (2, 2)
