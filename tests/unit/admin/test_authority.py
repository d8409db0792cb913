"""What operators may do in virtual hosts."""

from __future__ import annotations

import pytest

from escrowmq.admin.action import OperatorAction, acting
from escrowmq.admin.authority import Authority, checked_name
from escrowmq.core.access.grant import Grant
from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError, Condition
from tests.unit.wire.amqp091.clients import server


@pytest.mark.rule("SEC-1")
def test_a_user_needs_permissions_and_the_command_line_none() -> None:
    broker = server().broker
    broker.access.add_user("u", "hash", ("administrator",))
    authority = Authority(broker)
    place = authority.vhost("/", "")
    authority.check(place, "", Operation.PURGE_QUEUE, queue="q")
    with pytest.raises(BrokerError) as refusal:
        authority.vhost("/", "u")
    assert refusal.value.condition is Condition.NOT_ALLOWED
    broker.access.set_permission("u", "/", "mine", "mine", "mine")
    assert authority.vhost("/", "u") is place
    authority.check(place, "u", Operation.PURGE_QUEUE, queue="mine")
    with pytest.raises(BrokerError) as refusal:
        authority.check(place, "u", Operation.PURGE_QUEUE, queue="q")
    assert refusal.value.condition is Condition.ACCESS_REFUSED


@pytest.mark.parametrize("by", ["", "guest"])
def test_a_virtual_host_that_does_not_exist_is_not_found(by: str) -> None:
    with pytest.raises(BrokerError) as refusal:
        Authority(server().broker).vhost("none", by)
    assert refusal.value.condition is Condition.NOT_FOUND


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128, "\ud800"])
def test_a_name_that_clients_cannot_use_is_refused(name: str) -> None:
    with pytest.raises(BrokerError) as refusal:
        checked_name(name, "name of a queue")
    assert refusal.value.condition is Condition.INVALID_ARGUMENT
    assert checked_name("é" * 127, "name of a queue") == "é" * 127


@pytest.mark.rule("SEC-1")
def test_the_rights_of_a_token_replace_those_of_a_listed_user_of_the_same_name() -> None:
    broker = server().broker
    authority = Authority(broker)
    with acting(OperatorAction("queue.purge", {}, "guest", "", Grant("guest", ["read:%2F/mine"]))):
        place = authority.vhost("/", "guest")
        authority.check(place, "guest", Operation.PURGE_QUEUE, queue="mine")
        with pytest.raises(BrokerError) as refusal:
            authority.check(place, "guest", Operation.PURGE_QUEUE, queue="q")
    assert refusal.value.condition is Condition.ACCESS_REFUSED
    with acting(OperatorAction("queue.purge", {}, "guest", "", Grant("guest", []))), pytest.raises(BrokerError):
        authority.vhost("/", "guest")
    authority.check(place, "guest", Operation.PURGE_QUEUE, queue="q")
