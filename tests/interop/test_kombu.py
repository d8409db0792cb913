"""kombu and py-amqp, the client on which it is based, work with the broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import amqp
import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.mixins import ConsumerProducerMixin

from tests.broker import BrokerProcess, wait_until

pytestmark = pytest.mark.interop

PATIENCE = 30


@contextmanager
def plain(broker: BrokerProcess, **how: Any) -> Iterator[Any]:
    """Open a connection with py-amqp."""
    with amqp.Connection(f"127.0.0.1:{broker.port}", **how) as connection:
        yield connection


def test_kombu_publishes_and_consumes(broker: BrokerProcess, name: str) -> None:
    exchange = Exchange(name, "topic", durable=False, auto_delete=True)
    queue = Queue(name, exchange, routing_key="a.#", exclusive=True)
    got: list[Any] = []

    def take(body: Any, message: Any) -> None:
        got.append(body)
        message.ack()

    with Connection(broker.url, transport_options={"confirm_publish": True}) as connection:
        with Consumer(connection, queue, callbacks=[take]):
            producer = Producer(connection, exchange=exchange)
            for i in range(50):
                producer.publish({"number": i, "list": [1, None, "ü"]}, routing_key="a.b", compression="zlib")
            while len(got) < 50:
                connection.drain_events(timeout=PATIENCE)
        assert got == [{"number": i, "list": [1, None, "ü"]} for i in range(50)]
        with connection.SimpleQueue(name + " simple", queue_opts={"exclusive": True, "durable": False}) as simple:
            simple.put("one")
            message = simple.get(timeout=PATIENCE)
            assert message.payload == "one"
            message.requeue()
            again = simple.get(timeout=PATIENCE)
            assert again.delivery_info["redelivered"]
            again.ack()
            with pytest.raises(simple.Empty):
                simple.get_nowait()


def test_kombu_raises_its_exceptions_for_errors(broker: BrokerProcess, name: str) -> None:
    with Connection(broker.url) as connection:
        channel = connection.channel()
        Queue(name, channel=channel, exclusive=True, durable=False).declare()
        with pytest.raises(amqp.PreconditionFailed, match="inequivalent arg 'x-expires'"):
            Queue(name, channel=channel, exclusive=True, durable=False, expires=10).declare()
        with Connection(broker.url) as other, pytest.raises(amqp.ResourceLocked):
            Queue(name, channel=other.channel(), durable=False).queue_declare()
        with pytest.raises(amqp.NotFound):
            Queue(name + " none", channel=connection.channel()).queue_declare(passive=True)
    with Connection(f"amqp://guest:wrong@127.0.0.1:{broker.port}/") as connection, pytest.raises(amqp.AccessRefused):
        connection.connect()
    with Connection(f"amqp://guest:guest@127.0.0.1:{broker.port}/none") as connection, pytest.raises(amqp.NotAllowed):
        connection.connect()


class Echo(ConsumerProducerMixin):
    """A service that answers requests, and reconnects automatically when the connection is lost."""

    def __init__(self, connection: Any, queue: Any) -> None:
        self.connection = connection
        self.queue = queue
        self.ready = threading.Event()

    def get_consumers(self, consumer: Any, channel: Any) -> list[Any]:
        return [consumer([self.queue], on_message=self.answer, prefetch_count=10)]

    def on_consume_ready(self, *args: Any, **kwargs: Any) -> None:
        self.ready.set()

    def answer(self, message: Any) -> None:
        self.producer.publish(
            message.payload * 2,
            exchange="",
            routing_key=message.properties["reply_to"],
            correlation_id=message.properties["correlation_id"],
            retry=True,
        )
        message.ack()


def test_a_service_reconnects_after_a_kill(own_broker: Callable[[str], BrokerProcess], name: str) -> None:
    broker = own_broker("")
    queue = Queue(name, durable=True)
    echo = Echo(Connection(broker.url, heartbeat=2), queue)
    thread = threading.Thread(target=echo.run)
    thread.start()
    try:
        for number in (1, 2, 3):
            assert echo.ready.wait(PATIENCE)
            assert ask(broker, name, number) == 2 * number
            if number < 3:
                echo.ready.clear()
                broker.kill()
                broker.start()
    finally:
        echo.should_stop = True
        thread.join(PATIENCE)
    assert not thread.is_alive()


def ask(broker: BrokerProcess, queue: str, number: int) -> int:
    """Send a request to a service, and return the answer, which comes by direct reply-to."""
    answers: list[int] = []
    with Connection(broker.url) as connection:
        channel = connection.channel()
        replies = Queue("amq.rabbitmq.reply-to", channel=channel, no_declare=True)
        with Consumer(channel, replies, no_ack=True, callbacks=[lambda body, _: answers.append(body)]):
            Producer(channel).publish(number, routing_key=queue, reply_to="amq.rabbitmq.reply-to", correlation_id="1")
            while not answers:
                connection.drain_events(timeout=PATIENCE)
    return answers[0]


def test_py_amqp_supports_transactions_and_confirms(broker: BrokerProcess, name: str) -> None:
    with plain(broker, confirm_publish=True) as connection:
        channel = connection.channel()
        channel.queue_declare(name, exclusive=True, auto_delete=False)
        for i in range(20):
            channel.basic_publish(amqp.Message(b"%d" % i, delivery_mode=2), routing_key=name)
        assert [channel.basic_get(name, no_ack=True).body for _ in range(20)] == [b"%d" % i for i in range(20)]
    with plain(broker) as connection:
        channel, other = connection.channel(), connection.channel()
        channel.queue_declare(name, exclusive=True, auto_delete=False)
        channel.tx_select()
        channel.basic_publish(amqp.Message("rolled back"), routing_key=name)
        channel.tx_rollback()
        channel.basic_publish(amqp.Message("committed"), routing_key=name)
        assert other.basic_get(name) is None
        channel.tx_commit()
        message = other.basic_get(name)
        assert message.body == "committed"
        other.basic_reject(message.delivery_tag, requeue=True)
        assert other.basic_get(name).delivery_info["redelivered"]
        other.basic_recover(requeue=True)
        assert other.basic_get(name, no_ack=True).body == "committed"


def test_py_amqp_is_notified_of_cancelled_consumers_and_returns(broker: BrokerProcess, name: str) -> None:
    with plain(broker) as connection:
        channel = connection.channel()
        channel.queue_declare(name, auto_delete=False)
        cancelled: list[str] = []
        channel.basic_consume(name, consumer_tag="mine", callback=print, on_cancel=cancelled.append)
        with plain(broker) as other:
            other.channel().queue_delete(name)
        while not cancelled:
            connection.drain_events(PATIENCE)
        assert cancelled == ["mine"]
        returned: list[Any] = []
        channel.events["basic_return"].add(lambda *got: returned.append(got[:4]))
        channel.basic_publish(amqp.Message("x"), routing_key=name + " none", mandatory=True)
        while not returned:
            connection.drain_events(PATIENCE)
        (error, exchange, key, message) = returned[0]
        assert (error.reply_code, exchange, key, message.body) == (312, "", name + " none", "x")


def test_py_amqp_keeps_an_idle_connection_open_with_heartbeats(broker: BrokerProcess, name: str) -> None:
    with plain(broker, heartbeat=3) as connection:
        connection.channel().queue_declare(name, exclusive=True)
        beats = 0

        def beat() -> bool:
            nonlocal beats
            connection.heartbeat_tick(rate=2)
            try:
                connection.drain_events(1)
            except TimeoutError:
                beats += 1
            return beats >= 8

        wait_until(beat, PATIENCE, "eight seconds of idleness")
        assert connection.channel().queue_declare(name, passive=True).queue == name
