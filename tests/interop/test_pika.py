"""pika with blocking connections works with the broker, also when it stops, is killed, or runs short of memory."""

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

from tests.broker import BrokerProcess, low_on_disk, wait_until
from tests.interop.certificates import Authority
from tests.ports import reserve_port

pytestmark = pytest.mark.interop

Start = Callable[[str], BrokerProcess]
MIB = 1 << 20
PATIENCE = 30


def connect(broker: BrokerProcess, **parameters: Any) -> Any:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, **parameters))


def received(channel: Any, queue: str, count: int) -> list[bytes]:
    """Consume and acknowledge the next `count` messages of a queue. Returns their bodies."""
    bodies: list[bytes] = []
    for method, _, body in channel.consume(queue, inactivity_timeout=PATIENCE):
        assert method is not None, f"received only {len(bodies)} of {count} messages"
        bodies.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(bodies) == count:
            break
    channel.cancel()
    return bodies


def test_published_messages_are_confirmed_and_consumed(broker: BrokerProcess, name: str) -> None:
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


def test_transactions_commit_and_roll_back(broker: BrokerProcess, name: str) -> None:
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


def test_a_channel_error_leaves_the_connection_open(broker: BrokerProcess, name: str) -> None:
    with connect(broker) as connection:
        channel = connection.channel()
        with pytest.raises(ChannelClosedByBroker) as caught:
            channel.queue_declare(name, passive=True)
        assert caught.value.args == (404, f"NOT_FOUND - no queue '{name}' in vhost '/'")
        assert connection.channel().queue_declare("").method.queue.startswith("amq.gen-")


def test_bad_logins_are_refused_with_their_codes(broker: BrokerProcess) -> None:
    with pytest.raises(ProbableAuthenticationError, match=r"403.*ACCESS_REFUSED - Login was refused"):
        connect(broker, credentials=pika.PlainCredentials("guest", "wrong"))
    with pytest.raises(ProbableAuthenticationError, match="403"):
        connect(broker, credentials=pika.PlainCredentials("nobody", "guest"))
    with pytest.raises((ProbableAccessDeniedError, ConnectionClosedByBroker), match=r"530.*NOT_ALLOWED - vhost none"):
        connect(broker, virtual_host="none")


def test_an_exclusive_queue_is_deleted_with_its_connection(broker: BrokerProcess, name: str) -> None:
    with connect(broker) as other:
        with connect(broker) as owner:
            queue = owner.channel().queue_declare("", exclusive=True).method.queue
            with pytest.raises(ChannelClosedByBroker) as caught:
                other.channel().basic_consume(queue, print)
            assert caught.value.reply_code == 405
        with pytest.raises(ChannelClosedByBroker) as caught:
            other.channel().queue_declare(queue, passive=True)
        assert caught.value.reply_code == 404


def test_messages_of_any_size_arrive_unchanged(broker: BrokerProcess, name: str) -> None:
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


def test_the_maximum_number_of_channels_can_be_used(broker: BrokerProcess, name: str) -> None:
    with connect(broker) as connection:
        channels = [connection.channel() for _ in range(2047)]
        channels[0].queue_declare(name)
        for channel in channels[::100]:
            channel.basic_publish("", name, b"%d" % channel.channel_number)
        assert received(channels[-1], name, 21) == [b"%d" % number for number in range(1, 2047, 100)]


def test_direct_reply_to_works(broker: BrokerProcess, name: str) -> None:
    """Server and client of the RPC have separate connections."""
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


def test_a_consumer_is_cancelled_when_its_queue_is_deleted(broker: BrokerProcess, name: str) -> None:
    with connect(broker) as connection, connect(broker) as other:
        channel = connection.channel()
        channel.queue_declare(name)
        other.channel().basic_publish("", name, b"last")
        consumed = channel.consume(name)
        assert next(consumed)[2] == b"last"
        other.channel().queue_delete(name)
        assert list(consumed) == []
        assert channel.is_open


def test_a_stream_is_read_repeatedly_from_an_offset(broker: BrokerProcess, name: str) -> None:
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


