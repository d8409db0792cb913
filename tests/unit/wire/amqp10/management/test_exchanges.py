"""Exchanges through the management node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.wire.amqp10.management.manager import Manager


@pytest.fixture
def manager() -> Manager:
    return Manager()


def test_an_exchange_is_declared_looked_up_and_deleted(manager: Manager) -> None:
    body = {"type": "topic", "durable": False, "auto_delete": True, "internal": True, "arguments": {"a": 1}}
    for _ in range(2):
        assert manager.ask("PUT", "/exchanges/e%2F1", body) == (204, None)
    assert manager.ask("GET", "/exchanges/e%2F1") == (200, body | {"name": "e/1", "vhost": "/"})
    for _ in range(2):
        assert manager.ask("DELETE", "/exchanges/e%2F1") == (204, None)
    assert manager.ask("GET", "/exchanges/e%2F1") == (404, "no exchange 'e/1' in vhost '/'")


def test_the_defaults_are_those_of_rabbitmq(manager: Manager) -> None:
    manager.ask("PUT", "/exchanges/e", {})
    body = manager.ask("GET", "/exchanges/e").body
    assert (body["type"], body["durable"], body["auto_delete"], body["internal"]) == ("direct", True, False, False)


def test_another_declaration_is_a_conflict(manager: Manager) -> None:
    manager.ask("PUT", "/exchanges/e", {})
    code, text = manager.ask("PUT", "/exchanges/e", {"type": "fanout"})
    assert code == 409
    assert "inequivalent arg 'type' for exchange 'e' in vhost '/'" in text


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/exchanges/", {}, 403),
        ("/exchanges/amq.mine", {}, 403),
        ("/exchanges/a%0Db", {}, 400),
        ("/exchanges/e", {"type": "square"}, 400),
        ("/exchanges/e", {"type": 1}, 400),
        ("/exchanges/e", {"colour": "red"}, 400),
        ("/exchanges/e", {"arguments": {"alternate-exchange": 5}}, 400),
    ],
)
def test_what_is_not_permitted_is_refused(manager: Manager, path: str, body: dict[str, Any], code: int) -> None:
    answer = manager.ask("PUT", path, body)
    assert (answer.code, type(answer.body)) == (code, str)


@pytest.mark.parametrize("path", ["/exchanges/", "/exchanges/amq.direct"])
def test_exchanges_of_the_broker_are_not_deleted(manager: Manager, path: str) -> None:
    assert manager.code("DELETE", path) == 403
