"""Settlement by a time limit, or by a window of the latest deliveries."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.wire.amqp10.codec.performatives import RECEIVER, SETTLED_MODE, Attach, Detach, Disposition
from escrowmq.wire.amqp10.codec.states import Accepted
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.errors import INVALID_FIELD
from escrowmq.wire.amqp10.policy import AFTER, WINDOW
from tests.unit.wire.amqp10.clients import Client, Server, connected

Q = "q"


def stocked(count: int) -> tuple[Server, Client]:
    made, client = connected()
    client.sender(Q)
    for number in range(count):
        client.post(number, b"%d" % number, settled=True)
    return made, client


def settled(client: Client) -> list[tuple[int, int]]:
    """Return the ranges that the broker has settled, and drop all else."""
    found = []
    while client.inbox:
        each = client.inbox.popleft().performative
        if isinstance(each, Disposition):
            assert (each.settled, each.state) == (True, Accepted())
            found.append((each.first, each.first if each.last is None else each.last))
    return found


def unsettled(made: Server) -> int:
    return made.broker.directory.vhost("/").queue(Q).unsettled


def later(made: Server, client: Client, ms: int) -> None:
    made.now += ms
    made.broker.engine.now = made.now
    made.broker.engine.run_deadlines()
    made.end_turn()
    made.run_disk()
    client.collect()


@pytest.mark.rule("SET-5")
def test_deliveries_beyond_the_window_are_settled() -> None:
    made, client = stocked(10)
    answer = client.receiver(Q, credit=7, properties={WINDOW: 3})
    assert answer.properties == {WINDOW: 3}
    assert (settled(client), unsettled(made)) == ([(0, 3)], 3)
    client.send(0, Disposition(role=RECEIVER, first=4, last=5, settled=True, state=Accepted()))
    client.flow(1, 3, delivery_count=7)
    assert settled(client) == [(4, 6)], "the client has settled 4 and 5"
    assert unsettled(made) == 3


@pytest.mark.rule("SET-5")
def test_deliveries_are_settled_after_the_time() -> None:
    made, client = stocked(4)
    client.receiver(Q, credit=2, properties={AFTER: 1000})
    later(made, client, 600)
    client.flow(1, 2, delivery_count=2)
    later(made, client, 399)
    assert (settled(client), unsettled(made)) == ([], 4)
    later(made, client, 1)
    assert (settled(client), unsettled(made)) == ([(0, 1)], 2)
    later(made, client, 600)
    assert (settled(client), unsettled(made)) == ([(2, 3)], 0)


def test_both_limits_hold_together() -> None:
    made, client = stocked(5)
    client.receiver(Q, credit=5, properties={AFTER: 1000, WINDOW: 2})
    assert settled(client) == [(0, 2)]
    later(made, client, 1000)
    assert (settled(client), unsettled(made)) == ([(3, 4)], 0)


def test_a_detached_link_settles_nothing_more() -> None:
    made, client = stocked(2)
    client.receiver(Q, credit=2, properties={AFTER: 1000})
    client.send(0, Detach(handle=1))
    assert len(made.broker.engine.deadlines) == 0 or made.broker.engine.next_deadline() is None
    later(made, client, 2000)
    assert (settled(client), unsettled(made)) == ([], 2)


@pytest.mark.parametrize(
    ("properties", "mode"),
    [
        ({AFTER: 0}, 0),
        ({AFTER: -1}, 0),
        ({WINDOW: "3"}, 0),
        ({WINDOW: True}, 0),
        ({WINDOW: 1_000_001}, 0),
        ({WINDOW: 3}, SETTLED_MODE),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(properties: dict[Symbol, Any], mode: int) -> None:
    _, client = stocked(1)
    attach = Attach("r", 1, RECEIVER, mode, source=Source(Q), target=Target(), properties=properties)
    client.refused(attach, INVALID_FIELD)
