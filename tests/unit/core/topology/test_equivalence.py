"""Declaring again, compared with RabbitMQ's answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.topology.equivalence import check_exchange_equivalent, check_queue_equivalent, locked_text
from tests.unit.core.recorded import reason, recorded


@dataclass
class Declared:
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass
class DeclaredExchange:
    name: str = "x"
    kind: str = "direct"
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)


def declared(flags: tuple[bool, bool, bool], arguments: dict[str, Any]) -> Declared:
    durable, exclusive, auto_delete = flags
    return Declared(durable, exclusive, auto_delete, arguments)


class Long(int):
    """A wide integer of a protocol."""


@pytest.mark.parametrize("row", recorded("declare_queue_again")["rows"], ids=str)
def test_queues_are_compared_as_by_rabbitmq(row: list[Any]) -> None:
    old, new, old_flags, new_flags, reply = row
    existing, requested = declared(old_flags, old), declared(new_flags, new)
    if reply is None:
        check_queue_equivalent("/", "q", existing, requested)
        return
    with pytest.raises(BrokerError) as refused:
        check_queue_equivalent("/", "q", existing, requested)
    assert refused.value.text == reason(reply)
    locked = reply.startswith("RESOURCE_LOCKED")
    assert refused.value.condition is (Condition.RESOURCE_LOCKED if locked else Condition.PRECONDITION_FAILED)


@pytest.mark.rule("EXC-3")
def test_durable_is_ignored_for_exclusive_queues() -> None:
    check_queue_equivalent("/", "q", Declared(False, True), Declared(True, True))


def test_the_width_of_a_number_is_ignored() -> None:
    check_queue_equivalent("/", "q", Declared(arguments={"x-expires": 5}), Declared(arguments={"x-expires": Long(5)}))


def test_a_number_differs_from_its_text() -> None:
    with pytest.raises(BrokerError, match="received '5' but current is '5'"):
        check_queue_equivalent("/", "q", Declared(arguments={"x-expires": 5}), Declared(arguments={"x-expires": "5"}))


@pytest.mark.rule("EXC-2")
def test_the_error_text_for_other_connections() -> None:
    assert locked_text("/", "q").startswith("cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could")


ALTERNATE = {"arguments": {"alternate-exchange": "y"}}


@pytest.mark.parametrize(
    ("old", "new", "argument", "difference"),
    [
        ({"durable": True}, {}, "durable", "received 'false' but current is 'true'"),
        ({}, {"kind": "fanout", "durable": True}, "type", "received 'fanout' but current is 'direct'"),
        ({}, {"internal": True, "auto_delete": True}, "auto_delete", "received 'true' but current is 'false'"),
        ({}, {"internal": True}, "internal", "received 'true' but current is 'false'"),
        ({}, ALTERNATE, "alternate-exchange", "received the value 'y' of type 'longstr' but current is none"),
        (ALTERNATE, {}, "alternate-exchange", "received none but current is the value 'y' of type 'longstr'"),
        (
            ALTERNATE,
            {"arguments": {"alternate-exchange": "z"}},
            "alternate-exchange",
            "received 'z' but current is 'y'",
        ),
        (
            {},
            {"arguments": {"alternate-exchange": 1}},
            "alternate-exchange",
            "received the value '1' of type 'signedint' but current is none",
        ),
    ],
)
def test_exchanges_are_compared_as_by_rabbitmq(
    old: dict[str, Any], new: dict[str, Any], argument: str, difference: str
) -> None:
    with pytest.raises(BrokerError) as refused:
        check_exchange_equivalent("/", DeclaredExchange(**old), DeclaredExchange(**new))
    assert refused.value.condition is Condition.PRECONDITION_FAILED
    assert refused.value.text == f"inequivalent arg '{argument}' for exchange 'x' in vhost '/': {difference}"


def test_other_arguments_of_exchanges_are_ignored() -> None:
    check_exchange_equivalent("/", DeclaredExchange(arguments={"a": 1}), DeclaredExchange(arguments={"a": 2}))
