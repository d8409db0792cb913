"""Bindings through the management node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.wire.amqp10.management.manager import Manager, request_of


@pytest.fixture
def manager() -> Manager:
    made = Manager()
    made.ask("PUT", "/queues/q%2F1", {})
    made.ask("PUT", "/exchanges/e%2F1", {"type": "topic"})
    made.ask("PUT", "/exchanges/d", {"type": "fanout"})
    return made


def binding(key: str = "k", **others: Any) -> dict[str, Any]:
    return {"source": "e/1", "destination_queue": "q/1", "binding_key": key, "arguments": {}} | others


def listed(manager: Manager, query: str = "src=e%2F1&dstq=q%2F1") -> list[dict[str, Any]]:
    answer = manager.ask("GET", f"/bindings?{query}")
    assert answer.code == 200
    found: list[dict[str, Any]] = answer.body
    return found


def test_a_queue_is_bound_and_unbound(manager: Manager) -> None:
    for _ in range(2):
        assert manager.ask("POST", "/bindings", binding("k #;=")) == (204, None)
    (found,) = listed(manager)
    location = found.pop("location")
    assert location == "/bindings/src=e%2F1;dstq=q%2F1;key=k%20%23%3B%3D;args="
    assert found == binding("k #;=")
    for _ in range(2):
        assert manager.ask("DELETE", location) == (204, None)
    assert listed(manager) == []


def test_an_exchange_is_bound_and_unbound(manager: Manager) -> None:
    body = {"source": "e/1", "destination_exchange": "d", "binding_key": "", "arguments": {}}
    assert manager.ask("POST", "/bindings", body) == (204, None)
    (found,) = listed(manager, "src=e/1&dste=d&key=")
    assert found.pop("location") == "/bindings/src=e%2F1;dste=d;key=;args="
    assert found == body
    assert manager.ask("DELETE", "/bindings/src=e%2F1;dste=d;key=;args=") == (204, None)
    assert listed(manager, "src=e%2F1&dste=d") == []


def test_the_key_is_empty_by_default(manager: Manager) -> None:
    manager.ask("POST", "/bindings", {"source": "e/1", "destination_queue": "q/1"})
    assert [found["binding_key"] for found in listed(manager)] == [""]


def test_bindings_are_listed_by_their_key(manager: Manager) -> None:
    for key in ("a", "b c", "a"):
        manager.ask("POST", "/bindings", binding(key))
    assert {found["binding_key"] for found in listed(manager)} == {"a", "b c"}
    for query in ("src=e%2F1&dstq=q%2F1&key=b%20c", "src=e%2F1&dstq=q%2F1&key=b+c"):
        assert [found["binding_key"] for found in listed(manager, query)] == ["b c"]
    assert listed(manager, "src=d&dstq=q%2F1") == []
    assert listed(manager, "src=none&dstq=none") == []


def test_bindings_that_differ_in_arguments_have_locations_of_their_own(manager: Manager) -> None:
    for number in (1, 2):
        manager.ask("POST", "/bindings", binding(arguments={"x-match": "all", "number": number}))
    manager.ask("POST", "/bindings", binding())
    found = {each["arguments"].get("number"): each["location"] for each in listed(manager)}
    assert len(set(found.values())) == 3
    assert manager.code("DELETE", found[2]) == 204
    assert {each["arguments"].get("number") for each in listed(manager)} == {None, 1}
    assert manager.code("DELETE", found[None]) == 204
    assert {each["arguments"].get("number") for each in listed(manager)} == {1}


@pytest.mark.rule("FAIR-1")
def test_many_bindings_are_listed_in_several_turns(manager: Manager) -> None:
    directory, vhost = manager.broker.directory, manager.broker.directory.vhost("/")
    for i in range(3000):
        directory.bind_queue(vhost, "e/1", "q/1", str(i))
    manager.broker.engine.requests.turn = 500
    manager.broker.engine.requests.renew()
    manager.server.receive(manager.client.port, b"")
    assert len(listed_in_turns(manager)) == 3000


def listed_in_turns(manager: Manager) -> list[dict[str, Any]]:
    manager.send(request_of("GET", "/bindings?src=e%2F1&dstq=q%2F1"))
    turns = 0
    while manager.client.idle():
        manager.server.end_turn()
        manager.client.collect()
        turns += 1
        assert turns < 100
    found: list[dict[str, Any]] = manager.receive()[1].body
    return found


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (binding(source=""), 403),
        (binding(source="none"), 404),
        (binding(destination_queue="none"), 404),
        (binding(destination_exchange="d"), 400),
        (binding(colour="red"), 400),
        (binding("k" * 256), 400),
        ({"source": "e/1", "binding_key": "k"}, 400),
        ({"destination_queue": "q/1"}, 400),
        ({"source": "e/1", "destination_exchange": "none"}, 404),
    ],
)
def test_a_bad_binding_is_refused(manager: Manager, body: dict[str, Any], code: int) -> None:
    answer = manager.ask("POST", "/bindings", body)
    assert (answer.code, type(answer.body)) == (code, str)


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/bindings", 400),
        ("GET", "/bindings?src=e", 400),
        ("GET", "/bindings?src=e&dstq=q&dste=d", 400),
        ("DELETE", "/bindings/nonsense", 400),
        ("DELETE", "/bindings/src=e;key=k;args=", 400),
        ("DELETE", "/bindings/src=%FF;dstq=q;key=k;args=", 400),
        ("DELETE", "/bindings/src=;dstq=q;key=k;args=", 403),
        ("DELETE", "/bindings/src=none;dstq=none;key=k;args=", 204),
        ("DELETE", "/bindings/src=none;dste=none;key=k;args=", 204),
    ],
)
def test_a_bad_location_is_refused(manager: Manager, method: str, path: str, code: int) -> None:
    assert manager.code(method, path) == code


def test_the_exclusive_queue_of_another_connection_is_neither_bound_nor_unbound(manager: Manager) -> None:
    manager.ask("PUT", "/queues/mine", {"durable": False, "exclusive": True})
    manager.ask("POST", "/bindings", binding(destination_queue="mine"))
    other = Manager(manager.server, container="d")
    assert other.code("POST", "/bindings", binding(destination_queue="mine")) == 400
    assert other.code("DELETE", "/bindings/src=e%2F1;dstq=mine;key=k;args=") == 400
    assert len(listed(manager, "src=e%2F1&dstq=mine")) == 1
