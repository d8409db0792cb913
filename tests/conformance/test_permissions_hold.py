"""A permission holds on every way to the object (SEC-3): detours around topic permissions, and earlier consumers."""

from __future__ import annotations

import random

import pytest

from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import Properties
from tests.harness.client import SimClient
from tests.harness.server import Options, SimServer
from tests.unit.wire.amqp091.clients import fails_channel

DETOURS = {
    "bound": spec.ExchangeBind("events", "mine", "#"),
    "alternate": spec.ExchangeDeclare("mine.2", "fanout", arguments={"alternate-exchange": "events"}),
    "dead letters with their own keys": spec.QueueDeclare("mine.q", arguments={"x-dead-letter-exchange": "events"}),
    "dead letters with another's key": spec.QueueDeclare(
        "mine.q", arguments={"x-dead-letter-exchange": "events", "x-dead-letter-routing-key": "bob.1"}
    ),
}


def site(write: str = "^alice[.]") -> tuple[SimServer, SimClient, SimClient]:
    """An operator has bound everything of the topic exchange `events` to a queue; Alice's keys are restricted."""
    server = SimServer(MemoryStorage(random.Random(1)), Options(users=("guest", "alice")))
    operator = SimClient(server, "operator")
    operator.open_channel(1)
    operator.call(1, spec.ExchangeDeclare("events", "topic"), spec.ExchangeDeclareOk)
    operator.call(1, spec.ExchangeDeclare("mine", "topic"), spec.ExchangeDeclareOk)
    operator.declare(1, "all")
    operator.call(1, spec.QueueBind("all", "events", "#"), spec.QueueBindOk)
    server.broker.access.set_permission("alice", "/", "^mine", "^(mine|events|amq[.]default)", "^mine|^all$")
    server.broker.access.set_topic_permission("alice", "/", "events", write, ".*")
    alice = SimClient(server, "alice", user="alice")
    alice.open_channel(1)
    return server, operator, alice


def ways(operator: SimClient) -> dict[str, tuple[str, bytes]]:
    """Exchanges of an operator that lead to `events`: their names, and the properties of a message that takes them."""
    plain = Properties().encode()
    made: list[tuple[str, str, Method]] = [
        ("bound", "topic", spec.ExchangeBind("events", "mine.bound", "#")),
        ("fanout", "fanout", spec.ExchangeBind("events", "mine.fanout")),
        ("headers", "headers", spec.ExchangeBind("events", "mine.headers", "", arguments={"a": 1, "x-match": "all"})),
    ]
    for name, kind, bind in made:
        operator.call(1, spec.ExchangeDeclare(f"mine.{name}", kind), spec.ExchangeDeclareOk)
        operator.call(1, bind, spec.ExchangeBindOk)
    alternate = spec.ExchangeDeclare("mine.alternate", "direct", arguments={"alternate-exchange": "events"})
    operator.call(1, alternate, spec.ExchangeDeclareOk)
    operator.call(1, spec.ExchangeDeclare("mine.far", "fanout"), spec.ExchangeDeclareOk)
    operator.call(1, spec.ExchangeBind("mine.alternate", "mine.far"), spec.ExchangeBindOk)
    found = {name: (f"mine.{name}", plain) for name in ("bound", "fanout", "alternate", "far")}
    return found | {"headers": ("mine.headers", Properties(headers={"a": 1}).encode())}


