"""The publishes of a load: each is complete, and there are as many distinct ones as the load needs."""

from __future__ import annotations

from itertools import cycle

import pytest
from pamqp import body, commands, frame, header

from escrowmq.perf.amqp091.encoding import DISTINCT, DISTINCT_AT_LEAST, block_count, messages_of, publish_block
from escrowmq.perf.block import WRITE_BYTES, PublishBlock
from escrowmq.perf.workload import SCENARIOS, Workload

FRAME_MAX = 131072
VARIED = SCENARIOS["varied"]


def block(workload: Workload, keys: tuple[str, ...] = ("queue",)) -> PublishBlock:
    made = messages_of(workload, len(keys), 0)
    return publish_block(made, 1, "", cycle(keys), workload.persistent, FRAME_MAX)


def parts(publish: memoryview) -> tuple[commands.Basic.Publish, header.ContentHeader, bytes]:
    """Return the method, the header and the body of one publish of at most one body frame."""
    data = bytes(publish)
    used, _, method = frame.unmarshal(data)
    more, _, head = frame.unmarshal(data[used:])
    _, _, content = frame.unmarshal(data[used + more :])
    assert isinstance(method, commands.Basic.Publish)
    assert isinstance(head, header.ContentHeader)
    assert isinstance(content, body.ContentBody)
    assert head.body_size == len(content.value)
    return method, head, content.value


def test_routing_keys_take_turns() -> None:
    publishes = block(Workload(), ("a-0", "b-10"))
    found = [parts(publishes.slice(number, 1))[0].routing_key for number in range(4)]
    assert found == ["a-0", "b-10", "a-0", "b-10"]


def test_a_publish_carries_its_message() -> None:
    publishes = block(VARIED)
    for number, message in enumerate(messages_of(VARIED, 1, 0)[:50]):
        _, head, content = parts(publishes.slice(number, 1))
        assert content == message.body
        assert head.properties.message_id == message.message_id
        assert head.properties.correlation_id == message.correlation_id
        assert head.properties.headers == message.headers
        assert head.properties.delivery_mode == 1


def test_two_publishers_have_no_message_in_common() -> None:
    first, second = (messages_of(VARIED, 1, number) for number in (0, 1))
    assert not {message.message_id for message in first} & {message.message_id for message in second}


def test_uniform_messages_fill_one_large_write() -> None:
    publishes = block(Workload())
    assert WRITE_BYTES * 0.8 < len(publishes.view) <= WRITE_BYTES


@pytest.mark.parametrize(
    ("workload", "keys", "expected"),
    [
        (VARIED, 1, DISTINCT),
        (Workload(headers=True, producers=10), 1, DISTINCT // 10),
        (Workload(headers=True, channels=64), 1, DISTINCT_AT_LEAST),
        (Workload(headers=True, keys=10_000), 10_000, DISTINCT),
        (Workload(headers=True, channels=64, keys=10_000), 10_000, 10_000),
        (Workload(headers=True, tx_size=300), 1, 20_100),
        (Workload(queues=400, random=True), 400, DISTINCT),
        (Workload(size=4 * 1024 * 1024), 1, 15),
        (Workload(size=64 * 1024 * 1024), 1, 1),
        (Workload(size=64 * 1024 * 1024, queues=3), 3, 3),
    ],
)
def test_the_number_of_distinct_messages_is_bounded(workload: Workload, keys: int, expected: int) -> None:
    assert block_count(workload, keys) == expected


def test_uniform_messages_form_whole_rounds_of_the_keys_and_whole_transactions() -> None:
    count = block_count(Workload(queues=7, tx_size=10), 7)
    assert count % 10 == 0
    assert block_count(Workload(queues=7), 7) % 7 == 0


@pytest.mark.parametrize("size", [0, 7, 8, 300_000])
def test_any_body_size_gives_whole_publishes(size: int) -> None:
    assert block(Workload(size=size)).slice(0, 1)[-1] == 0xCE
