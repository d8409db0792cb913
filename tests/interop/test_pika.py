"""pika, Python's oldest client: blocking connections, and what is to be seen of a broker that ends or runs short."""

from __future__ import annotations

import signal
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import (
    AMQPConnectionError,
    AuthenticationError,
    ChannelClosedByBroker,
    ConnectionBlockedTimeout,
    ConnectionClosedByBroker,
    NackError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    UnroutableError,
)

from tests.broker import BrokerProcess, wait_until
from tests.interop.certificates import Authority
from tests.ports import reserve_port

pytestmark = pytest.mark.interop

Start = Callable[[str], BrokerProcess]
MIB = 1 << 20
PATIENCE = 30


def connect(broker: BrokerProcess, **parameters: Any) -> Any:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, **parameters))


def received(channel: Any, queue: str, count: int) -> list[bytes]:
    """The next bodies of a queue, acknowledged."""
    bodies: list[bytes] = []
    for method, _, body in channel.consume(queue, inactivity_timeout=PATIENCE):
        assert method is not None, f"only {len(bodies)} of {count} came"
        bodies.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(bodies) == count:
            break
    channel.cancel()
    return bodies


def test_publish_confirm_consume(broker: BrokerProcess, name: str) -> None:
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True)
        persistent = pika.BasicProperties(delivery_mode=2)
        sent = [b"%d" % i for i in range(200)]
        for body in sent:
            channel.basic_publish("", name, body, persistent, mandatory=True)
        assert received(channel, name, 200) == sent
        assert channel.basic_get(name)[0] is None
        with pytest.raises(UnroutableError):
            channel.basic_publish("", name + " not there", b"", mandatory=True)
        channel.queue_declare(name + " full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        channel.basic_publish("", name + " full", b"fits")
        with pytest.raises(NackError):
            channel.basic_publish("", name + " full", b"does not")


def test_transactions(broker: BrokerProcess, name: str) -> None:
    with connect(broker) as connection:
        channel, other = connection.channel(), connection.channel()
        channel.queue_declare(name, durable=True)
        channel.tx_select()
        channel.basic_publish("", name, b"rolled back")
        channel.tx_rollback()
        for body in (b"1", b"2", b"3"):
            channel.basic_publish("", name, body)
        assert other.basic_get(name)[0] is None
        channel.tx_commit()
        assert received(other, name, 3) == [b"1", b"2", b"3"]


def test_errors_leave_the_connection(broker: BrokerProcess, name: str) -> None:
    with connect(broker) as connection:
        channel = connection.channel()
        with pytest.raises(ChannelClosedByBroker) as caught:
            channel.queue_declare(name, passive=True)
        assert caught.value.args == (404, f"NOT_FOUND - no queue '{name}' in vhost '/'")
        assert connection.channel().queue_declare("").method.queue.startswith("amq.gen-")


def test_logins(broker: BrokerProcess) -> None:
    with pytest.raises(ProbableAuthenticationError, match=r"403.*ACCESS_REFUSED - Login was refused"):
        connect(broker, credentials=pika.PlainCredentials("guest", "wrong"))
    with pytest.raises(ProbableAuthenticationError, match="403"):
        connect(broker, credentials=pika.PlainCredentials("nobody", "guest"))
    with pytest.raises((ProbableAccessDeniedError, ConnectionClosedByBroker), match=r"530.*NOT_ALLOWED - vhost none"):
        connect(broker, virtual_host="none")


def test_exclusive_queue_goes_with_its_connection(broker: BrokerProcess, name: str) -> None:
    with connect(broker) as other:
        with connect(broker) as owner:
            queue = owner.channel().queue_declare("", exclusive=True).method.queue
            with pytest.raises(ChannelClosedByBroker) as caught:
                other.channel().basic_consume(queue, print)
            assert caught.value.reply_code == 405
        with pytest.raises(ChannelClosedByBroker) as caught:
            other.channel().queue_declare(queue, passive=True)
        assert caught.value.reply_code == 404


def test_large_messages(broker: BrokerProcess, name: str) -> None:
    body = bytes(range(256)) * (10 * MIB // 256)
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name)
        for size in (0, 1, 131064, 131065, 131072, 10 * MIB):
            channel.basic_publish("", name, body[:size], pika.BasicProperties(delivery_mode=2))
        for size in (0, 1, 131064, 131065, 131072, 10 * MIB):
            assert channel.basic_get(name, auto_ack=True)[2] == body[:size]
    with connect(broker, frame_max=4096) as connection:
        channel = connection.channel()
        channel.basic_publish("", name, body[:MIB])
        assert received(channel, name, 1) == [body[:MIB]]


def test_as_many_channels_as_there_can_be(broker: BrokerProcess, name: str) -> None:
    with connect(broker) as connection:
        channels = [connection.channel() for _ in range(2047)]
        channels[0].queue_declare(name)
        for channel in channels[::100]:
            channel.basic_publish("", name, b"%d" % channel.channel_number)
        assert received(channels[-1], name, 21) == [b"%d" % number for number in range(1, 2047, 100)]


def test_reply_to(broker: BrokerProcess, name: str) -> None:
    """RPC over the pseudo-queue, server and client on connections of their own."""
    with connect(broker) as server, connect(broker) as client:
        server.channel().queue_declare(name)
        requests, replies = server.channel(), client.channel()
        answers: list[bytes] = []

        def answer(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            channel.basic_publish("", properties.reply_to, body.upper())

        requests.basic_consume(name, answer, auto_ack=True)
        replies.basic_consume("amq.rabbitmq.reply-to", lambda *got: answers.append(got[3]), auto_ack=True)
        for body in (b"a", b"b"):
            properties = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
            replies.basic_publish("", name, body, properties)

        def turn() -> bool:
            server.process_data_events(0.01)
            client.process_data_events(0.01)
            return len(answers) == 2

        wait_until(turn, what="two answers")
        assert answers == [b"A", b"B"]


def test_a_consumer_hears_of_its_queue_s_end(broker: BrokerProcess, name: str) -> None:
    with connect(broker) as connection, connect(broker) as other:
        channel = connection.channel()
        channel.queue_declare(name)
        other.channel().basic_publish("", name, b"last")
        consumed = channel.consume(name)
        assert next(consumed)[2] == b"last"
        other.channel().queue_delete(name)
        assert list(consumed) == []
        assert channel.is_open


def test_stream_offsets(broker: BrokerProcess, name: str) -> None:
    with connect(broker) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_delivery()
        for i in range(10):
            channel.basic_publish("", name, b"%d" % i)
        for _ in range(2):  # reading does not consume
            reader = connection.channel()
            reader.basic_qos(prefetch_count=3)
            got: list[tuple[int, bytes]] = []

            def take(channel: Any, method: Any, properties: Any, body: bytes, got: Any = got) -> None:
                got.append((properties.headers["x-stream-offset"], body))
                channel.basic_ack(method.delivery_tag)

            reader.basic_consume(name, take, arguments={"x-stream-offset": 4})
            wait_until(lambda got=got: connection.process_data_events(0.01) or len(got) == 6, what="six messages")  # type: ignore[misc]
            assert got == [(i, b"%d" % i) for i in range(4, 10)]
            reader.close()


def test_idle_connections_live_by_heartbeats(broker: BrokerProcess, name: str) -> None:
    with connect(broker, heartbeat=3) as connection:
        connection.channel().queue_declare(name)
        connection.sleep(8)
        assert connection.channel().queue_declare(name, passive=True)


def test_a_client_without_heartbeats_is_dropped(broker: BrokerProcess, name: str) -> None:
    with connect(broker, heartbeat=2) as connection, connect(broker) as other:
        connection.channel().queue_declare(name, exclusive=True)  # and now it says nothing any more

        def gone() -> bool:
            try:
                other.channel().queue_declare(name, passive=True)
            except ChannelClosedByBroker as error:
                return bool(error.reply_code == 404)
            return False

        wait_until(gone, what="the end of the silent client's exclusive queue")
        with pytest.raises(AMQPConnectionError):
            connection.process_data_events(PATIENCE)


def test_publishers_are_blocked_while_memory_runs_short(own_broker: Start, name: str) -> None:
    broker = own_broker('[memory]\nhigh_watermark = "160MiB"\n')
    with connect(broker) as publisher, connect(broker) as consumer:
        heard: list[str] = []
        publisher.add_on_connection_blocked_callback(lambda _, frame: heard.append(frame.method.reason))
        publisher.add_on_connection_unblocked_callback(lambda *_: heard.append("unblocked"))
        channel = publisher.channel()
        channel.queue_declare(name)
        holder = consumer.channel()
        held: list[int] = []
        # What it does not settle cannot wait on disk.
        holder.basic_consume(name, lambda _, method, *__: held.append(method.delivery_tag))
        sent = 0

        def arrived() -> bool:
            publisher.process_data_events(0.001)
            consumer.process_data_events(0.05)
            return len(held) == sent or heard[-1:] == ["low on memory"]

        while heard[-1:] != ["low on memory"]:
            channel.basic_publish("", name, bytes(MIB))
            sent += 1
            wait_until(arrived, what="the message")  # else pika may be stuck with more than the socket takes
        holder.close()
        bodies = received(consumer.channel(), name, sent)
        assert all(len(body) == MIB for body in bodies)
        del bodies
        wait_until(lambda: publisher.process_data_events(0.05) or heard[-1] == "unblocked", what="connection.unblocked")
        # What is on its way weighs as well, so it may have been blocked for a moment before it was for good.
        assert heard == ["low on memory", "unblocked"] * (len(heard) // 2)
        channel.confirm_delivery()
        channel.basic_publish("", name, b"goes on")
        assert received(consumer.channel(), name, 1) == [b"goes on"]


def test_a_blocked_publisher_may_give_up(own_broker: Start, name: str) -> None:
    broker = own_broker('[memory]\nhigh_watermark = "1MiB"\n')
    with connect(broker, blocked_connection_timeout=0.5) as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        channel.confirm_delivery()

        def publish() -> None:
            channel.basic_publish("", name, b"may be taken: by it the broker learns that this is a publisher")
            channel.basic_publish("", name, b"is not")

        with pytest.raises(ConnectionBlockedTimeout):
            publish()
    with connect(broker) as consumer:  # others are not held back
        consumer.channel().queue_delete(name)


def test_shutdown_is_told(own_broker: Start, name: str) -> None:
    broker = own_broker("")
    connection = connect(broker)
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", name, b"stays", pika.BasicProperties(delivery_mode=2))
    broker.signal(signal.SIGTERM)
    with pytest.raises(ConnectionClosedByBroker) as caught:
        connection.sleep(PATIENCE)
    assert caught.value.args == (320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'")
    assert broker.wait() == 0
    broker.start()
    with connect(broker) as again:
        assert received(again.channel(), name, 1) == [b"stays"]


def test_kill_and_reconnect(own_broker: Start, name: str) -> None:
    """The loop that pika's documentation recommends: what was confirmed is there after kill -9, in order and once."""
    broker = own_broker("")
    confirmed: list[bytes] = []
    stop = threading.Event()

    def publish() -> None:
        number = 0
        while not stop.is_set():
            try:
                with connect(broker, connection_attempts=100, retry_delay=0.05) as connection:
                    channel = connection.channel()
                    channel.confirm_delivery()
                    channel.queue_declare(name, durable=True)
                    while not stop.is_set():
                        body = b"%d" % number
                        number += 1
                        channel.basic_publish("", name, body, pika.BasicProperties(delivery_mode=2))
                        confirmed.append(body)
            except AMQPConnectionError:
                continue

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        for _ in range(3):
            before = len(confirmed)
            wait_until(lambda before=before: len(confirmed) >= before + 50, what="50 confirms")  # type: ignore[misc]
            broker.kill()
            broker.start()
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()
    with connect(broker) as connection:
        channel = connection.channel()
        left = channel.queue_declare(name, passive=True).method.message_count
        numbers = [int(body) for body in received(channel, name, left)]
    assert numbers == sorted(set(numbers))
    assert {int(body) for body in confirmed} <= set(numbers)
    assert len(numbers) - len(confirmed) <= 3  # at most the one that was on its way at each kill


def test_tls_with_client_certificates(own_broker: Start, name: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost", server=True)
    tls_port = reserve_port(authority)
    broker = own_broker(
        f'[listen]\ntls_address = "127.0.0.1:{tls_port}"\n'
        f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\nca = "{authority.file}"\nverify_client = "required"\n'
    )

    def secure(user: str | None, credentials: Any = None) -> Any:
        context = ssl.create_default_context(cafile=str(authority.file))
        if user is not None:
            context.load_cert_chain(*authority.issue(user))
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "localhost",
                tls_port,
                ssl_options=pika.SSLOptions(context, "localhost"),
                credentials=credentials or pika.PlainCredentials("guest", "guest"),
            )
        )

    with secure("anybody") as connection:
        connection.channel().queue_declare(name)
    with secure("guest", pika.credentials.ExternalCredentials()) as connection:
        connection.channel().queue_declare(name, passive=True)
    with pytest.raises(AMQPConnectionError):
        secure("stranger", pika.credentials.ExternalCredentials())
    with pytest.raises(AMQPConnectionError):
        secure(None)
    with pytest.raises(AuthenticationError, match="EXTERNAL"):  # not on offer without a certificate
        connect(broker, credentials=pika.credentials.ExternalCredentials())
