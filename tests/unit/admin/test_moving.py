"""Messages that an operator moves to another queue are in exactly one of the two, always."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.admin import moving
from escrowmq.admin.authority import Authority
from escrowmq.admin.contents import first_entries
from escrowmq.admin.moving import MOST, PIECE, MoveAdmin
from escrowmq.admin.operation import OperationRefused
from escrowmq.core.conditions import BrokerError, Condition
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import bodies, pair, server


class Bench:
    """A broker with the queues `from`, which has some messages, and `to`."""

    def __init__(
        self, messages: int = 5, source: dict[str, Any] | None = None, target: dict[str, Any] | None = None
    ) -> None:
        self.server, self.client = pair()
        self.client.declare(1, "from", arguments=source or {})
        self.client.declare(1, "to", arguments=target or {})
        if messages:
            self.client.publish(1, "from", *(b"%d" % number for number in range(messages)))
        self.broker = self.server.broker
        self.broker.access.add_user("u", "hash", ("management",))
        self.others = list(self.broker.engine.holders)
        self.operations = MoveAdmin(FakeProcess(self.server), Authority(self.broker)).operations

    def move(self, **arguments: Any) -> int:
        given = {"vhost": "/", "queue": "from", "destination": "to"} | arguments
        moved: int = perform(self.operations, "message.move", **given)
        assert list(self.broker.engine.holders) == self.others
        return moved

    def depths(self) -> tuple[int, int]:
        queues = self.broker.directory.vhost("/").queues
        assert queues["from"].unsettled == 0
        return queues["from"].ready, queues["to"].ready

    def refusal(self, **arguments: Any) -> Condition:
        with pytest.raises(BrokerError) as refused:
            self.move(**arguments)
        return refused.value.condition


@pytest.mark.rule("TX-5")
@pytest.mark.parametrize("piece", [1, 2, PIECE])
def test_messages_move_in_order_and_stay_after_a_restart(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "PIECE", piece)
    bench = Bench()
    bench.client.publish(1, "to", b"before")
    assert bench.move(count=3) == 3
    assert bench.depths() == (2, 4)
    bench.server.run_disk()
    bench.server.storage.crash()
    after = server(storage=bench.server.storage)
    assert bodies(after, "to") == [b"before", b"0", b"1", b"2"]
    assert bodies(after, "from") == [b"3", b"4"]


def test_as_many_as_there_are_are_moved() -> None:
    bench = Bench()
    assert (bench.move(), bench.depths()) == (5, (0, 5))
    assert (bench.move(), bench.depths()) == (0, (0, 5))


def test_a_destination_that_refuses_messages_at_its_limit_leaves_the_rest_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moving, "PIECE", 2)
    bench = Bench(target={"x-max-length": 3, "x-overflow": "reject-publish"})
    with pytest.raises(BrokerError):
        bench.move()
    bench.server.end_turn()
    assert bench.depths() == (3, 2)


def test_a_refused_move_is_no_failed_delivery() -> None:
    source = {"x-queue-type": "quorum", "x-delivery-limit": 1}
    bench = Bench(source=source, target={"x-max-length": 1, "x-overflow": "reject-publish"})
    for _ in range(3):
        with pytest.raises(BrokerError):
            bench.move()
        bench.server.end_turn()
    assert bench.depths() == (5, 0)
    assert bench.move(count=1) == 1
    assert bodies(bench.server, "to") == [b"0"]


def test_a_user_needs_permissions_for_both_queues() -> None:
    for permissions in (("", "", ""), ("", "amq.default", ""), ("", "", "from")):
        bench = Bench()
        bench.broker.access.set_permission("u", "/", *permissions)
        assert bench.refusal(by="u") is Condition.ACCESS_REFUSED
        assert bench.depths() == (5, 0)


def test_nothing_moves_while_memory_is_scarce() -> None:
    bench = Bench()
    bench.broker.engine.scarcity = "memory"
    assert bench.refusal() is Condition.LIMIT_EXCEEDED
    assert bench.depths() == (5, 0)


@pytest.mark.parametrize("arguments", [{"count": 0}, {"count": MOST + 1}, {"destination": "from"}])
def test_a_request_without_sense_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(OperationRefused):
        Bench().move(**arguments)


def test_unknown_queues_and_streams_are_refused() -> None:
    assert Bench().refusal(queue="none") is Condition.NOT_FOUND
    assert Bench().refusal(destination="none") is Condition.NOT_FOUND
    assert Bench(source={"x-queue-type": "stream"}).refusal() is Condition.NOT_IMPLEMENTED


@pytest.mark.rule("TX-5")
@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}])
def test_the_message_at_one_position_is_moved_and_the_others_keep_their_places(arguments: dict[str, Any]) -> None:
    bench = Bench(source=arguments)
    position = first_entries(bench.broker.directory.vhost("/").queue("from"), 5)[2].position
    assert bench.move(position=position) == 1
    assert (bodies(bench.server, "from"), bodies(bench.server, "to")) == ([b"0", b"1", b"3", b"4"], [b"2"])


@pytest.mark.parametrize("position", [-1, 2, 99])
def test_a_position_without_a_ready_message_is_refused(position: int) -> None:
    bench = Bench()
    first = first_entries(bench.broker.directory.vhost("/").queue("from"), 5)[0].position
    bench.move(position=first + 2)
    with pytest.raises(OperationRefused, match="no message is ready at position"):
        bench.move(position=first + position if position == 2 else position)
    assert bench.depths() == (4, 1)


def test_a_message_that_its_destination_refuses_returns_to_its_place() -> None:
    bench = Bench(target={"x-max-length": 0, "x-overflow": "reject-publish"})
    position = first_entries(bench.broker.directory.vhost("/").queue("from"), 5)[2].position
    with pytest.raises(BrokerError):
        bench.move(position=position)
    assert bodies(bench.server, "from") == [b"0", b"1", b"2", b"3", b"4"]


def test_a_queue_that_has_only_the_name_of_the_one_in_the_journal_loses_nothing() -> None:
    bench = Bench()
    number = bench.broker.directory.vhost("/").queue("from").ident
    with pytest.raises(OperationRefused, match="was deleted, and another one has its name"):
        bench.move(position=0, number=number + 100)
    assert bench.depths() == (5, 0)
