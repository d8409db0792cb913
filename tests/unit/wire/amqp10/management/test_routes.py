"""Every request to the management node has its operations, and a user without rights is refused (SEC-1)."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.access.table import TABLE, Operation
from escrowmq.wire.amqp10.management.routes import ROUTES
from tests.unit.wire.amqp10.clients import server
from tests.unit.wire.amqp10.management.manager import Manager

BINDING = {"source": "e", "binding_key": "k", "arguments": {}}
LOCATION = "/bindings/src=e;dstq=q;key=k;args="

ASKED: dict[Operation, tuple[str, str, Any]] = {
    Operation.DECLARE_QUEUE: ("PUT", "/queues/new", {}),
    Operation.SET_DEAD_LETTER: ("PUT", "/queues/new", {"arguments": {"x-dead-letter-exchange": "e"}}),
    Operation.DELETE_QUEUE: ("DELETE", "/queues/q", None),
    Operation.PURGE_QUEUE: ("DELETE", "/queues/q/messages", None),
    Operation.DECLARE_EXCHANGE: ("PUT", "/exchanges/new", {}),
    Operation.SET_ALTERNATE: ("PUT", "/exchanges/new", {"arguments": {"alternate-exchange": "e"}}),
    Operation.DELETE_EXCHANGE: ("DELETE", "/exchanges/e", None),
    Operation.BIND_QUEUE: ("POST", "/bindings", BINDING | {"destination_queue": "q"}),
    Operation.BIND_EXCHANGE: ("POST", "/bindings", BINDING | {"destination_exchange": "e"}),
    Operation.LIST_BINDINGS: ("GET", "/bindings?src=e&dstq=q", None),
    Operation.UNBIND_QUEUE: ("DELETE", LOCATION, None),
    Operation.UNBIND_EXCHANGE: ("DELETE", LOCATION.replace("dstq=q", "dste=e"), None),
}
"""For each operation that has needs, a request."""

ALLOWED = {Operation.SET_DEAD_LETTER: ("new", "", ""), Operation.SET_ALTERNATE: ("new", "", "")}
"""The permissions without which another operation would be refused first: configure, write, read."""


@pytest.fixture
def mallory() -> Manager:
    """Return a user without rights."""
    made = server(users=("guest", "mallory"))
    guest = Manager(made)
    guest.ask("PUT", "/queues/q", {})
    guest.ask("PUT", "/exchanges/e", {})
    made.broker.access.set_permission("mallory", "/", "", "", "")
    return Manager(made, "mallory", container="m")


@pytest.mark.rule("SEC-1")
def test_every_route_has_operations_and_all_with_needs_are_tried_here() -> None:
    assert all(route.operations for route in ROUTES)
    asked = {operation for route in ROUTES for operation in route.operations}
    assert {operation for operation in asked if TABLE[operation]} == ASKED.keys()


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("operation", ASKED)
def test_a_user_without_rights_is_refused(mallory: Manager, operation: Operation) -> None:
    mallory.broker.access.set_permission("mallory", "/", *ALLOWED.get(operation, ("", "", "")))
    code, text = mallory.ask(*ASKED[operation])
    assert code == 403
    assert "refused for user 'mallory'" in text


@pytest.mark.parametrize("operation", ASKED)
def test_a_user_with_rights_is_not(mallory: Manager, operation: Operation) -> None:
    mallory.broker.access.set_permission("mallory", "/", ".*", ".*", ".*")
    assert mallory.code(*ASKED[operation]) in {200, 201, 204}


def test_a_refusal_does_not_tell_which_queues_exist(mallory: Manager) -> None:
    for name in ("q", "none"):
        assert mallory.code("DELETE", f"/queues/{name}/messages") == 403


def test_routes_are_named_by_method_and_path() -> None:
    assert "DELETE /queues/*/messages" in map(str, ROUTES)


def test_the_methods_of_a_resource_are_told() -> None:
    code, text = Manager().ask("POST", "/queues/q")
    assert code == 405
    assert "allowed: PUT, GET, DELETE" in text
