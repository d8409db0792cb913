"""The limit frame-max includes header and end of a frame, but clients that count only the payload are tolerated."""

from __future__ import annotations

import random

from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.frames import frame, header_frame, method_frame
from tests.harness.client import TRANSIENT, SimClient
from tests.harness.server import SimServer

FRAME_MAX = 131_072


def publish(client: SimClient, body: bytes, size: int) -> None:
    """Publish a message in two body frames, the first with a payload of `size` bytes."""
    client.send_bytes(
        method_frame(1, spec.BasicPublish("", "q"))
        + header_frame(1, TRANSIENT, len(body))
        + b"".join(frame(codes.FRAME_BODY, 1, part) for part in (body[:size], body[size:]))
    )


def client_with_queue() -> SimClient:
    client = SimClient(SimServer(MemoryStorage(random.Random(1))))
    client.open_channel(1)
    client.declare(1, "q", durable=False)
    return client


def test_a_payload_of_frame_max_is_accepted_and_delivered_in_smaller_frames() -> None:
    client = client_with_queue()
    body = random.Random(2).randbytes(FRAME_MAX + 1000)
    publish(client, body, FRAME_MAX)
    client.send_bytes(method_frame(1, spec.BasicGet("q", no_ack=True)))
    assert client.inbox.popleft().body == body


def test_a_payload_larger_than_frame_max_closes_the_connection() -> None:
    client = client_with_queue()
    publish(client, bytes(FRAME_MAX + 1000), FRAME_MAX + 1)
    assert client.expect(0, spec.ConnectionClose).reply_code == codes.FRAME_ERROR
