"""The client against a real broker: methods that pika's users know behave as they expect."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import escrowmq.client as mq
from escrowmq.client import Channel, Connection, Properties
from escrowmq.wire.amqp091 import spec
from tests.broker import BrokerProcess, running_broker

PERSISTENT = Properties(delivery_mode=2)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[Connection]:
    with mq.connect(broker.url, timeout=20) as connection:
        yield connection


@pytest.fixture
def channel(connection: Connection) -> Channel:
    return connection.channel()


@pytest.fixture
def queue(channel: Channel) -> str:
    name: str = channel.queue_declare("", exclusive=True).method.queue
    return name


def test_what_is_published_can_be_got(channel: Channel, queue: str) -> None:
    sent = Properties(content_type="text/plain", headers={"a": 1, "b": ["x", None]}, delivery_mode=2, message_id="7")
    channel.basic_publish("", queue, "grüße", sent)
    method, properties, body = channel.basic_get(queue)
    assert method is not None
    assert properties == sent
    assert body == "grüße".encode()
    assert method.routing_key == queue
    channel.basic_ack(method.delivery_tag)
    assert channel.basic_get(queue) == (None, None, None)


@pytest.mark.parametrize("size", [0, 1, 100, 131064, 131065, 3_000_000])
def test_bodies_of_any_size(channel: Channel, queue: str, size: int) -> None:
    body = bytes(i % 251 for i in range(min(size, 1000))) * (size // 1000 + 1)
    channel.basic_publish("", queue, body[:size])
    assert channel.basic_get(queue, auto_ack=True)[2] == body[:size]


def test_topology(channel: Channel, queue: str) -> None:
    channel.exchange_declare("here", "topic", auto_delete=True)
    channel.exchange_declare("there", "fanout", auto_delete=True)
    channel.queue_bind(queue, "there")
    channel.exchange_bind("there", "here", "a.*")
    channel.basic_publish("here", "a.b", b"1")
    channel.basic_publish("here", "b.a", b"2")
    assert channel.message_count(queue) == 1
    assert channel.queue_purge(queue).method.message_count == 1
    channel.exchange_unbind("there", "here", "a.*")
    channel.queue_unbind(queue, "there")
    channel.exchange_delete("here")
    assert channel.queue_delete(queue).method.message_count == 0


def test_a_refusal_names_code_text_and_method_and_costs_the_channel_alone(connection: Connection) -> None:
    channel, other = connection.channel(), connection.channel()
    with pytest.raises(mq.NotFound) as caught:
        channel.queue_declare("none", passive=True)
    error = caught.value
    assert (error.code, error.method) == (404, "queue.declare")
    assert "no queue 'none'" in error.text
    assert isinstance(error, mq.ProgrammingError)
    assert "404" in str(error)
    with pytest.raises(mq.NotFound):  # the channel stays closed and repeats the reason
        channel.basic_qos(prefetch_count=1)
    other.queue_declare("", exclusive=True)
    assert connection.channel().is_open


def test_a_publish_to_nowhere_is_told_by_the_next_call(channel: Channel) -> None:
    channel.basic_publish("no such exchange", "", b"")
    with pytest.raises(mq.NotFound, match="no exchange") as caught:
        channel.basic_qos(prefetch_count=1)
    assert caught.value.method == "basic.publish"


def test_closed_by_the_program(connection: Connection) -> None:
    channel = connection.channel()
    channel.close()
    channel.close()
    with pytest.raises(mq.InterfaceError, match="is closed"):
        channel.queue_declare("x")
    connection.close()
    connection.close()
    assert connection.is_closed
    with pytest.raises(mq.InterfaceError, match="the connection is closed"):
        connection.channel()


def test_callbacks_run_in_order_of_delivery(connection: Connection, channel: Channel, queue: str) -> None:
    channel.publish_many("", queue, [b"%d" % i for i in range(300)])
    channel.basic_qos(prefetch_count=50)
    seen: list[int] = []

    def callback(on: Channel, method: spec.BasicDeliver, properties: Properties, body: bytes) -> None:
        assert on is channel
        seen.append(int(body))
        on.basic_ack(method.delivery_tag)
        if len(seen) == 300:
            on.stop_consuming()

    channel.basic_consume(queue, callback)
    channel.start_consuming()
    assert seen == list(range(300))
    assert channel.consumer_tags == []


def test_unseen_deliveries_go_back_when_a_consumer_is_cancelled(channel: Channel, queue: str) -> None:
    channel.publish_many("", queue, [b"%d" % i for i in range(20)])
    for seen, (method, _, body) in enumerate(channel.consume(queue, inactivity_timeout=30)):
        assert method is not None
        assert body == b"%d" % seen
        channel.basic_ack(method.delivery_tag)
        if seen == 4:
            break
    assert channel.cancel() == 15
    assert channel.message_count(queue) == 15


def test_consume_tells_of_inactivity(channel: Channel, queue: str) -> None:
    messages = channel.consume(queue, auto_ack=True, inactivity_timeout=0.05)
    assert next(messages) == (None, None, None)
    channel.basic_publish("", queue, b"late")
    while (message := next(messages))[2] is None:
        pass
    assert message[2] == b"late"


def test_consume_ends_when_the_queue_is_deleted(connection: Connection, channel: Channel, queue: str) -> None:
    channel.basic_publish("", queue, b"last")
    messages = channel.consume(queue, auto_ack=True)
    assert next(messages)[2] == b"last"
    connection.channel().queue_delete(queue)
    assert list(messages) == []


def test_a_cancelled_consumer_says_so(connection: Connection, channel: Channel, queue: str) -> None:
    told: list[spec.BasicCancel] = []
    channel.add_on_cancel_callback(told.append)
    consumer = channel.subscribe(queue)
    connection.channel().queue_delete(queue)
    with pytest.raises(mq.ConsumerCancelled, match=queue):
        consumer.fetch(timeout=30)
    connection.process_data_events(0)
    assert [method.consumer_tag for method in told] == [consumer.tag]


def test_acks_in_bulk(connection: Connection, channel: Channel, queue: str) -> None:
    channel.publish_many("", queue, [b"%d" % i for i in range(1000)])
    consumer = channel.subscribe(queue)
    batch = consumer.fetch(1000, least=1000)
    assert batch.bodies == [b"%d" % i for i in range(1000)]
    channel.ack_many(batch.tags[::2])
    channel.basic_nack(batch.tags[499], multiple=True, requeue=False)
    channel.basic_reject(batch.tags[-1])
    channel.close()
    assert connection.channel().message_count(queue) == 250


def test_fetch_is_bounded_and_returns_the_available_deliveries(channel: Channel, queue: str) -> None:
    channel.publish_many("", queue, [b"%d" % i for i in range(10)])
    consumer = channel.subscribe(queue, auto_ack=True)
    assert consumer.fetch(3, least=3).bodies == [b"0", b"1", b"2"]
    assert consumer.fetch(least=7).bodies == [b"%d" % i for i in range(3, 10)]
    before = time.monotonic()
    assert len(consumer.fetch(timeout=0.2)) == 0
    assert time.monotonic() - before >= 0.2


def test_keys_and_properties_for_each(channel: Channel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "amq.topic", "#")
    count = 5000
    keys = [f"k{i % 3}" for i in range(count)]
    properties = [Properties(message_id=str(i)) if i % 2 else None for i in range(count)]
    bodies = [b"%d" % i for i in range(count)]
    expected = list(zip(keys, properties, bodies, strict=True))
    consumer = channel.subscribe(queue, auto_ack=True)

    def seen() -> list[tuple[str, Properties | None, bytes]]:
        batch = consumer.fetch(count, least=count)
        return [
            (run.deliver.routing_key, given if (given := Properties.decode(run.props)) != Properties() else None, body)
            for run in batch.runs
            for body in run.bodies
        ]

    channel.publish_many("amq.topic", keys, bodies, properties)
    assert seen() == expected
    channel.publish_many("amq.topic", keys, bodies, grouped=True)
    got = seen()
    assert sorted(int(body) for _, _, body in got) == list(range(count))
    for kind in range(3):  # the order within each group is kept
        numbers = [int(body) for key, _, body in got if key == f"k{kind}"]
        assert numbers == list(range(kind, count, 3))
    with pytest.raises(mq.ProgrammingError, match="fewer routing keys"):
        channel.publish_many("amq.topic", ["k"], bodies)


def test_confirms_and_returns(channel: Channel, queue: str) -> None:
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"1", PERSISTENT)
    with pytest.raises(mq.UnroutableError) as caught:
        channel.basic_publish("", "nowhere", b"2", mandatory=True)
    (returned,) = caught.value.messages
    assert (returned.body, returned.method.reply_code) == (b"2", 312)
    channel.publish_many("", queue, [b"x"] * 5000, PERSISTENT, wait=False)
    channel.wait_for_confirms()
    assert channel.message_count(queue) == 5001


def test_a_refused_publish_is_a_nack(channel: Channel) -> None:
    queue = channel.queue_declare(
        "", exclusive=True, arguments={"x-max-length": 2, "x-overflow": "reject-publish"}
    ).method.queue
    channel.confirm_delivery()
    with pytest.raises(mq.NackError) as caught:
        channel.publish_many("", queue, [b"1", b"2", b"3", b"4"])
    assert caught.value.sequence_numbers == [3, 4]
    with pytest.raises(mq.NackError, match="1 messages; the first is number 5"):
        channel.basic_publish("", queue, b"5")


def test_returns_come_by_callback(connection: Connection, channel: Channel) -> None:
    came: list[bytes] = []
    channel.add_on_return_callback(lambda *returned: came.append(returned[-1]))
    channel.basic_publish("", "nowhere", b"back", mandatory=True)
    connection.process_data_events(30)
    assert came == [b"back"]


def test_tx_and_the_connections_commit(connection: Connection, channel: Channel, queue: str) -> None:
    other = connection.channel()
    channel.tx_select()
    channel.basic_publish("", queue, b"1")
    channel.tx_rollback()
    channel.basic_publish("", queue, b"2")
    assert other.message_count(queue) == 0
    channel.tx_commit()
    assert other.message_count(queue) == 1
    channel.basic_publish("", queue, b"3")
    connection.rollback()
    channel.basic_publish("", queue, b"4")
    connection.commit()
    assert [other.basic_get(queue, auto_ack=True)[2] for _ in range(2)] == [b"2", b"4"]


def test_any_method_can_be_called(channel: Channel, queue: str) -> None:
    answer = channel.rpc(spec.QueueDeclare(queue, passive=True))
    assert answer.method == spec.QueueDeclareOk(queue, 0, 0)
    assert answer.content is None
    channel.send(spec.BasicPublish("", queue), mq.Content(PERSISTENT.encode(), b"body"))
    method, content = channel.rpc(spec.BasicGet(queue, True))
    assert isinstance(method, spec.BasicGetOk)
    assert content is not None
    assert (content.body, content.properties) == (b"body", PERSISTENT)
    assert channel.rpc(spec.BasicGet(queue)).content is None
    with pytest.raises(mq.ProgrammingError, match="has no answer"):
        channel.rpc(spec.BasicPublish("", queue))
    with pytest.raises(mq.ProgrammingError, match="has an answer"):
        channel.send(spec.BasicQos())
    with pytest.raises(mq.ProgrammingError, match=r"queue\.declare"):
        channel.rpc(spec.QueueDeclare("x" * 256))


def test_work_of_other_threads_is_handed_over(connection: Connection, channel: Channel, queue: str) -> None:
    done: list[int] = []
    thread = threading.Thread(
        target=lambda: connection.add_callback_threadsafe(lambda: done.append(channel.message_count(queue)))
    )
    thread.start()
    connection.process_data_events(20)
    thread.join()
    assert done == [0]
    before = time.monotonic()
    connection.sleep(0.1)
    assert time.monotonic() - before >= 0.1


def test_all_channels_can_be_used_up(broker: BrokerProcess) -> None:
    with mq.connect(broker.url, channel_max=3) as connection:
        channels = [connection.channel() for _ in range(3)]
        with pytest.raises(mq.OperationalError, match="all 3 channels"):
            connection.channel()
        channels[1].close()
        assert connection.channel().channel_number == 2


def test_the_password_can_be_renewed(connection: Connection) -> None:
    connection.update_secret("guest", "the old one is old")


def test_exclusive_queues_are_locked(broker: BrokerProcess, channel: Channel, queue: str) -> None:
    with mq.connect(broker.url) as other, pytest.raises(mq.ResourceLocked) as caught:
        other.channel().queue_declare(queue, passive=True)
    assert isinstance(caught.value, mq.OperationalError)


def test_the_broker_goes(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        connection = mq.connect(broker.url)
        channel = connection.channel()
        broker.kill()
        with pytest.raises(mq.ConnectionClosed) as caught:
            channel.queue_declare("q")
        assert caught.value.code == 0
        assert connection.is_closed
        with pytest.raises(mq.ConnectionClosed):
            channel.queue_declare("q")
        connection.close()
        with pytest.raises(mq.ConnectionClosed, match=r"127\.0\.0\.1"):
            mq.connect(broker.url)


def test_the_broker_says_that_it_goes(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, mq.connect(broker.url) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        consumer = channel.subscribe(queue)
        broker.terminate()
        with pytest.raises(mq.ConnectionClosed) as caught:
            consumer.fetch(timeout=20)
        assert caught.value.code == 320
