"""Queues through the management node."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.wire.amqp10.codec.types import Array, UInt, ULong
from tests.unit.wire.amqp10.management.manager import Manager


@pytest.fixture
def manager() -> Manager:
    return Manager()


def test_a_new_queue_is_described_as_rabbitmq_does(manager: Manager) -> None:
    code, body = manager.ask("PUT", "/queues/q", {})
    assert code == 201
    assert body == {
        "name": "q",
        "vhost": "/",
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "type": "classic",
        "arguments": {},
        "leader": "escrowmq",
        "replicas": ["escrowmq"],
        "message_count": 0,
        "consumer_count": 0,
    }
    types: dict[str, type] = {"replicas": Array, "message_count": ULong, "consumer_count": UInt}
    assert {key: type(body[key]) for key in types} == types


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({}, "classic"),
        ({"x-queue-type": "classic", "x-max-priority": 5}, "classic"),
        ({"x-queue-type": "quorum", "x-delivery-limit": 3}, "quorum"),
        ({"x-queue-type": "stream", "x-max-age": "1h"}, "stream"),
    ],
)
def test_every_type_of_queue_is_declared(manager: Manager, arguments: dict[str, Any], kind: str) -> None:
    for code in (201, 200):
        answer = manager.ask("PUT", "/queues/q", {"arguments": arguments})
        assert (answer.code, answer.body["type"], answer.body["arguments"]) == (code, kind, arguments)


def test_a_transient_exclusive_queue_is_declared(manager: Manager) -> None:
    body = manager.ask("PUT", "/queues/q", {"durable": False, "exclusive": True, "auto_delete": True}).body
    assert (body["durable"], body["exclusive"], body["auto_delete"]) == (False, True, True)
    other = Manager(manager.server, container="d")
    assert other.code("GET", "/queues/q") == 400
    assert other.code("PUT", "/queues/q", {"durable": False, "exclusive": True, "auto_delete": True}) == 400
    assert other.code("DELETE", "/queues/q") == 400


def test_another_declaration_is_a_conflict(manager: Manager) -> None:
    manager.ask("PUT", "/queues/q", {})
    answer = manager.ask("PUT", "/queues/q", {"arguments": {"x-queue-type": "quorum"}})
    assert answer.code == 409
    assert "inequivalent arg 'x-queue-type' for queue 'q' in vhost '/'" in answer.body


@pytest.mark.parametrize(
    ("path", "arguments", "code"),
    [
        ("/queues/", {}, 400),
        ("/queues/a%0Ab", {}, 400),
        ("/queues/amq.mine", {}, 403),
        ("/queues/q", {"x-max-length": -1}, 400),
        ("/queues/q", {"x-queue-type": "square"}, 400),
    ],
)
def test_what_is_not_permitted_is_refused(manager: Manager, path: str, arguments: dict[str, Any], code: int) -> None:
    answer = manager.ask("PUT", path, {"arguments": arguments})
    assert (answer.code, type(answer.body)) == (code, str)


def test_names_are_percent_encoded(manager: Manager) -> None:
    assert manager.ask("PUT", "/queues/a%20%2F%25+%C3%BC", {}).body["name"] == "a /%+ü"
    assert manager.ask("GET", "/queues/a%20%2f%25%2B%C3%BC").code == 200


def test_a_queue_is_looked_up_with_its_counts(manager: Manager) -> None:
    manager.ask("PUT", "/queues/q", {})
    manager.client.sender("/queues/q", 0)
    for number in range(1000, 1003):
        manager.client.post(number, settled=True)
    manager.client.receiver("/queues/q", 1)
    body = manager.ask("GET", "/queues/q").body
    assert (body["message_count"], body["consumer_count"]) == (3, 1)


def test_a_missing_queue_is_not_found(manager: Manager) -> None:
    assert manager.ask("GET", "/queues/q") == (404, "no queue 'q' in vhost '/'")
    assert manager.ask("DELETE", "/queues/q/messages") == (404, "no queue 'q' in vhost '/'")


def test_deleting_and_purging_tell_the_number_of_messages(manager: Manager) -> None:
    manager.ask("PUT", "/queues/q", {})
    manager.client.sender("/queues/q", 0)
    manager.client.post(1000, settled=True)
    manager.client.post(1001, settled=True)
    assert manager.ask("DELETE", "/queues/q/messages") == (200, {"message_count": 2})
    manager.client.post(1002, settled=True)
    code, body = manager.ask("DELETE", "/queues/q")
    assert (code, body) == (200, {"message_count": 1})
    assert type(body["message_count"]) is ULong
    assert manager.ask("DELETE", "/queues/q") == (200, {"message_count": 0})


def test_a_stream_is_not_purged(manager: Manager) -> None:
    manager.ask("PUT", "/queues/s", {"arguments": {"x-queue-type": "stream"}})
    code, text = manager.ask("DELETE", "/queues/s/messages")
    assert code == 400
    assert "purge not supported" in text


def test_a_scarce_resource_refuses_new_queues(manager: Manager) -> None:
    manager.broker.engine.scarcity = "short of memory"
    assert manager.code("PUT", "/queues/q", {}) == 503