@pytest.mark.rule("SEC-3")
class TestTopics:
    @pytest.mark.parametrize("detour", DETOURS)
    def test_a_restricted_user_sets_up_no_detour(self, detour: str) -> None:
        _, operator, alice = site()
        alice.send(1, DETOURS[detour])
        fails_channel(alice, 1, 403, "'events'", "refused for user 'alice'")
        assert operator.count(1, "all") == 0

    @pytest.mark.parametrize("detour", DETOURS)
    def test_a_user_with_every_key_may_set_them_up(self, detour: str) -> None:
        _, _, alice = site(".*")
        alice.send(1, DETOURS[detour])
        assert not isinstance(alice.inbox.popleft().method, spec.ChannelClose)

    def test_dead_letters_may_have_a_permitted_key(self) -> None:
        _, operator, alice = site()
        arguments = {"x-dead-letter-exchange": "events", "x-dead-letter-routing-key": "alice.dead", "x-message-ttl": 0}
        alice.declare(1, "mine.q", arguments=arguments)
        alice.publish(1, "mine.q", b"late")
        alice.count(1, "mine.q")
        assert operator.count(1, "all") == 1

    @pytest.mark.parametrize("way", ["bound", "fanout", "headers", "alternate", "far"])
    def test_keys_are_checked_on_every_exchange_on_the_way(self, way: str) -> None:
        _, operator, alice = site()
        exchange, properties = ways(operator)[way]
        alice.publish(1, "alice.1", b"mine", exchange=exchange, header=properties)
        assert operator.count(1, "all") == 1
        alice.publish(1, "bob.1", b"forged", exchange=exchange, header=properties)
        fails_channel(alice, 1, 403, "topic 'bob.1' in exchange 'events'")
        assert operator.count(1, "all") == 1

    def test_a_new_binding_makes_a_key_forbidden(self) -> None:
        _, operator, alice = site()
        alice.publish(1, "bob.1", b"1", exchange="mine")
        operator.call(1, spec.ExchangeBind("events", "mine", "#"), spec.ExchangeBindOk)
        alice.publish(1, "bob.1", b"2", exchange="mine")
        fails_channel(alice, 1, 403, "topic 'bob.1'")
        assert operator.count(1, "all") == 0

    def test_other_users_are_not_restricted(self) -> None:
        _, operator, _ = site()
        exchange, _ = ways(operator)["bound"]
        operator.publish(1, "bob.1", b"1", exchange=exchange)
        assert operator.count(1, "all") == 1

    @pytest.mark.parametrize("header", ["CC", "BCC"])
    def test_further_keys_are_checked_on_the_way(self, header: str) -> None:
        _, operator, alice = site()
        exchange, _ = ways(operator)["bound"]
        properties = Properties(headers={header: ["bob.1"]}).encode()
        alice.publish(1, "alice.1", b"forged", exchange=exchange, header=properties)
        fails_channel(alice, 1, 403, "topic 'bob.1'")


@pytest.mark.rule("SEC-3")
class TestConsumers:
    def test_a_consumer_ends_with_its_permission(self) -> None:
        server, operator, alice = site()
        alice.open_channel(2)
        operator.declare(1, "mine.q")
        for channel, queue in ((1, "all"), (2, "mine.q")):
            alice.call(channel, spec.BasicConsume(queue, "tag"), spec.BasicConsumeOk)
        server.broker.access.set_permission("alice", "/", "", "", "^mine")
        list(alice.port.endpoint.permissions_changed())
        server.end_turn()
        server.run_disk()
        assert alice.expect(1, spec.BasicCancel).consumer_tag == "tag"
        operator.publish(1, "all", b"secret")
        operator.publish(1, "mine.q", b"public")
        assert alice.bodies() == [b"public"]
        assert operator.count(1, "all") == 1

    def test_unsettled_deliveries_stay_with_the_client(self) -> None:
        server, operator, alice = site()
        alice.call(1, spec.BasicConsume("all", "tag"), spec.BasicConsumeOk)
        operator.publish(1, "all", b"before")
        (delivery,) = alice.deliveries()
        assert isinstance(delivery.method, spec.BasicDeliver)
        server.broker.access.clear_permission("alice", "/")
        list(alice.port.endpoint.permissions_changed())
        alice.send(1, spec.BasicAck(delivery.method.delivery_tag))
        alice.expect(1, spec.BasicCancel)
        assert operator.count(1, "all") == 0
        assert not alice.inbox


@pytest.mark.rule("SEC-3")
class TestBulkReaders:
    @pytest.mark.parametrize(
        "ask",
        [
            pytest.param(ask, id=ask.NAME)
            for ask in (
                spec.EscrowHold("all", "etl", 2),
                spec.EscrowRead("all", "etl", 1),
                spec.EscrowSettle("all", "etl", 2),
                spec.EscrowRelease("all", "etl"),
            )
        ],
    )
    def test_a_reader_with_a_reservation_ends_with_its_permission(self, ask: Method) -> None:
        server, operator, alice = site()
        operator.publish(1, "all", b"1", b"2")
        alice.call(1, spec.EscrowHold("all", "etl", 1), spec.EscrowHoldOk)
        server.broker.access.set_permission("alice", "/", "", "", "^mine")
        alice.send(1, ask)
        fails_channel(alice, 1, 403, "'all'")

    def test_a_bulk_reader_reads_only_queues_that_it_may_read(self) -> None:
        _, operator, alice = site()
        operator.declare(1, "theirs")
        operator.publish(1, "theirs", b"secret")
        alice.send(1, spec.EscrowHold("theirs", "etl", 1))
        fails_channel(alice, 1, 403, "'theirs'")
        assert operator.count(1, "theirs") == 1
