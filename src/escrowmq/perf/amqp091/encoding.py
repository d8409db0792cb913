"""The publishes of a load, encoded before the load begins."""

from __future__ import annotations

from collections.abc import Iterator

from escrowmq.perf.amqp091.content import body_frames, properties, publish_head
from escrowmq.perf.amqp091.frames import FRAME_HEAD_SIZE
from escrowmq.perf.block import WRITE_BYTES, PublishBlock
from escrowmq.perf.messages import LoadMessage, messages
from escrowmq.perf.workload import Workload

DISTINCT = 20_000
"""The number of distinct messages of all publishers together, if messages differ in more than their bodies."""
DISTINCT_AT_LEAST = 2000
"""The least number of distinct messages for each publisher, far more than a broker's caches of properties hold."""
_OVERHEAD = 60
"""The approximate number of bytes by which a publish without properties is longer than its body."""
_BLOCK_BYTES = 64 * 1024 * 1024


def messages_of(workload: Workload, key_count: int, publisher: int) -> list[LoadMessage]:
    """Return the distinct messages of the publisher of that number, which has `key_count` routing keys."""
    count = block_count(workload, key_count)
    return list(messages(workload.variety, workload.size, count, seed=publisher + 1))


def publish_block(
    made: list[LoadMessage],
    channel: int,
    exchange: str,
    keys: Iterator[str],
    persistent: bool,
    frame_max: int,
    reply_to: str | None = None,
) -> PublishBlock:
    """Publishes of these messages, under the next routing keys."""
    mode = 2 if persistent else 1
    units: list[bytes] = []
    bodies_at: list[int] = []
    for message, key in zip(made, keys, strict=False):
        head = publish_head(channel, exchange, key, len(message.body), properties(message, mode, reply_to))
        bodies_at.append(len(head) + FRAME_HEAD_SIZE)
        units.append(head + body_frames(channel, message.body, frame_max))
    return PublishBlock(units, bodies_at)


def block_count(workload: Workload, key_count: int) -> int:
    """Return the number of messages in a publisher's block: whole rounds of the routing keys and whole transactions."""
    size = workload.size + _OVERHEAD
    if workload.variety.uniform and key_count <= WRITE_BYTES // size and not workload.random:
        count = max(WRITE_BYTES // (size * key_count), 1) * key_count
    else:
        count = max(DISTINCT // workload.publishers, DISTINCT_AT_LEAST, key_count)
        count = max(min(count, _BLOCK_BYTES // size), 1 if workload.random else key_count)
    unit = workload.tx_size or 1
    return -(-count // unit) * unit
