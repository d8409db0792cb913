"""Arguments of consumers, compared with RabbitMQ's answers."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.topology.arguments.consumer import ConsumerOptions, StreamOffset, consumer_options
from escrowmq.core.topology.arguments.queue import QueueType
from tests.unit.core.recorded import Timestamp, reason, recorded


@pytest.mark.parametrize("row", recorded("consume")["rows"], ids=str)
def test_arguments_are_accepted_as_by_rabbitmq(row: tuple[QueueType, dict[str, Any], str | None]) -> None:
    kind, arguments, reply = row
    if reply is None:
        consumer_options("/", "q", kind, arguments)
        return
    with pytest.raises(BrokerError) as refused:
        consumer_options("/", "q", kind, arguments)
    assert refused.value.condition is Condition.PRECONDITION_FAILED
    if reply == "INTERNAL_ERROR":  # RabbitMQ crashes on an invalid offset
        assert refused.value.text.startswith(
            "invalid arg 'x-stream-offset' for queue 'q' in vhost '/': {invalid_stream_"
        )
    else:
        assert refused.value.text == reason(reply)


@pytest.mark.parametrize(
    ("given", "offset"),
    [
        ("first", StreamOffset("first")),
        ("last", StreamOffset("last")),
        ("next", StreamOffset("next")),
        (7, StreamOffset("offset", 7)),
        (-1, StreamOffset("offset", 0)),
        (Timestamp(1_600_000_000), StreamOffset("time", 1_600_000_000_000)),
        ("5m", StreamOffset("age", 300_000)),
    ],
)
def test_offsets_are_decoded(given: object, offset: StreamOffset) -> None:
    assert consumer_options("/", "q", "stream", {"x-stream-offset": given}) == ConsumerOptions(stream_offset=offset)


def test_without_arguments_a_reader_begins_with_the_next_message() -> None:
    assert consumer_options("/", "q", "stream", {}).stream_offset == StreamOffset("next")


def test_the_priority_is_decoded() -> None:
    options = consumer_options("/", "q", "classic", {"x-priority": -3, "x-cancel-on-ha-failover": True, "other": 1})
    assert options == ConsumerOptions(priority=-3, cancel_on_failover=True)
