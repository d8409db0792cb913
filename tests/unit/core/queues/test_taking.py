"""Deliveries that are taken over several turns."""

from __future__ import annotations

import pytest

from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.taking import Taking
from tests.unit.wire.amqp091.clients import pair


@pytest.mark.rule("ORD-2")
@pytest.mark.parametrize(("disposition", "left"), [(Disposition.MODIFIED, 3), (Disposition.ACCEPTED, 1)])
def test_what_is_taken_is_held_until_the_end(disposition: Disposition, left: int) -> None:
    server, client = pair()
    client.declare(1, "q")
    client.publish(1, "q", b"1", b"2", b"3")
    engine, queue = server.broker.engine, server.broker.directory.vhost("/").queues["q"]
    taking = Taking(engine, queue, "test")
    assert [entry.content for entry in taking.take(1) + taking.take(1)] == [b"1", b"2"]
    assert (queue.ready, queue.unsettled) == (1, 2)
    ((consumer, entries),) = taking.held()
    assert [entry.content for entry in entries] == [b"1", b"2"]
    assert taking.held_part(1, 5) == [(consumer, entries[1])]
    assert taking.copy_ahead(0, 5) == (1, 0)
    assert taking in engine.holders
    taking.end(disposition)
    server.end_turn()
    assert (queue.ready, queue.unsettled) == (left, 0)
    assert taking not in engine.holders


def test_nothing_is_taken_from_a_deleted_queue() -> None:
    server, client = pair()
    client.declare(1, "q")
    client.publish(1, "q", b"1")
    queue = server.broker.directory.vhost("/").queues["q"]
    taking = Taking(server.broker.engine, queue, "test")
    server.broker.directory.delete_queue(queue)
    assert taking.take(1) == []
    taking.end(Disposition.ACCEPTED)
