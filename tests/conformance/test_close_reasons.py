"""A close names the method that caused it (section 1.4.2.10: "the class id and method id of the method")."""

from __future__ import annotations

import random

import pytest

from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.method import Method
from tests.harness.client import TRANSIENT, SimClient
from tests.harness.frames import publish_frames
from tests.harness.server import SimServer


@pytest.fixture
def client() -> SimClient:
    client = SimClient(SimServer(MemoryStorage(random.Random(1))))
    client.open_channel(1)
    return client


@pytest.mark.parametrize(
    ("method", "code"),
    [
        (spec.BasicQos(prefetch_size=1), 540),
        (spec.ExchangeDeclare("x", "no type"), 503),
    ],
)
def test_connection_close_names_the_method(client: SimClient, method: Method, code: int) -> None:
    client.send(1, method)
    close = client.expect(0, spec.ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (code, method.CLASS_ID, method.METHOD_ID)


@pytest.mark.parametrize("body", [b"", b"in one frame", bytes(200_000)])
def test_connection_close_names_basic_publish_for_any_body(client: SimClient, body: bytes) -> None:
    method = spec.BasicPublish("", "q", immediate=True)
    client.send_bytes(publish_frames(1, method, TRANSIENT, body, frame_max=131_072))
    close = client.expect(0, spec.ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (540, method.CLASS_ID, method.METHOD_ID)


@pytest.mark.parametrize(
    ("method", "code"),
    [(spec.QueueDeclare("none", passive=True), 404), (spec.TxCommit(), 406), (spec.BasicAck(5), 406)],
)
def test_channel_close_names_the_method(client: SimClient, method: Method, code: int) -> None:
    client.send(1, method)
    close = client.expect(1, spec.ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (code, method.CLASS_ID, method.METHOD_ID)
