"""Memory is taken back from those that hold much of it for long."""

from __future__ import annotations

import gc
import random
from typing import cast

import pytest

from escrowmq.core.broker import Broker
from escrowmq.core.engine import TIGHT_LIMIT
from escrowmq.core.ports import Holder
from escrowmq.journal.memory import MemoryStorage
from escrowmq.server.relief import Relief
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.content import Content
from tests.harness.client import SimClient
from tests.harness.frames import publish_frames
from tests.harness.server import SimServer
from tests.unit.wire.amqp091.clients import fails_channel

LIMIT = 20_000_000
GRACE_MS = 30_000
BODY = bytes(100_000)


class Shortage:
    """A broker with little memory, whose rounds a test calls."""

    def __init__(self, grace_ms: int = GRACE_MS) -> None:
        self.server = SimServer(MemoryStorage(random.Random(1)))
        self.relief = Relief(self.server.broker, LIMIT, grace_ms)
        self.client = self.open()
        self.client.declare(1, "q")

    def open(self, mode: str = "", prefetch: int = 0) -> SimClient:
        client = SimClient(self.server)
        client.open_channel(1, mode=mode, prefetch=prefetch)
        return client

    def open_transactions(self, *counts: int) -> list[SimClient]:
        """Clients that have published so many messages each in a transaction."""
        clients = [self.open("tx") for _ in counts]
        for client, count in zip(clients, counts, strict=True):
            client.publish(1, "q", *[BODY] * count)
        return clients

    def rounds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.server.now += 1000
            self.server.broker.engine.now = self.server.now
            self.relief.look()
            self.server.end_turn()
            self.server.run_disk()


def told(clients: list[SimClient]) -> list[bool]:
    """Which of the clients were told something."""
    for client in clients:
        client.collect()
    return [bool(client.inbox) for client in clients]


@pytest.mark.rule("FAIR-3")
def test_an_idle_transaction_is_rolled_back() -> None:
    shortage = Shortage()
    (idle,) = shortage.open_transactions(20)
    shortage.rounds(30)
    assert told([idle]) == [False]
    shortage.rounds(1)
    fails_channel(idle, 1, codes.RESOURCE_ERROR, "memory is short, and the channel or link has held about 20000")
    assert shortage.client.count(1, "q") == 0


@pytest.mark.rule("FAIR-3")
def test_deliveries_that_are_never_acknowledged_return_to_their_queue_and_leave_memory() -> None:
    shortage = Shortage()
    shortage.client.publish(1, "q", *[BODY] * 50)
    shortage.server.broker.engine.keep_less(on=True)
    idle = shortage.open()
    idle.send(1, spec.BasicConsume("q", "t"))
    assert len(idle.deliveries()) == 50
    idle.inbox.clear()
    shortage.rounds(31)
    fails_channel(idle, 1, codes.RESOURCE_ERROR, "unacknowledged deliveries")
    queue = shortage.server.broker.directory.vhosts["/"].queues["q"]
    assert queue.ready == 50
    assert sum(len(entry.content) for entry in queue.order.in_memory()) <= TIGHT_LIMIT + len(BODY)
    for _ in range(50):
        message = shortage.client.get(1, "q")
        assert message is not None
        assert message.body == BODY
        assert cast("spec.BasicGetOk", message.method).redelivered


@pytest.mark.rule("FAIR-3")
def test_a_message_that_stays_incomplete_is_discarded() -> None:
    shortage = Shortage()
    idle = shortage.open()
    whole = publish_frames(1, spec.BasicPublish("", "q"), b"\x00\x00", bytes(8_000_000), 128 << 10)
    shortage.server.receive(idle.port, whole[:3_000_000])
    shortage.rounds(31)
    fails_channel(idle, 1, codes.RESOURCE_ERROR, "memory is short, and the channel or link has held about ")
    assert shortage.server.broker.holdings.of_user("guest") == 0
    assert not [one for one in gc.get_objects() if isinstance(one, Content) and one.held_bytes > 1000]


