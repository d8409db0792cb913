"""Operations that export and import definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from escrowmq import definitions
from escrowmq.admin.definitions import DefinitionAdmin
from escrowmq.admin.operation import OperationRefused
from escrowmq.admin.pieces import Pieces
from escrowmq.core.conditions import BrokerError, Condition
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import pair

RABBITMQ = Path(__file__).with_name("definitions.json")
"""A file in the form in which RabbitMQ 3.10 exports it."""


class Bench:
    """A broker without definitions, but for the user `guest`."""

    def __init__(self) -> None:
        self.server, self.client = pair()
        self.broker = self.server.broker
        self.operations = DefinitionAdmin(FakeProcess(self.server), Pieces()).operations

    def load(self, document: dict[str, Any], vhost: str | None = None) -> None:
        for part in definitions.parts(document, vhost):
            perform(self.operations, "definitions.import", section=part.section, objects=part.objects)

    def export(self, vhost: str | None = None) -> dict[str, Any]:
        return definitions.document(perform(self.operations, "definitions.export", vhost=vhost), "1.2.3", vhost)


def loaded() -> Bench:
    bench = Bench()
    bench.load(definitions.parsed(RABBITMQ.read_bytes()))
    return bench


def test_a_file_of_rabbitmq_is_imported() -> None:
    access, directory = (bench := loaded()).broker.access, bench.broker.directory
    assert access.users["alice"].password_hash.startswith("$rabbitmq$sha256$kI3GCq")
    assert (access.users["alice"].tags, access.users["alice"].max_connections) == (("administrator",), 7)
    assert (access.users["old"].tags, access.users["old"].password_hash) == (("monitoring", "management"), "")
    assert access.permissions["alice", "shop"].write == ".*"
    assert access.topic_permissions["alice", "shop", "events"].write == "^a"
    assert (access.vhosts["shop"].max_queues, access.vhosts["shop"].max_connections) == (50, None)
    shop = directory.vhost("shop")
    assert (shop.queues["orders"].options.queue_type, shop.queues["orders"].options.max_length) == ("quorum", 100)
    assert shop.exchanges["later"].internal
    orders = shop.queues["orders"].effective
    assert orders is not None
    assert orders == ("ttl", "most", {"message-ttl": 60_000, "max-length": 1000})
    assert directory.policies.parameters.values == {"internal_cluster_id": "rabbitmq-cluster-id-x"}
    assert "a/b" in directory.vhost("/").queues
    assert {(each.destination.name, each.routing_key) for each in shop.bindings()} == {
        ("orders", "a.#"),
        ("later", "b"),
    }


def test_bindings_of_exchanges_or_queues_that_do_not_exist_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    ends = {"vhost": "/", "destination": "amq.fanout", "destination_type": "exchange", "routing_key": "k"}
    reply = {"source": "amq.topic", "destination": "reply", "destination_type": "queue"}
    bench.load({"bindings": [ends | {"source": "hidden"}, ends | reply, ends | {"source": "amq.topic"}]})
    assert [each.destination.name for each in bench.broker.directory.vhost("/").bindings()] == ["amq.fanout"]
    assert "to exchange 'hidden' in vhost '/' is not imported: no exchange 'hidden'" in caplog.text
    assert "the binding of queue 'reply' to exchange 'amq.topic' in vhost '/' is not imported" in caplog.text


def test_what_was_exported_is_imported_alike() -> None:
    bench = loaded()
    bench.broker.access.set_password("guest", "$argon2id$x", ("SCRAM-SHA-256$1:a$b:c",))
    vhost = bench.broker.directory.vhost("shop")
    bench.broker.directory.declare_exchange(
        vhost, "topic", "x-partitioned", durable=True, arguments={"x-partitions": 3}
    )
    first = bench.export()
    assert first["rabbit_version"] == "1.2.3"
    assert first["policies"] == [
        {
            "vhost": "shop",
            "name": "ttl",
            "pattern": ".*",
            "apply-to": "queues",
            "definition": {"message-ttl": 60_000},
            "priority": 0,
        }
    ]
    assert [row["name"] for row in first["operator_policies"]] == ["most"]
    assert [row["name"] for row in first["queues"]] == ["a/b", "orders"], "without the streams of the topic"
    other = Bench()
    other.load(first)
    other.load(first)
    assert other.export() == first
    assert len(other.broker.directory.vhost("shop").queues) == 4
    assert other.broker.access.users["guest"].scram_hashes == ("SCRAM-SHA-256$1:a$b:c",)


def test_the_definitions_of_one_virtual_host_can_be_imported_into_another() -> None:
    bench = loaded()
    document = bench.export("shop")
    assert "users" not in document
    assert "vhost" not in document["queues"][0]
    bench.broker.directory.add_vhost("other")
    bench.load(document, "other")
    assert bench.export("other") == document
    assert bench.broker.access.vhosts["other"].max_queues == 50


def test_what_belongs_to_a_connection_or_to_the_system_is_not_exported() -> None:
    bench = Bench()
    bench.client.declare(1, "own", exclusive=True, durable=False)
    bench.broker.directory.bind_queue(bench.broker.directory.vhost("/"), "amq.topic", "own", "k")
    document = bench.export()
    assert (document["queues"], document["exchanges"], document["bindings"]) == ([], [], [])


def test_what_exists_stays_as_it_is() -> None:
    bench = Bench()
    bench.client.declare(1, "a/b", arguments={"x-max-length": 1})
    bench.load(definitions.parsed(RABBITMQ.read_bytes()))
    assert bench.broker.directory.vhost("/").queues["a/b"].options.max_length == 1


@pytest.mark.rule("FAIR-1")
def test_an_import_is_done_in_pieces() -> None:
    bench = Bench()
    objects = [{"vhost": "/", "name": f"q{n}"} for n in range(250)]
    found = list(definitions.parts({"queues": objects}))
    assert [len(part.objects) for part in found] == [100, 100, 50]
    bench.load({"queues": objects})
    assert len(bench.broker.directory.vhost("/").queues) == 250


@pytest.mark.parametrize(
    ("section", "given"),
    [
        ("none", {}),
        ("queues", {"vhost": "/"}),
        ("queues", {"vhost": "/", "name": 1}),
        ("users", {"name": "u", "tags": [1]}),
        ("users", {"name": "u", "tags": 1}),
        ("users", {"name": "u", "limits": {"max-channels": "x"}}),
        ("parameters", {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": 1}),
        ("queues", {"vhost": "/", "name": "q", "arguments": [1]}),
        ("queues", []),
        ("policies", {"vhost": "/", "name": "p", "pattern": ""}),
        ("policies", {"vhost": "/", "name": "p", "pattern": 1, "definition": {"max-length": 1}}),
        ("global_parameters", {"name": "p"}),
    ],
)
def test_a_malformed_object_is_refused(section: str, given: Any) -> None:
    with pytest.raises(OperationRefused):
        perform(Bench().operations, "definitions.import", section=section, objects=[given])


@pytest.mark.parametrize(
    ("section", "given", "condition"),
    [
        ("queues", {"vhost": "none", "name": "q"}, Condition.NOT_FOUND),
        ("policies", {"vhost": "none", "name": "p", "pattern": "", "definition": {"expires": 1}}, Condition.NOT_FOUND),
        ("policies", {"vhost": "/", "name": "p", "pattern": "", "definition": {}}, Condition.INVALID_ARGUMENT),
        ("queues", {"vhost": "/", "name": "amq.q"}, Condition.ACCESS_REFUSED),
        ("queues", {"vhost": "/", "name": "q" * 300}, Condition.INVALID_ARGUMENT),
        ("users", {"name": "u", "password_hash": "x"}, Condition.INVALID_ARGUMENT),
    ],
)
def test_an_object_that_cannot_be_made_is_refused(section: str, given: dict[str, Any], condition: Condition) -> None:
    with pytest.raises(BrokerError) as refusal:
        perform(Bench().operations, "definitions.import", section=section, objects=[given])
    assert refusal.value.condition is condition


def test_a_refusal_says_which_object_of_the_file_it_is_about() -> None:
    names = {"vhost": "/", "pattern": "", "definition": {"max-length": 1}}
    with pytest.raises(BrokerError) as refused:
        Bench().load({"policies": [names | {"name": "good"}, names | {"name": "bad", "pattern": "("}]})
    assert "(in policies: name 'bad', vhost '/')" in refused.value.text


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize(
    ("section", "given"),
    [
        ("queues", {"name": "n", "durable": True}),
        ("exchanges", {"name": "n", "type": "fanout"}),
        ("bindings", {"source": "amq.fanout", "destination": "q", "destination_type": "queue", "routing_key": ""}),
    ],
)
def test_arguments_in_an_import_have_the_size_limit_of_clients(section: str, given: dict[str, Any]) -> None:
    bench = Bench()
    bench.load({"vhosts": [{"name": "/"}], "queues": [{"vhost": "/", "name": "q", "durable": True}]})
    with pytest.raises(BrokerError, match="the arguments take 20011 bytes") as refused:
        bench.load({section: [{"vhost": "/", "arguments": {"x": "y" * 19_999}, **given}]})
    assert refused.value.condition is Condition.PRECONDITION_FAILED
