"""The row of a queue is made of a part that never changes, and one in which every change shows."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from escrowmq.admin.queue_rows import COUNTERS, fixed_part, queue_row, variable_part
from escrowmq.core.policies.merging import Effective
from escrowmq.core.queues.queue import Queue
from escrowmq.wire.amqp091 import spec
from tests.harness.client import SimClient
from tests.unit.wire.amqp091.clients import pair


def declared() -> tuple[Queue, SimClient]:
    server, client = pair()
    client.declare(1, "q", arguments={"x-max-length": 5})
    client.publish(1, "q", b"1", b"2")
    return server.broker.directory.vhost("/").queue("q"), client


def test_a_row_is_the_same_after_its_parts_have_been_json() -> None:
    queue, _ = declared()
    queue.effective = Effective("p", "o", {"max-length": 5})
    fixed, variable = fixed_part(queue), variable_part(queue, 2, 1, 1)
    row = queue_row(fixed, variable, counters=True)
    assert queue_row(json.loads(json.dumps(fixed)), json.loads(json.dumps(variable)), counters=True) == row
    assert (row["policy"], row["operator_policy"]) == ("p", "o")
    assert row["counters"].keys() == {"unsettled", *COUNTERS}


@pytest.mark.parametrize(
    "change",
    [
        lambda client: client.publish(1, "q", b"3"),
        lambda client: client.get(1, "q"),
        lambda client: client.get(1, "q", no_ack=True),
        lambda client: client.call(1, spec.QueuePurge("q"), spec.QueuePurgeOk),
        lambda client: client.call(1, spec.BasicConsume("q", "t"), spec.BasicConsumeOk),
        lambda client: client.call(1, spec.EscrowHold("q", "etl", 2), spec.EscrowHoldOk),
    ],
)
def test_what_happens_to_a_queue_shows_in_its_variable_part(change: Callable[[SimClient], object]) -> None:
    queue, client = declared()
    before = variable_part(queue)
    assert variable_part(queue) == before
    change(client)
    assert variable_part(queue) != before


def test_messages_that_leave_and_return_show_although_their_number_is_the_same() -> None:
    queue, client = declared()
    before = variable_part(queue)
    assert client.get(1, "q") is not None
    client.send(1, spec.BasicNack(1, requeue=True))
    assert queue.ready == 2
    assert variable_part(queue) != before
