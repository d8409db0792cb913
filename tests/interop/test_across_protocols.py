"""python-qpid-proton and pika exchange messages, and find them after kill -9 of the broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pytest

from tests.broker import BrokerProcess

proton: Any = pytest.importorskip("proton", reason="make proton")
utils: Any = pytest.importorskip("proton.utils")

pytestmark = pytest.mark.interop
ID = uuid.UUID(int=7)


@pytest.fixture
def broker(own_broker: Any) -> BrokerProcess:
    """Return a broker that the test may kill."""
    started: BrokerProcess = own_broker()
    return started


@contextmanager
def channel_of(broker: BrokerProcess) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


@contextmanager
def links_of(broker: BrokerProcess) -> Iterator[Any]:
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}"
    connection = utils.BlockingConnection(url, timeout=20, allowed_mechs="PLAIN")
    yield connection
    connection.close()


def declare(broker: BrokerProcess) -> None:
    with channel_of(broker) as channel:
        channel.queue_declare("q", durable=True)


def restart(broker: BrokerProcess) -> None:
    broker.kill()
    broker.restart()


@pytest.mark.rule("MSG-1")
@pytest.mark.parametrize("killed", [False, True])
def test_a_message_of_proton_reaches_pika(broker: BrokerProcess, killed: bool) -> None:
    declare(broker)
    sent = proton.Message(
        inferred=True,
        body=b"body",
        id=ID,
        correlation_id="c",
        user_id=b"guest",
        reply_to="/queues/a%2Fb",
        subject="s",
        content_type="text/plain",
        content_encoding="utf-8",
        creation_time=1_700_000_000,
        durable=True,
        priority=7,
        ttl=3600,
        properties={"text": "v", "number": 5, "flag": True},
        annotations={proton.symbol("x-note"): "n"},
    )
    with links_of(broker) as connection:
        assert connection.create_sender("q").send(sent).remote_state == proton.Delivery.ACCEPTED
    if killed:
        restart(broker)
    with channel_of(broker) as channel:
        _, found, body = channel.basic_get("q", auto_ack=True)
    assert body == b"body"
    assert (found.message_id, found.correlation_id) == (ID.urn, "c")
    assert (found.user_id, found.reply_to) == ("guest", "a/b")
    assert (found.content_type, found.content_encoding) == ("text/plain", "utf-8")
    assert (found.timestamp, found.delivery_mode, found.priority) == (1_700_000_000, 2, 7)
    assert found.expiration == "3600000"
    assert found.headers == {"text": "v", "number": 5, "flag": True, "x-note": "n", "x-subject": "s"}


@pytest.mark.rule("MSG-1")
@pytest.mark.parametrize("killed", [False, True])
def test_a_message_of_pika_reaches_proton(broker: BrokerProcess, killed: bool) -> None:
    declare(broker)
    properties = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"text": "v", "number": 5, "flag": True, "x-note": "n"},
        delivery_mode=2,
        priority=7,
        correlation_id="c",
        reply_to="a/b",
        expiration="3600000",
        message_id=ID.urn,
        timestamp=int(time.time()),
        type="order",
        user_id="guest",
    )
    with channel_of(broker) as channel:
        channel.basic_publish("", "q", b"body", properties)
    if killed:
        restart(broker)
    with links_of(broker) as connection:
        found = connection.create_receiver("q").receive()
    assert bytes(found.body) == b"body"
    assert (found.id, found.correlation_id, found.user_id) == (ID, "c", b"guest")
    assert (found.reply_to, found.subject) == ("/queues/a%2Fb", "q")
    assert (found.content_type, found.content_encoding) == ("text/plain", "utf-8")
    assert (found.creation_time, found.ttl) == (properties.timestamp, 3600)
    assert (found.durable, found.priority) == (True, 7)
    assert found.properties == {"text": "v", "number": 5, "flag": True}
    assert found.annotations == {"x-note": "n", "x-basic-type": "order", "x-exchange": "", "x-routing-key": "q"}


@pytest.mark.rule("MSG-2")
def test_a_message_of_proton_comes_back_as_it_was(broker: BrokerProcess) -> None:
    declare(broker)
    sent = proton.Message(body={"k": [1, 2.5, None]}, id=5, durable=True, properties={"a": proton.ulong(1)})
    with links_of(broker) as connection:
        connection.create_sender("q").send(sent)
    restart(broker)
    with links_of(broker) as connection:
        found = connection.create_receiver("q").receive()
    assert (found.body, found.id, found.properties) == (sent.body, 5, sent.properties)
    assert isinstance(found.properties["a"], proton.ulong)
