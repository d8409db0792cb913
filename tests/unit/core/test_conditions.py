"""Errors: a condition for the protocol, and a text for the reader."""

from __future__ import annotations

from escrowmq.core.conditions import BrokerError, Condition


def test_names_are_short_stable_and_distinct() -> None:
    values = [condition.value for condition in Condition]
    assert len(set(values)) == len(values)
    assert all(value == value.lower() and " " not in value for value in values)


def test_an_error_has_condition_and_text() -> None:
    error = BrokerError(Condition.NOT_FOUND, "no queue 'q' in vhost '/'")
    assert (error.condition, error.text) == (Condition.NOT_FOUND, "no queue 'q' in vhost '/'")
    assert str(error) == "not-found: no queue 'q' in vhost '/'"