def test_heartbeats_keep_an_idle_connection_open(broker: BrokerProcess, name: str) -> None:
    with connect(broker, heartbeat=3) as connection:
        connection.channel().queue_declare(name)
        connection.sleep(8)
        assert connection.channel().queue_declare(name, passive=True)


def test_a_client_without_heartbeats_is_dropped(broker: BrokerProcess, name: str) -> None:
    with connect(broker, heartbeat=2) as connection, connect(broker) as other:
        connection.channel().queue_declare(name, exclusive=True)  # from here on, the client is silent

        def gone() -> bool:
            try:
                other.channel().queue_declare(name, passive=True)
            except ChannelClosedByBroker as error:
                return bool(error.reply_code == 404)
            return False

        wait_until(gone, what="the silent client's exclusive queue to be deleted")
        with pytest.raises(AMQPConnectionError):
            connection.process_data_events(PATIENCE)


def test_publishers_are_blocked_while_memory_is_low(own_broker: Start, name: str) -> None:
    settings = '[memory]\nhigh_watermark = "160MiB"\ngrace_seconds = 0\n[limits]\nheld_memory_per_user = 1.0\n'
    broker = own_broker(settings + "held_memory_per_vhost = 1.0\n")  # or the consumer would be paused before the alarm
    with connect(broker) as publisher, connect(broker) as consumer:
        heard: list[str] = []
        publisher.add_on_connection_blocked_callback(lambda _, frame: heard.append(frame.method.reason))
        publisher.add_on_connection_unblocked_callback(lambda *_: heard.append("unblocked"))
        channel = publisher.channel()
        channel.queue_declare(name)
        holder = consumer.channel()
        held: list[int] = []
        # Unacknowledged messages stay in memory.
        holder.basic_consume(name, lambda _, method, *__: held.append(method.delivery_tag))
        sent = 0

        def arrived() -> bool:
            publisher.process_data_events(0.001)
            consumer.process_data_events(0.05)
            return len(held) == sent or heard[-1:] == ["low on memory"]

        while heard[-1:] != ["low on memory"]:
            channel.basic_publish("", name, bytes(MIB))
            sent += 1
            wait_until(arrived, what="the message")  # otherwise pika may block with more data than the socket accepts
        holder.close()
        bodies = received(consumer.channel(), name, sent)
        assert all(len(body) == MIB for body in bodies)
        del bodies
        wait_until(lambda: publisher.process_data_events(0.05) or heard[-1] == "unblocked", what="connection.unblocked")
        # Messages in flight count too, so the publisher may have been blocked briefly before the lasting alarm.
        assert heard == ["low on memory", "unblocked"] * (len(heard) // 2)
        channel.confirm_delivery()
        channel.basic_publish("", name, b"continues")
        assert received(consumer.channel(), name, 1) == [b"continues"]


def test_a_blocked_publisher_may_give_up(own_broker: Start, name: str) -> None:
    broker = own_broker(low_on_disk())
    with connect(broker, blocked_connection_timeout=0.5) as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        channel.confirm_delivery()

        def publish() -> None:
            channel.basic_publish("", name, b"may be accepted: it makes this connection a publisher")
            channel.basic_publish("", name, b"is not accepted")

        with pytest.raises(ConnectionBlockedTimeout):
            publish()
    with connect(broker) as consumer:  # connections that only consume are not blocked
        consumer.channel().queue_delete(name)


def test_a_shutdown_closes_connections_with_its_reason(own_broker: Start, name: str) -> None:
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


def test_confirmed_messages_survive_kills_in_order(own_broker: Start, name: str) -> None:
    """The publisher uses the loop that pika's documentation recommends. Each message is present once."""
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
    assert len(numbers) - len(confirmed) <= 3  # at most one message in flight at each kill


def test_clients_can_log_in_with_tls_certificates(own_broker: Start, name: str, tmp_path: Path) -> None:
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
    with pytest.raises(AuthenticationError, match="EXTERNAL"):  # not offered without a certificate
        connect(broker, credentials=pika.credentials.ExternalCredentials())
