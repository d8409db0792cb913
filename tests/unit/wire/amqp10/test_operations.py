"""Every performative that a server receives has its operations, and a user without rights is refused (SEC-1)."""

from __future__ import annotations

import pytest

from escrowmq.core.access.table import TABLE, Operation
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Transfer,
)
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.errors import UNAUTHORIZED
from escrowmq.wire.amqp10.operations import OPERATIONS, admitted
from tests.unit.wire.amqp10.clients import Client, Server, message, server

PERFORMATIVES = {Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close}

REFUSED: dict[Operation, Attach] = {
    Operation.PUBLISH: Attach("l", 0, SENDER, target=Target("q"), initial_delivery_count=0),
    Operation.CONSUME: Attach("l", 0, RECEIVER, source=Source("q")),
    Operation.DECLARE_QUEUE: Attach("l", 0, SENDER, target=Target(dynamic=True), initial_delivery_count=0),
    Operation.DECLARE_EXCHANGE: Attach("l", 0, SENDER, target=Target("topic://t"), initial_delivery_count=0),
    Operation.BIND_QUEUE: Attach("l", 0, RECEIVER, source=Source("amq.fanout")),
}
"""For each operation that has needs, an attach of a user without rights."""


def made() -> Server:
    """Return a server with the queue `q`, and the user `mallory`, who may only configure and read generated queues."""
    found = server(users=("guest", "mallory"))
    Client(found).sender("q")
    found.broker.access.set_permission("mallory", "/", "", "", "")
    return found


@pytest.mark.rule("SEC-1")
def test_every_performative_has_operations() -> None:
    assert OPERATIONS.keys() == PERFORMATIVES
    assert all(OPERATIONS.values())


@pytest.mark.rule("SEC-1")
def test_a_handler_without_an_entry_is_not_admitted() -> None:
    assert admitted({Flow: 1, str: 2}) == {Flow: 1}


@pytest.mark.rule("SEC-1")
def test_every_operation_with_needs_is_tried_here() -> None:
    asked = {operation for operations in OPERATIONS.values() for operation in operations}
    assert {operation for operation in asked if TABLE[operation]} == REFUSED.keys()


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("operation", REFUSED)
def test_a_user_without_rights_is_refused(operation: Operation) -> None:
    found = made()
    if operation is Operation.BIND_QUEUE:  # everything but the exchange is allowed
        found.broker.access.set_permission("mallory", "/", "^amq.gen", "^amq.gen", "^amq.gen")
    Client(found, "mallory", "m").refused(REFUSED[operation], UNAUTHORIZED)


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("settled", [False, True])
def test_each_message_of_an_anonymous_link_is_checked(settled: bool) -> None:
    client = Client(made(), "mallory", "m")
    client.sender(None, target=Target())
    properties = b"\x00\x53\x73\xc0\x06\x03\x40\x40\xa1\x01q"
    client.send(0, Transfer(0, 0, b"0", 0, settled), payload=properties + message(b"x"))
    if settled:
        client.detached(0, UNAUTHORIZED)
    else:
        state = client.outcome(0).state
        assert state.error.condition == UNAUTHORIZED  # type: ignore[union-attr]


@pytest.mark.rule("SEC-3")
def test_a_revoked_permission_detaches_links() -> None:
    found = made()
    found.broker.access.set_permission("mallory", "/", "", ".*", ".*")
    client = Client(found, "mallory", "m")
    client.sender("q", 0)
    client.receiver("q", 1, credit=1)
    found.broker.access.set_permission("mallory", "/", "", "", ".*")
    list(client.port.endpoint.permissions_changed())
    found.end_turn()
    client.collect()
    client.detached(0, UNAUTHORIZED)
    found.broker.access.set_permission("mallory", "/", "", "", "")
    list(client.port.endpoint.permissions_changed())
    found.end_turn()
    client.collect()
    client.detached(1, UNAUTHORIZED)


@pytest.mark.rule("FAIR-1")
def test_links_are_checked_one_by_one_after_a_change_of_permissions() -> None:
    found = made()
    found.broker.access.set_permission("mallory", "/", "", ".*", ".*")
    client = Client(found, "mallory", "m")
    for handle in range(4):
        client.sender("q", handle)
    found.broker.access.set_permission("mallory", "/", "", "", ".*")
    for handle, _ in enumerate(client.port.endpoint.permissions_changed()):
        found.end_turn()
        client.collect()
        client.detached(handle, UNAUTHORIZED)
        assert client.idle()


def test_the_check_of_links_ends_with_their_session() -> None:
    found = made()
    client = Client(found, "guest", "m")
    for handle in range(4):
        client.sender("q", handle)
    checks = client.port.endpoint.permissions_changed()
    next(checks)
    client.send(0, End())
    assert list(checks) == []
