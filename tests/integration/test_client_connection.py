"""Opening connections, and events during their life: TLS, heartbeats, blocking, timeouts, forks, threads."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import escrowmq.client as mq
from escrowmq.admin.socket.client import ask
from escrowmq.client import Connection, Properties
from escrowmq.wire.amqp091 import spec
from tests.broker import BrokerProcess, low_on_disk, running_broker, wait_until
from tests.certificates import Authority

MIB = 1 << 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[Connection]:
    with mq.connect(broker.url, timeout=20) as connection:
        yield connection


def test_a_wrong_password(broker: BrokerProcess) -> None:
    with pytest.raises(mq.AuthenticationError) as caught:
        mq.connect(broker.url, password="wrong")
    assert caught.value.code == 403
    assert isinstance(caught.value, mq.OperationalError)


def test_an_unknown_virtual_host(broker: BrokerProcess) -> None:
    with pytest.raises(mq.ConnectionClosed, match="nope") as caught:
        mq.connect(broker.url + "nope")
    assert caught.value.code == 530


def test_a_mechanism_that_is_not_offered(broker: BrokerProcess) -> None:
    with pytest.raises(mq.NotSupportedError, match="PLAIN"):
        mq.connect(broker.url, mechanism="EXTERNAL")


def test_the_client_identifies_itself(broker: BrokerProcess) -> None:
    with mq.connect(broker.url, name="the billing run", heartbeat=17) as connection:
        assert connection.server_properties["product"] == "EscrowMQ"
        assert connection.heartbeat == 17
        labels = [str(row) for row in ask(broker.data_dir, "connection.list")]
        assert any("the billing run" in label for label in labels)


def test_a_missing_server_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        start = time.monotonic()
        with pytest.raises(mq.Timeout, match="did not complete the login"):
            mq.connect(host="127.0.0.1", port=server.getsockname()[1], connection_timeout=0.3)
        assert 0.3 <= time.monotonic() - start < 10


def test_of_several_brokers_the_one_that_answers_is_taken(broker: BrokerProcess) -> None:
    nowhere = "amqp://guest:guest@127.0.0.1:1/"
    for urls in ([nowhere, broker.url], f"{nowhere} {broker.url}"):
        with mq.connect(urls) as connection:
            assert connection.is_open


def test_several_brokers_are_tried_until_the_time_is_over() -> None:
    nowhere = "amqp://guest:guest@127.0.0.1:1/"
    with pytest.raises(mq.ConnectionClosed):
        mq.connect([nowhere, nowhere], connection_timeout=0.5)


def test_a_broker_that_is_suspended_is_passed_over_soon(broker: BrokerProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as suspended:  # the system accepts, and nothing answers
        start = time.monotonic()
        nowhere = f"amqp://guest:guest@127.0.0.1:{suspended.getsockname()[1]}/"
        mq.connect([nowhere, broker.url]).close()
        assert time.monotonic() - start < 10  # of 15 s, its share of the time


def test_a_call_to_one_of_several_brokers_fails_soon_if_it_is_suspended(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, mq.connect([broker.url, broker.url]) as connection:
        assert connection.heartbeat == 3
        channel = connection.channel()
        broker.signal(signal.SIGSTOP)
        try:
            start = time.monotonic()
            with pytest.raises(mq.ConnectionClosed, match="heartbeat"):
                channel.queue_declare("late")
            assert time.monotonic() - start < 30  # of 60 s, the time limit of a call
        finally:
            broker.signal(signal.SIGCONT)


def test_a_wrong_password_is_wrong_for_all_brokers(broker: BrokerProcess) -> None:
    wrong = broker.url.replace("guest:guest", "guest:wrong")
    with pytest.raises(mq.AuthenticationError):
        mq.connect([wrong, broker.url])


def test_something_else_answers() -> None:
    def serve() -> None:
        accepted, _ = server.accept()
        with accepted:
            accepted.recv(8)
            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(mq.ConnectionClosed):
            mq.connect(host="127.0.0.1", port=server.getsockname()[1], connection_timeout=10)
        thread.join()


# -- TLS


class Secured:
    """A broker that listens with TLS, and an authority for certificates."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        certificate, key = self.authority.issue("server")
        config = folder / "broker.toml"
        config.write_text(
            "[listen]\ntls_address = '127.0.0.1:0'\n"
            f"[tls]\ncertificate = '{certificate}'\nkey = '{key}'\nca = '{self.authority.path}'\n"
            "verify_client = 'optional'\n"
        )
        self.broker = running_broker(folder, "--config", str(config))
        (url,) = [u for u in ask(self.broker.data_dir, "status")["listeners"] if u.startswith("amqps://")]
        self.port = int(url.rpartition(":")[2])


