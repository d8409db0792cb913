"""The operators' view of reservations, and their release."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.admin.pieces import Pieces
from escrowmq.admin.reservations import ReservationAdmin
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp091 import spec
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import bodies, pair


class Bench:
    """A broker with a queue of three messages, of which a group has reserved two."""

    def __init__(self) -> None:
        self.server, self.client = pair()
        self.client.declare(1, "q")
        self.client.publish(1, "q", b"a", b"b", b"c")
        self.client.call(1, spec.EscrowHold("q", "etl", 2), spec.EscrowHoldOk)
        self.admin = ReservationAdmin(FakeProcess(self.server), Pieces())

    def do(self, operation: str, **arguments: Any) -> Any:
        return perform(self.admin.operations, operation, **arguments)


def test_every_group_is_listed() -> None:
    bench = Bench()
    bench.client.call(1, spec.EscrowSettle("q", "etl", 2), spec.EscrowSettleOk)
    (row,) = bench.do("hold.list")
    assert row == {
        "vhost": "/",
        "queue": "q",
        "group": "etl",
        "held": 1,
        "first": 2,
        "end": 3,
        "settled": 2,
        "in_doubt": 0,
        "age": 0,
    }


def test_the_age_is_that_of_the_first_message_that_is_held() -> None:
    bench = Bench()
    bench.server.now += 5000
    bench.client.call(1, spec.EscrowHold("q", "etl", 1), spec.EscrowHoldOk)
    bench.server.now += 2000
    bench.server.end_turn()
    assert bench.do("hold.list")[0]["age"] == 7
    bench.client.call(1, spec.EscrowSettle("q", "etl", 3), spec.EscrowSettleOk)
    assert bench.do("hold.list")[0]["age"] == 2
    bench.do("hold.release", vhost="/", queue="q", group="etl")
    assert bench.do("hold.list")[0]["age"] is None


def test_released_messages_are_ready() -> None:
    bench = Bench()
    assert bodies(bench.server) == [b"c"]
    assert bench.do("hold.release", vhost="/", queue="q", group="etl") == 2
    assert bodies(bench.server) == [b"a", b"b", b"c"]
    assert bench.do("hold.release", vhost="/", queue="q", group="etl") == 0


def test_a_missing_queue_is_refused() -> None:
    with pytest.raises(BrokerError) as caught:
        Bench().do("hold.release", vhost="/", queue="x", group="etl")
    assert caught.value.condition is Condition.NOT_FOUND
