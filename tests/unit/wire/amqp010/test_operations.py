"""Every command of the specification has its operations, and its handler asks the door for them (SEC-1)."""

from __future__ import annotations

from typing import Final

import pytest

from escrowmq.core.access.table import TABLE, Operation
from escrowmq.wire.amqp010.codec import spec
from escrowmq.wire.amqp010.codec.structs import Command
from escrowmq.wire.amqp010.handlers import HANDLERS
from escrowmq.wire.amqp010.operations import OPERATIONS, admitted
from tests.unit.wire.amqp010.branches import X
from tests.unit.wire.amqp010.clients import Client

REFUSED: Final[dict[Operation, Command]] = {
    Operation.DECLARE_EXCHANGE: spec.ExchangeDeclare("new", "direct"),
    Operation.SET_ALTERNATE: spec.ExchangeDeclare("free", "direct", "x"),
    Operation.DELETE_EXCHANGE: spec.ExchangeDelete("x"),
    Operation.LIST_BINDINGS: spec.ExchangeBound("x", "q"),
    Operation.DECLARE_QUEUE: spec.QueueDeclare("new"),
    Operation.SET_DEAD_LETTER: spec.QueueDeclare("free", "x"),
    Operation.DELETE_QUEUE: spec.QueueDelete("q"),
    Operation.BIND_QUEUE: spec.ExchangeBind("q", "x", "k"),
    Operation.UNBIND_QUEUE: spec.ExchangeUnbind("q", "x", "k"),
    Operation.PURGE_QUEUE: spec.QueuePurge("q"),
    Operation.JOIN_BRANCH: spec.DtxStart(X, join=True),
    Operation.PREPARE_BRANCH: spec.DtxPrepare(X),
    Operation.COMMIT_BRANCH: spec.DtxCommit(X),
    Operation.ROLL_BACK_BRANCH: spec.DtxRollback(X),
    Operation.FORGET_BRANCH: spec.DtxForget(X),
    Operation.GET_TIMEOUT: spec.DtxGetTimeout(X),
    Operation.SET_TIMEOUT: spec.DtxSetTimeout(X, 1),
}
"""For each operation that has needs, a command of a user that may only configure `free`."""
ELSEWHERE: Final = {
    Operation.LIST_BRANCH,  # below: dtx.recover leaves branches out instead of refusing them
    Operation.PUBLISH,  # test_publishing.py
    Operation.CONSUME,  # test_subscriptions.py
}


def hostile() -> Client:
    """A client of a user without rights, with a queue, an exchange and a branch of another user."""
    made = Client().server
    for user in ("victim", "mallory"):
        made.broker.access.add_user(user, "")
    made.broker.access.set_permission("victim", "/", ".*", ".*", ".*")
    made.broker.access.set_permission("mallory", "/", "^free$", "", "")
    victim = Client(made, "victim")
    victim.do(spec.QueueDeclare("q", durable=True))
    victim.do(spec.ExchangeDeclare("x", "fanout"))
    victim.do(spec.DtxSelect())
    victim.do(spec.DtxStart(X))
    mallory = Client(made, "mallory")
    mallory.do(spec.DtxSelect())
    return mallory


@pytest.mark.rule("SEC-1")
def test_every_command_that_a_server_receives_has_operations() -> None:
    assert OPERATIONS.keys() == set(spec.COMMANDS.values())


@pytest.mark.rule("SEC-1")
def test_a_handler_without_an_entry_is_not_admitted() -> None:
    assert admitted({spec.QueueDelete: print, Command: print}) == {spec.QueueDelete: print}
    assert HANDLERS.keys() <= OPERATIONS.keys()


@pytest.mark.rule("SEC-1")
def test_every_operation_with_needs_is_tried() -> None:
    asked = {operation for operations in OPERATIONS.values() for operation in operations}
    assert {each for each in asked if TABLE[each]} == REFUSED.keys() | ELSEWHERE
    for operation, command in REFUSED.items():
        assert operation in OPERATIONS[type(command)]


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("operation", REFUSED)
def test_a_user_without_rights_is_refused(operation: Operation) -> None:
    raised = hostile().refused(REFUSED[operation], 403)
    assert "refused for user 'mallory'" in (raised.description or "")


@pytest.mark.rule("SEC-1", "DTX-10")
def test_branches_that_the_user_may_not_see_are_left_out() -> None:
    mallory = hostile()
    made = mallory.server
    victim = Client(made, attaches=False)  # `guest` is an administrator
    victim.attach(1, b"other")
    branch = next(iter(made.broker.branches.by_xid.values()))
    made.broker.demarcations.leave(next(iter(branch.associations)))
    assert victim.do(spec.DtxRecover()).in_doubt == mallory.do(spec.DtxRecover()).in_doubt == []