def test_a_consumer_that_works_is_left_alone() -> None:
    shortage = Shortage()
    busy = shortage.open(prefetch=20)
    busy.send(1, spec.BasicConsume("q", "t"))
    for _ in range(20):
        shortage.client.publish(1, "q", *[BODY] * 20)
        tags = [cast("spec.BasicDeliver", message.method).delivery_tag for message in busy.deliveries()]
        shortage.rounds(5)
        busy.send(1, spec.BasicAck(tags[-1], multiple=True))
    busy.inbox.clear()
    assert busy.count(1, "q") == 0


def test_one_that_acknowledges_only_a_little_is_not() -> None:
    shortage = Shortage()
    shortage.client.publish(1, "q", *[BODY] * 50)
    slow = shortage.open()
    slow.send(1, spec.BasicConsume("q", "t"))
    slow.deliveries()
    slow.inbox.clear()
    for tag in range(1, 4):
        slow.send(1, spec.BasicAck(tag))
        shortage.rounds(10)
    shortage.rounds(1)
    fails_channel(slow, 1, codes.RESOURCE_ERROR, "held about 4")


def test_the_one_that_holds_most_comes_first_and_a_user_that_holds_little_never() -> None:
    shortage = Shortage()
    clients = shortage.open_transactions(9, 20, 30)
    shortage.rounds(31)
    assert told(clients) == [False, False, True]
    shortage.rounds(1)
    assert told(clients) == [False, True, True]
    shortage.rounds(100)
    assert told(clients) == [False, True, True]


@pytest.mark.rule("FAIR-3")
def test_many_small_holders_of_one_user_are_relieved_until_they_hold_little_together() -> None:
    shortage = Shortage()
    clients = shortage.open_transactions(*[9] * 29)  # 4.5 % of the limit each, 130 % together
    shortage.rounds(30)
    assert sum(told(clients)) == 0
    shortage.rounds(1)
    assert sum(told(clients)) == 2  # more than 5 %
    shortage.rounds(30)
    assert sum(told(clients)) == 28
    assert shortage.server.broker.holdings.of_user("guest") < LIMIT / 20


@pytest.mark.rule("FAIR-3")
def test_the_user_and_then_the_connection_that_hold_most_come_first() -> None:
    shortage = Shortage()
    shortage.server.broker.access.add_user("other", "")
    shortage.server.broker.access.set_permission("other", "/", "", ".*", "")
    (single,) = shortage.open_transactions(15)
    mine, many = SimClient(shortage.server, user="other"), SimClient(shortage.server, user="other")
    for client, count, size in ((mine, 1, 11), (many, 4, 8)):
        for number in range(1, count + 1):
            client.open_channel(number, mode="tx")
            client.publish(number, "q", *[BODY] * size)
    shortage.rounds(31)
    assert told([single, mine, many]) == [False, False, True]
    shortage.rounds(3)
    assert told([single, mine, many]) == [True, True, True]


def test_a_holder_counts_only_what_it_has_held_for_the_time_of_grace() -> None:
    """A consumer that has one delivery for long, and works on others, holds only the one."""
    shortage = Shortage()
    busy = shortage.open(prefetch=21)
    busy.send(1, spec.BasicConsume("q", "t"))
    shortage.client.publish(1, "q", BODY)
    for _ in range(20):
        shortage.client.publish(1, "q", *[BODY] * 20)
        tags = [cast("spec.BasicDeliver", message.method).delivery_tag for message in busy.deliveries()]
        shortage.rounds(5)
        busy.send(1, *[spec.BasicAck(tag) for tag in tags if tag != 1])
    busy.inbox.clear()
    assert busy.count(1, "q") == 0


@pytest.mark.parametrize("grace_ms", [0, GRACE_MS])
def test_without_a_grace_or_with_an_alarm_that_ended_in_between_nothing_is_closed(grace_ms: int) -> None:
    shortage = Shortage(grace_ms)
    (idle,) = shortage.open_transactions(20)
    shortage.rounds(20)
    shortage.relief.rest()
    shortage.rounds(20)
    assert told([idle]) == [False]


def test_holders_of_other_kinds_are_passed_over() -> None:
    broker = Broker(Shortage().server.journal, random.Random(1))
    broker.engine.holders[cast("Holder", object())] = None
    Relief(broker, LIMIT, GRACE_MS).look()
