"""Arguments of queues, compared with RabbitMQ's answers to the same declarations."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.topology.arguments.queue import ARGUMENTS, USED_BY, QueueOptions, queue_options, type_of
from tests.unit.core.recorded import reason, recorded

ROWS = recorded("declare_queue")["rows"]


def decode(
    arguments: dict[str, Any], *, durable: bool = True, exclusive: bool = False, auto_delete: bool = False
) -> QueueOptions:
    return queue_options("/", "q", arguments, durable=durable, exclusive=exclusive, auto_delete=auto_delete)


def refusal(arguments: dict[str, Any], **flags: bool) -> str:
    with pytest.raises(BrokerError) as refused:
        decode(arguments, **flags)
    assert refused.value.condition is Condition.PRECONDITION_FAILED
    return refused.value.text


def nonsense(arguments: dict[str, Any]) -> bool:
    """Return whether RabbitMQ accepts these invalid arguments."""
    limit = arguments.get("x-delivery-limit", 0)
    return arguments.get("x-queue-type") == "quorum" and type(limit) is not int


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_arguments_are_accepted_as_by_rabbitmq(row: list[Any]) -> None:
    arguments, durable, exclusive, auto_delete, reply = row
    flags = {"durable": durable, "exclusive": exclusive, "auto_delete": auto_delete}
    if reply is None and not nonsense(arguments):
        decode(arguments, **flags)
    # RabbitMQ accepts these values although they are invalid, or crashes on them
    elif reply is None or reply == "INTERNAL_ERROR":
        assert refusal(arguments, **flags).startswith("invalid arg 'x-")
    else:
        assert refusal(arguments, **flags) == reason(reply)


def test_without_arguments_there_are_no_options() -> None:
    assert decode({}, durable=False, exclusive=True, auto_delete=True) == QueueOptions()


def test_all_arguments_of_a_classic_queue_are_decoded() -> None:
    options = decode(
        {
            "x-message-ttl": 0,
            "x-expires": 2,
            "x-max-length": 3,
            "x-max-length-bytes": 4,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "k",
            "x-max-priority": 9,
            "x-queue-mode": "lazy",
            "x-queue-version": 2,
            "x-queue-master-locator": "random",
            "x-single-active-consumer": True,
            "x-unheard-of": [1],
        }
    )
    assert options == QueueOptions(
        message_ttl=0,
        expires=2,
        max_length=3,
        max_length_bytes=4,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key="k",
        max_priority=9,
        single_active_consumer=True,
    )


def test_the_arguments_of_a_quorum_queue_are_decoded() -> None:
    options = decode({"x-queue-type": "quorum", "x-delivery-limit": 3, "x-dead-letter-strategy": "at-least-once"})
    assert options == QueueOptions("quorum", delivery_limit=3, dead_letter_strategy="at-least-once")


def test_the_arguments_of_a_stream_are_decoded() -> None:
    options = decode(
        {
            "x-queue-type": "stream",
            "x-max-age": "7D",
            "x-max-length-bytes": 10**12,
            "x-stream-max-segment-size-bytes": 10**6,
            "x-initial-cluster-size": 3,
            "x-queue-leader-locator": "balanced",
        }
    )
    assert options == QueueOptions("stream", max_age=7 * 86_400_000, max_length_bytes=10**12, max_segment_bytes=10**6)


def test_a_negative_delivery_limit_means_no_limit() -> None:
    assert decode({"x-queue-type": "quorum", "x-delivery-limit": -1}).delivery_limit is None


def test_the_type_is_checked_first() -> None:
    assert "unsupported queue type" in refusal({"x-expires": 0, "x-queue-type": "lazy"})


def test_arguments_of_the_type_are_checked_before_those_of_other_types() -> None:
    assert "{value_negative,-1}" in refusal({"x-delivery-limit": 1, "x-message-ttl": -1})


def test_the_table_is_consistent() -> None:
    options = {field.name for field in fields(QueueOptions)}
    assert {row.option for row in ARGUMENTS.values() if row.option} == options
    used = {argument for arguments in USED_BY.values() for argument in arguments}
    assert used == set(ARGUMENTS)


def test_the_type_is_determined_from_checked_arguments() -> None:
    assert type_of({}) == "classic"
    assert type_of({"x-queue-type": "stream"}) == "stream"
