"""Progress as operators see it."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.admin.pieces import Pieces
from escrowmq.admin.progress import ProgressAdmin
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp091 import spec
from tests.harness.client import SimClient
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import Server, fails_channel, server


class Bench:
    """A broker with two users; the application `etl` of `ann` has decided epoch 7."""

    def __init__(self) -> None:
        self.server: Server = server(users=("ann", "bob"))
        self.decide("ann", 7)
        self.admin = ProgressAdmin(FakeProcess(self.server), Pieces())

    def client(self, user: str) -> SimClient:
        client = SimClient(self.server, user=user)
        client.open_channel(1)
        return client

    def decide(self, user: str, epoch: int) -> None:
        client = self.client(user)
        client.call(1, spec.EscrowDecide(1, b"g", {"bqual": []}, "etl", epoch), spec.EscrowDecideOk)

    def refused(self, user: str, epoch: int) -> None:
        client = self.client(user)
        client.send(1, spec.EscrowDecide(1, b"g", {"bqual": []}, "etl", epoch))
        fails_channel(client, 1, 403, "the progress of application 'etl'")

    def do(self, operation: str, **arguments: Any) -> Any:
        return perform(self.admin.operations, operation, **arguments)


def test_every_application_is_listed() -> None:
    bench = Bench()
    assert bench.do("progress.list") == [{"vhost": "/", "application": "etl", "epoch": 7, "user": "ann"}]


def test_assigned_progress_keeps_its_epoch() -> None:
    bench = Bench()
    bench.refused("bob", 8)
    bench.do("progress.assign", vhost="/", application="etl", user="bob")
    bench.decide("bob", 8)
    bench.refused("ann", 9)
    assert bench.do("progress.list") == [{"vhost": "/", "application": "etl", "epoch": 8, "user": "bob"}]


def test_progress_can_be_assigned_before_its_first_epoch() -> None:
    bench = Bench()
    bench.do("progress.assign", vhost="/", application="new", user="bob")
    assert bench.do("progress.list")[1] == {"vhost": "/", "application": "new", "epoch": None, "user": "bob"}
    assert bench.do("progress.reset", vhost="/", application="new") is None


def test_reset_progress_belongs_to_the_next_user_that_decides() -> None:
    bench = Bench()
    assert bench.do("progress.reset", vhost="/", application="etl") == 7
    assert bench.do("progress.list") == []
    bench.decide("bob", 1)
    bench.refused("ann", 8)


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("progress.reset", {"vhost": "/", "application": "nobody"}),
        ("progress.assign", {"vhost": "/", "application": "etl", "user": "nobody"}),
        ("progress.assign", {"vhost": "nowhere", "application": "etl", "user": "bob"}),
    ],
)
def test_unknown_names_are_refused(operation: str, arguments: dict[str, str]) -> None:
    with pytest.raises(BrokerError) as refused:
        Bench().do(operation, **arguments)
    assert refused.value.condition is Condition.NOT_FOUND
