"""Messages that operators look at: those of a queue and those of a branch."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.admin.contents import MOST, ContentAdmin
from escrowmq.admin.operation import NothingFound, OperationRefused
from escrowmq.wire.amqp091.properties import Properties
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.admin.test_transactions import NAME
from tests.unit.admin.test_transactions import Bench as BranchBench
from tests.unit.wire.amqp091.clients import pair


class Bench:
    """A broker with five messages in `q`."""

    def __init__(self, **arguments: Any) -> None:
        self.server, self.client = pair()
        self.client.declare(1, "q", **arguments)
        self.client.publish(1, "q", *(b"%d" % number for number in range(5)))
        self.admin = ContentAdmin(FakeProcess(self.server))

    def peek(self, **arguments: Any) -> Any:
        return perform(self.admin.operations, "queue.peek", vhost="/", queue="q", **arguments)


def bodies(rows: Any) -> list[str]:
    return [row["body"] for row in rows]


def test_the_first_messages_are_shown_and_stay_where_they_are() -> None:
    bench = Bench()
    queue = bench.server.broker.directory.vhost("/").queue("q")
    rows = bench.peek(count=2)
    assert bodies(rows) == ["0", "1"]
    assert (rows[0]["position"], rows[0]["deliveries"], rows[0]["routing_key"]) == (queue.next_position - 5, 0, "q")
    assert bodies(bench.peek(start=rows[1]["position"] + 1)) == ["2", "3", "4"]
    assert (queue.ready, queue.counters.delivered) == (5, 0)


def test_unsettled_messages_are_not_shown() -> None:
    bench = Bench()
    assert bench.client.get(1, "q") is not None
    assert bodies(bench.peek()) == ["1", "2", "3", "4"]


def test_the_messages_of_the_highest_priority_are_first() -> None:
    bench = Bench(arguments={"x-max-priority": 5})
    bench.client.publish(1, "q", b"urgent", header=Properties(priority=4).encode())
    assert bodies(bench.peek(count=2)) == ["urgent", "0"]


def test_a_stream_is_shown_from_a_position() -> None:
    bench = Bench(arguments={"x-queue-type": "stream"})
    rows = bench.peek()
    assert bodies(rows) == ["0", "1", "2", "3", "4"]
    assert bodies(bench.peek(start=rows[3]["position"])) == ["3", "4"]


@pytest.mark.parametrize("count", [0, -1, MOST + 1])
def test_the_number_is_bounded(count: int) -> None:
    with pytest.raises(OperationRefused, match=f"1 to {MOST}"):
        Bench().peek(count=count)


def test_an_unavailable_queue_says_so() -> None:
    bench = Bench()
    bench.server.broker.directory.vhost("/").queue("q").fault = "the disk does not read"
    with pytest.raises(OperationRefused, match="the disk does not read"):
        bench.peek()


@pytest.mark.parametrize("prepared", [True, False])
def test_a_branch_is_shown_with_what_it_takes_and_brings(*, prepared: bool) -> None:
    bench = BranchBench(prepared=prepared)
    operations = ContentAdmin(FakeProcess(bench.server)).operations
    found = perform(operations, "tx.messages", xid=NAME)
    assert [(row["queue"], row["body"]) for row in found["taken"]] == [("in", "order")]
    assert [(row["queues"], row["body"]) for row in found["brought"]] == [(["out"], "bill"), (["out"], "parcel")]
    assert found["all"]


def test_an_unknown_branch_is_refused() -> None:
    with pytest.raises(NothingFound, match="no branch"):
        perform(Bench().admin.operations, "tx.messages", xid=NAME)
