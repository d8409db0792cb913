"""The operators' view of consumer groups."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.admin.groups import GroupAdmin
from escrowmq.admin.operation import OperationRefused
from escrowmq.admin.pieces import Pieces
from escrowmq.core.conditions import BrokerError
from escrowmq.core.groups.options import GroupOptions
from escrowmq.core.messages.envelope import Envelope
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import pair


class Bench:
    """A topic of two streams with three messages in the first, of which a member has settled the second one."""

    def __init__(self) -> None:
        self.server, _ = pair()
        broker = self.server.broker
        self.topic = broker.topics.declare(broker.directory.vhost("/"), "t", 2)
        self.stream = self.topic.streams[0]
        self.group = broker.groups.declare("/", "g", GroupOptions(max_attempts=3, dead_letter_topic="d"), user="u")
        broker.engine.publish(Envelope("t", "k"), [b"a", b"b", b"c"], (self.stream,))
        leases = self.group.lease([self.stream], 2, 1000).leases
        self.group.settle([leases[1].handle])
        self.admin = GroupAdmin(FakeProcess(self.server), Pieces())

    def do(self, operation: str, **arguments: Any) -> Any:
        return perform(self.admin.operations, operation, **arguments)

    def reset(self, to: str, **arguments: Any) -> Any:
        return self.do("group.reset", vhost="/", name="g", topic="t", to=to, **arguments)


def test_a_group_is_created_with_its_dead_letter_topic_and_changed() -> None:
    bench = Bench()
    broker = bench.server.broker
    for attempts in (5, 7):
        row = bench.do("group.create", vhost="/", name="h", dead_letter_topic="%DLQ%h", fifo=True, attempts=attempts)
        assert (row["name"], row["fifo"], row["max_attempts"], row["dead_letters"]) == ("h", True, attempts, "%DLQ%h")
    dead = broker.topics.find(broker.directory.vhost("/"), "%DLQ%h")
    assert dead is not None
    assert (len(dead.streams), dead.message_type) == (1, "mixed")
    group = broker.groups.find("/", "h")
    assert group is not None
    assert group.options.max_attempts == 7


def test_a_group_with_settings_out_of_range_is_refused() -> None:
    with pytest.raises(BrokerError, match="max_attempts is 0"):
        Bench().do("group.create", vhost="/", name="h", dead_letter_topic="d", fifo=False, attempts=0)


def test_groups_are_listed_and_shown_with_their_lag() -> None:
    bench = Bench()
    assert bench.do("group.list") == [
        {
            "vhost": "/",
            "name": "g",
            "user": "u",
            "fifo": False,
            "max_attempts": 3,
            "dead_letters": "d",
            "streams": 1,
            "lag": 2,
            "unsettled": 1,
        }
    ]
    bench.group.lock(bench.stream, "m", bench.server.broker.engine.now + 10)
    assert bench.do("group.show", vhost="/", name="g") == [
        {"queue": "t-0", "offset": 0, "next_offset": 3, "lag": 2, "leased": 1, "locked_by": "m"}
    ]


@pytest.mark.rule("GRP-5")
@pytest.mark.parametrize(("to", "expected"), [("first", 1), ("next", 4), ("2", 3), ("@0", 1), ("@99999999999999", 4)])
def test_an_operator_resets_the_progress(to: str, expected: int) -> None:
    bench = Bench()
    assert bench.reset(to)["streams"] == 2
    assert bench.group.progress(bench.stream) == expected
    assert bench.reset("first", partition=0)["streams"] == 1


def test_a_dry_run_of_a_reset_changes_nothing() -> None:
    bench = Bench()
    before = bench.group.progress(bench.stream)
    assert bench.reset("next", dry_run=True) == {"streams": 2, "new": 1}
    assert bench.group.progress(bench.stream) == before


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"to": "odd"}, "'odd' is neither"),
        ({"to": "@x"}, "'@x' is neither"),
        ({"to": "first", "partition": 2}, "has no partition 2"),
    ],
)
def test_a_reset_that_makes_no_sense_changes_nothing(arguments: dict[str, Any], error: str) -> None:
    bench = Bench()
    with pytest.raises(OperationRefused, match=error):
        bench.reset(**arguments)
    assert bench.group.progress(bench.stream) == 1


def test_unknown_groups_and_topics_are_refused() -> None:
    bench = Bench()
    with pytest.raises(OperationRefused, match="no topic 'x'"):
        bench.do("group.reset", vhost="/", name="g", topic="x", to="first")
    bench.do("group.delete", vhost="/", name="g")
    for operation in ("group.show", "group.delete"):
        with pytest.raises(OperationRefused, match="no consumer group 'g'"):
            bench.do(operation, vhost="/", name="g")


def test_settings_that_are_not_given_stay() -> None:
    bench = Bench()
    bench.do("group.create", vhost="/", name="h", fifo=True, attempts=5)
    row = bench.do("group.create", vhost="/", name="h")
    assert (row["fifo"], row["max_attempts"], row["dead_letters"]) == (True, 5, "%DLQ%h")
    row = bench.do("group.create", vhost="/", name="h", attempts=7)
    assert (row["fifo"], row["max_attempts"]) == (True, 7)
