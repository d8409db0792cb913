"""Every method of the specification has its operations, and its handler asks the door for them (SEC-1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.core.access.table import TABLE, Operation
from escrowmq.core.branches.xid import Xid
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.operations import OPERATIONS, admitted
from tests.harness.client import SimClient
from tests.unit.wire.amqp091.clients import Server, fails_channel, server

XID = Xid(1, b"g", b"b").encode()
RECEIVED = [method for method in spec.METHODS.values() if method.TO_SERVER]

OF_OTHER_PROTOCOLS = {
    Operation.LIST_BINDINGS,
    Operation.DECLARE_TOPIC,
    Operation.DELETE_TOPIC,
    Operation.DECLARE_GROUP,
    Operation.DELETE_GROUP,
    Operation.DESCRIBE_GROUP,
    Operation.CONSUME_GROUP,
    Operation.SETTLE_GROUP,
    Operation.RESET_GROUP,
    Operation.STORE_HALF,
    Operation.DECIDE_HALF,
    Operation.JOIN_PRODUCERS,
}

REFUSED: dict[Operation, Method] = {
    Operation.PUBLISH: spec.BasicPublish("x", "k"),
    Operation.CONSUME: spec.BasicConsume("q", "tag"),
    Operation.GET: spec.BasicGet("q"),
    Operation.DECLARE_EXCHANGE: spec.ExchangeDeclare("new", "direct"),
    Operation.SET_ALTERNATE: spec.ExchangeDeclare("free", "direct", arguments={"alternate-exchange": "x"}),
    Operation.DELETE_EXCHANGE: spec.ExchangeDelete("x"),
    Operation.BIND_EXCHANGE: spec.ExchangeBind("x", "x", "k"),
    Operation.UNBIND_EXCHANGE: spec.ExchangeUnbind("x", "x", "k"),
    Operation.DECLARE_QUEUE: spec.QueueDeclare("new"),
    Operation.SET_DEAD_LETTER: spec.QueueDeclare("free", arguments={"x-dead-letter-exchange": "x"}),
    Operation.DELETE_QUEUE: spec.QueueDelete("q"),
    Operation.BIND_QUEUE: spec.QueueBind("q", "x", "k"),
    Operation.UNBIND_QUEUE: spec.QueueUnbind("q", "x", "k"),
    Operation.PURGE_QUEUE: spec.QueuePurge("q"),
    Operation.JOIN_BRANCH: spec.DtxDemarcationStart(XID, True),
    Operation.PREPARE_BRANCH: spec.DtxCoordinationPrepare(XID),
    Operation.COMMIT_BRANCH: spec.DtxCoordinationCommit(XID),
    Operation.ROLL_BACK_BRANCH: spec.DtxCoordinationRollback(XID),
    Operation.FORGET_BRANCH: spec.DtxCoordinationForget(XID),
    Operation.GET_TIMEOUT: spec.DtxCoordinationGetTimeout(XID),
    Operation.SET_TIMEOUT: spec.DtxCoordinationSetTimeout(XID, 1),
    Operation.DECIDE_BRANCH: spec.EscrowDecide(1, b"g", {"bqual": [b"b"]}, "", 1),
    Operation.SET_PROGRESS: spec.EscrowDecide(1, b"other", {"bqual": []}, "app", 2),
    Operation.GET_PROGRESS: spec.EscrowProgress("app"),
    Operation.RESERVE: spec.EscrowHold("q", "etl", 1),
    Operation.READ_RESERVED: spec.EscrowRead("q", "etl", 1),
    Operation.SETTLE_RESERVED: spec.EscrowSettle("q", "etl", 2),
    Operation.RELEASE_RESERVED: spec.EscrowRelease("q", "etl"),
    Operation.DESCRIBE_QUEUE: spec.EscrowDescribe("q"),
    Operation.DESCRIBE_TOPIC: spec.EscrowPartitions("x"),
}
"""For each operation that has needs, a method of a user that may only configure `free`; `answered` has the others."""


def answered(client: SimClient) -> dict[Operation, Callable[[], bool]]:
    """The operations that leave objects out instead of refusing them, and whether they do."""
    recover, listed = spec.DtxCoordinationRecover(True, True), spec.EscrowList("")
    return {
        Operation.LIST_BRANCH: lambda: client.call(2, recover, spec.DtxCoordinationRecoverOk).xids == {"xids": []},
        Operation.LIST_QUEUE: lambda: client.call(2, listed, spec.EscrowListOk).queues == {"name": []},
    }


def populated() -> Server:
    """A server with a queue, an exchange, a branch, a reservation and progress of the user `victim`."""
    made = server(users=("victim", "mallory"))
    made.broker.access.set_permission("mallory", "/", "^free$", "", "")
    victim = SimClient(made, user="victim")
    victim.open_channel(1)
    victim.declare(1, "q")
    victim.call(1, spec.ExchangeDeclare("x", "fanout"), spec.ExchangeDeclareOk)
    victim.publish(1, "q", b"1", b"2")
    victim.call(1, spec.EscrowHold("q", "etl", 1), spec.EscrowHoldOk)
    victim.call(1, spec.EscrowDecide(1, b"other", {"bqual": []}, "app", 1), spec.EscrowDecideOk)
    victim.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
    victim.call(1, spec.DtxDemarcationStart(XID), spec.DtxDemarcationStartOk)
    victim.publish(1, "q", b"3")
    return made


def hostile(made: Server) -> SimClient:
    client = SimClient(made, user="mallory")
    client.open_channel(1)
    client.open_channel(2)
    return client


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("method", [pytest.param(each, id=each.NAME) for each in RECEIVED])
def test_every_method_that_a_server_receives_has_operations(method: type[Method]) -> None:
    assert OPERATIONS.get(method.INDEX), f"{method.NAME} has no entry in OPERATIONS"


@pytest.mark.rule("SEC-1")
def test_only_such_methods_have_operations() -> None:
    assert OPERATIONS.keys() == {method.INDEX for method in RECEIVED}


@pytest.mark.rule("SEC-1")
def test_a_handler_without_an_entry_is_not_admitted() -> None:
    assert admitted({1: print, spec.QueueDelete.INDEX: print}) == {spec.QueueDelete.INDEX: print}


@pytest.mark.rule("SEC-1")
def test_every_operation_with_needs_is_tried_here() -> None:
    asked = {operation for operations in OPERATIONS.values() for operation in operations}
    assert asked == set(Operation) - OF_OTHER_PROTOCOLS
    assert {each for each in asked if TABLE[each]} == REFUSED.keys() | answered(hostile(populated())).keys()
    for operation, method in REFUSED.items():
        assert operation in OPERATIONS[method.INDEX]


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("operation", REFUSED)
def test_a_user_without_rights_is_refused(operation: Operation) -> None:
    client, method = hostile(populated()), REFUSED[operation]
    client.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
    if operation is Operation.PUBLISH:
        client.publish(1, "k", b"body", exchange="x")
    else:
        client.send(1, method)
    fails_channel(client, 1, 403, "refused for user 'mallory'")


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("operation", [Operation.LIST_BRANCH, Operation.LIST_QUEUE])
def test_a_list_leaves_out_objects_that_the_user_may_not_see(operation: Operation) -> None:
    assert answered(hostile(populated()))[operation]()
