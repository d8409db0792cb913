"""Topics and groups as clients of RocketMQ see them."""

from __future__ import annotations

import pytest

from escrowmq.core.access.door import Door
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.topology.exchanges.partitioned import MESSAGE_TYPES
from escrowmq.wire.rocketmq.topics import KINDS, Catalogue, takes, type_fault
from tests.harness.server import SimServer
from tests.unit.wire.rocketmq.remoting.clients import server


def catalogue(machine: SimServer | None = None, *permissions: str) -> Catalogue:
    broker = (machine or server()).broker
    if permissions:
        broker.access.add_user("bob", "hash")
        broker.access.set_permission("bob", "/", *permissions)
    vhost = broker.directory.vhost("/")
    return Catalogue(broker, vhost, Door(broker.access, "bob" if permissions else "guest", vhost))


def condition(error: pytest.ExceptionInfo[BrokerError]) -> Condition:
    return error.value.condition


def test_a_topic_is_created_and_found() -> None:
    found = catalogue()
    topic = found.create("t", 3)
    assert found.topic("t").exchange is topic.exchange
    assert [each.name for each in found.all()] == ["t"]
    assert found.stream("t", 2) is topic.streams[2]
    ident = topic.streams[1].ident
    assert found.numbered(ident) == (topic, 1, topic.streams[1])
    found.delete("t")
    assert found.find("t") is None
    assert found.numbered(ident) is None


def test_what_does_not_exist_is_refused() -> None:
    found = catalogue()
    with pytest.raises(BrokerError) as error:
        found.topic("t")
    assert condition(error) is Condition.NOT_FOUND
    found.create("t", 1)
    with pytest.raises(BrokerError) as error:
        found.stream("t", 1)
    assert condition(error) is Condition.INVALID_ARGUMENT
    with pytest.raises(BrokerError) as error:
        found.create("a b", 1)
    assert condition(error) is Condition.INVALID_ARGUMENT
    with pytest.raises(BrokerError) as error:
        found.ensure_group("a b")
    assert condition(error) is Condition.INVALID_ARGUMENT


def test_a_group_has_a_retry_topic_and_a_dead_letter_topic() -> None:
    found = catalogue()
    assert found.group("g") is None
    group = found.ensure_group("g")
    assert found.ensure_group("g") is group
    assert found.groups() == [group]
    assert {each.name for each in found.all()} == {"%RETRY%g", "%DLQ%g"}


@pytest.mark.rule("SEC-1")
def test_topics_and_groups_need_permissions() -> None:
    found = catalogue(None, "", ".*", "^(t|g)$")
    for attempt in (lambda: found.create("t", 1), lambda: found.delete("t"), lambda: found.ensure_group("g")):
        with pytest.raises(BrokerError) as error:
            attempt()
        assert condition(error) is Condition.ACCESS_REFUSED
    found.check_consume("g", "t")
    found.check_consume("g", "%RETRY%g")
    for group, topic in (("g", "u"), ("h", "t"), ("h", "%RETRY%h"), ("g", "%RETRY%h")):
        with pytest.raises(BrokerError) as error:
            found.check_consume(group, topic)
        assert condition(error) is Condition.ACCESS_REFUSED


@pytest.mark.rule("HALF-7")
@pytest.mark.parametrize(
    ("message_type", "kinds"),
    [
        ("normal", {"normal"}),
        ("fifo", {"fifo"}),
        ("delay", {"delay"}),
        ("transaction", {"transaction"}),
        ("mixed", {"normal", "fifo", "delay", "transaction"}),
        ("unspecified", {"normal", "fifo", "delay"}),
    ],
)
def test_a_topic_takes_the_messages_of_its_type(message_type: str, kinds: set[str]) -> None:
    assert {kind for kind in KINDS if not type_fault(message_type, kind)} == kinds


def test_every_type_of_topic_takes_some_messages() -> None:
    assert all(any(takes(message_type, kind) for kind in KINDS) for message_type in MESSAGE_TYPES)
