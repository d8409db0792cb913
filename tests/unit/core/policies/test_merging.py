"""How definitions combine: with those of operator policies, and with the arguments of queues."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.policies.merging import combined, resolved, with_definition
from escrowmq.core.topology.arguments.queue import QueueOptions, queue_options


def test_the_lower_value_counts_where_both_kinds_of_policy_have_one() -> None:
    assert combined({"max-length": 5, "overflow": "drop-head"}, {"max-length": 3, "expires": 9}) == {
        "max-length": 3,
        "overflow": "drop-head",
        "expires": 9,
    }
    assert combined({"max-length": 3}, {"max-length": 5}) == {"max-length": 3}


@pytest.mark.parametrize(
    ("arguments", "definition", "expected"),
    [
        ({}, {"max-length": 3}, {"x-max-length": 3}),
        ({"x-max-length": 2}, {"max-length": 3}, {"x-max-length": 2}),
        ({"x-max-length": 4}, {"max-length": 3}, {"x-max-length": 3}),
        ({"x-message-ttl": 4}, {"message-ttl": 3}, {"x-message-ttl": 3}),
        ({"x-expires": 4}, {"expires": 3}, {"x-expires": 3}),
        ({"x-overflow": "drop-head"}, {"overflow": "reject-publish"}, {"x-overflow": "drop-head"}),
        ({"x-dead-letter-exchange": "a"}, {"dead-letter-exchange": "b"}, {"x-dead-letter-exchange": "a"}),
        ({"x-delivery-limit": -1}, {"delivery-limit": 3}, {"x-delivery-limit": 3}),
        ({"x-max-age": "1h"}, {"max-age": "1D"}, {"x-max-age": "1h"}),
        ({"x-max-age": "1Y"}, {"max-age": "1D"}, {"x-max-age": "1D"}),
        ({"x-other": 1}, {"alternate-exchange": "a", "ha-mode": "all"}, {"x-other": 1}),
    ],
)
def test_of_numbers_the_lower_one_counts_and_else_the_argument(
    arguments: dict[str, Any], definition: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert with_definition(arguments, definition) == expected


def test_options_are_those_of_the_arguments_with_the_definition() -> None:
    arguments = {"x-max-length": 4, "x-max-priority": 3, "x-overflow": "reject-publish"}
    declared = queue_options("/", "q", arguments, durable=True, exclusive=False, auto_delete=False)
    definition = {"max-length": 2, "message-ttl": 9, "overflow": "drop-head", "dead-letter-routing-key": "k"}
    assert resolved(declared, arguments, definition) == QueueOptions(
        max_length=2, max_priority=3, overflow="reject-publish", message_ttl=9, dead_letter_routing_key="k"
    )
    assert resolved(declared, arguments, {"max-length": 9}) is declared
    assert resolved(QueueOptions(), {}, {"max-length": "of another version"}) == QueueOptions()


def test_a_time_span_is_decoded() -> None:
    assert resolved(QueueOptions(queue_type="stream"), {}, {"max-age": "1h"}).max_age == 3_600_000