def test_tls(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    ca = f"cacertfile={secured.authority.path}"
    with secured.broker as broker:
        with mq.connect(f"amqps://localhost:{secured.port}?{ca}", timeout=20) as connection:
            channel = connection.channel()
            queue = channel.queue_declare("", exclusive=True).method.queue
            bodies = [os.urandom(5000) for _ in range(4000)]
            channel.confirm_delivery()
            channel.publish_many("", queue, bodies)
            consumer = channel.subscribe(queue, auto_ack=True)
            got: list[bytes] = []
            while len(got) < len(bodies):
                got += consumer.fetch().bodies
            assert got == bodies
        with pytest.raises(mq.ConnectionClosed, match=r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"):
            mq.connect(f"amqps://localhost:{secured.port}")
        mq.connect(f"amqps://localhost:{secured.port}?verify=verify_none").close()
        mq.connect(f"amqps://127.0.0.1:{secured.port}?{ca}&server_name_indication=localhost").close()
        with pytest.raises(mq.ConnectionClosed):
            mq.connect(f"amqp://127.0.0.1:{secured.port}")
        certificate, key = secured.authority.issue("alice")
        ask(broker.data_dir, "user.add", name="alice")
        ask(broker.data_dir, "permission.set", user="alice", vhost="/", configure=".*", write=".*", read=".*")
        url = f"amqps://localhost:{secured.port}?{ca}&certfile={certificate}&keyfile={key}&auth_mechanism=external"
        with mq.connect(url):
            assert [row["user"] for row in ask(broker.data_dir, "connection.list")] == ["alice"]
        context = ssl.create_default_context(cafile=str(secured.authority.path))
        mq.connect(host="localhost", port=secured.port, ssl_context=context).close()


# -- heartbeats


def test_heartbeats_while_it_waits(broker: BrokerProcess) -> None:
    with mq.connect(broker.url, heartbeat=3) as connection:
        consumer = connection.channel().subscribe(
            connection.channel().queue_declare("", exclusive=True).method.queue, auto_ack=True
        )
        assert len(consumer.fetch(timeout=8)) == 0
        assert connection.channel().is_open


def test_heartbeats_by_a_thread_while_the_program_does_other_things(broker: BrokerProcess) -> None:
    with mq.connect(broker.url, heartbeat=3, name="with thread", heartbeat_thread=True) as beating:
        idle = mq.connect(broker.url, heartbeat=3, name="without")

        def connected() -> str:
            return str(ask(broker.data_dir, "connection.list"))

        wait_until(lambda: "without" not in connected(), 60, "the end of the connection without heartbeats")
        assert "with thread" in connected()
        assert beating.channel().is_open
        with pytest.raises(mq.ConnectionClosed):
            idle.channel()
        idle.close()


def test_a_silent_broker_is_given_up(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        connection = mq.connect(broker.url, heartbeat=1, timeout=60)
        channel = connection.channel()
        broker.process.send_signal(signal.SIGSTOP)
        with pytest.raises(mq.ConnectionClosed, match="not even a heartbeat"):
            channel.queue_declare("q")
        broker.process.send_signal(signal.SIGCONT)
        connection.close()


# -- timeouts, blocking


def test_an_answer_after_the_timeout_is_dropped(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, mq.connect(broker.url, heartbeat=0) as connection:
        channel = connection.channel()
        broker.process.send_signal(signal.SIGSTOP)
        with pytest.raises(mq.Timeout, match=r"no answer to queue\.declare within 0\.2 s"):
            channel.queue_declare("first", timeout=0.2)
        broker.process.send_signal(signal.SIGCONT)
        assert channel.queue_declare("second").method.queue == "second"


def test_a_broker_that_does_not_read_is_waited_for_and_then_given_up(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, mq.connect(broker.url, heartbeat=0) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        broker.process.send_signal(signal.SIGSTOP)
        with pytest.raises(mq.Timeout, match=r"accepted no data for 0\.5 s"):
            channel.publish_many("", "q", [bytes(MIB)] * 100, timeout=0.5)
        broker.process.send_signal(signal.SIGCONT)
        with pytest.raises(mq.ConnectionClosed, match="gave up"):  # a part of a frame may have been sent
            channel.queue_declare("q")


def test_it_reads_while_it_writes(connection: Connection) -> None:
    """Otherwise both sides would wait for each other: the broker stops reading while its answers are not read."""
    channel = connection.channel()
    count = 60
    assert channel.publish_many("", "nowhere", [bytes(MIB)] * count, mandatory=True) == count
    channel.basic_qos()
    assert len(channel.take_returned()) == count


def test_a_refusal_stops_a_bulk_publish(connection: Connection) -> None:
    channel = connection.channel()
    with pytest.raises(mq.NotFound):
        channel.publish_many("no such exchange", "", (bytes(1000) for _ in range(10_000_000)))


def test_a_blocked_connection_waits_for_leave_to_publish(tmp_path: Path) -> None:
    config = tmp_path / "limits.toml"
    config.write_text(low_on_disk())
    with running_broker(tmp_path, "--config", str(config)) as broker, mq.connect(broker.url, timeout=60) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"kept back")
        connection.sleep(0)
        deadline = time.monotonic() + 20
        while connection.blocked is None:
            assert time.monotonic() < deadline
            connection.process_data_events(0.1)
        assert connection.blocked == "low on disk"
        with pytest.raises(mq.Timeout, match="low on disk"):
            channel.basic_publish("", "q", b"not sent", timeout=0.2)
        with pytest.raises(mq.Timeout, match=r"no answer to queue\.declare within 0\.2 s; the broker .*: low on disk"):
            channel.queue_declare("q", timeout=0.2)
        assert connection.is_open
        start = time.monotonic()
        connection.close()
        assert time.monotonic() - start < 20
        with mq.connect(broker.url, timeout=5) as another, pytest.raises(mq.Timeout, match=r"low on disk$"):
            another.channel().publish_many("", "q", [bytes(MIB)] * 40)


def test_an_unblocked_connection_publishes_again(connection: Connection) -> None:
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    connection.on_method(spec.ConnectionBlocked("low on nerves"), None)
    with pytest.raises(mq.Timeout, match="low on nerves"):
        channel.publish_many("", queue, [b"not sent"], timeout=0.1)
    connection.on_method(spec.ConnectionUnblocked(), None)
    channel.publish_many("", queue, [b"sent"])
    assert channel.basic_get(queue, auto_ack=True)[2] == b"sent"


# -- threads and processes


def test_a_child_process_is_refused_and_harms_nothing(connection: Connection) -> None:
    channel = connection.channel()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            channel.queue_declare("q")
        except mq.InterfaceError as error:
            os.write(write, str(error).encode())
        connection.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    text = os.read(read, 1000).decode()
    os.close(read)
    os.close(write)
    assert "was forked" in text
    assert channel.queue_declare("", exclusive=True)


def test_a_second_thread_is_refused_while_the_first_one_waits(connection: Connection) -> None:
    channel = connection.channel()
    consumer = channel.subscribe(channel.queue_declare("", exclusive=True).method.queue, auto_ack=True)

    def wait() -> None:
        while True:
            with suppress(mq.InterfaceError):  # the other thread was first
                consumer.fetch(timeout=60)
                return

    waiting = threading.Thread(target=wait)
    waiting.start()
    refused: list[str] = []

    def tried() -> bool:
        try:
            channel.queue_declare("", exclusive=True)
        except mq.InterfaceError as error:
            refused.append(str(error))
        return bool(refused)

    wait_until(tried)
    assert "another thread is using this connection" in refused[0]
    with mq.connect(f"amqp://127.0.0.1:{connection.parameters.port}") as other:
        other.channel().basic_publish("", consumer.queue, b"enough", Properties())
    waiting.join()
