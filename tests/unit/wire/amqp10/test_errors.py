"""The table of error conditions, and the scope of faults."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp10.errors import (
    CONDITIONS,
    AmqpFault,
    Scope,
    connection_fault,
    error_of,
    link_fault,
    refusal,
    session_fault,
)


@pytest.mark.parametrize("condition", Condition)
def test_every_refusal_of_the_core_has_a_condition(condition: Condition) -> None:
    fault = refusal(BrokerError(condition, "why"))
    assert fault.condition == CONDITIONS[condition]
    assert fault.condition.startswith("amqp:")
    assert (fault.scope, fault.text) == (Scope.LINK, "why")


def test_a_fault_costs_its_scope() -> None:
    made = [link_fault("c", "t"), session_fault("c", "t"), connection_fault("c", "t")]
    assert [fault.scope for fault in made] == [Scope.LINK, Scope.SESSION, Scope.CONNECTION]
    assert str(made[0]) == "c: t"


def test_a_fault_is_sent_with_its_information() -> None:
    error = AmqpFault(Scope.CONNECTION, "amqp:invalid-field", "x", {"invalid-field": "container-id"}).error()
    assert (error.condition, error.description, error.info) == (
        "amqp:invalid-field",
        "x",
        {"invalid-field": "container-id"},
    )


def test_the_text_of_an_error_is_short() -> None:
    assert error_of("c", "é" * 1000 + "\udc80").description == "é" * 500
