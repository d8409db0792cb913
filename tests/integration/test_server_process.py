"""The real process: ready, restarted, refused, stopped, killed."""

from __future__ import annotations

import os
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pika
import pika.exceptions
import pytest

from escrowmq.admin.socket.client import ask
from tests.broker import BrokerProcess, running_broker, wait_until

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def connect(broker: BrokerProcess) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(broker.url))


def publish(broker: BrokerProcess, count: int, queue: str = "q") -> None:
    connection = connect(broker)
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    for i in range(count):
        channel.basic_publish("", queue, b"%d" % i, PERSISTENT)
    connection.close()


def drain(broker: BrokerProcess, queue: str = "q") -> list[bytes]:
    connection = connect(broker)
    channel = connection.channel()
    bodies = []
    while (got := channel.basic_get(queue))[0] is not None:
        channel.basic_ack(got[0].delivery_tag)
        bodies.append(got[2])
    connection.close()
    return bodies


def refused(*args: str) -> tuple[int, str]:
    """Return exit code and stderr of a broker that should not start."""
    done = subprocess.run(
        [sys.executable, "-m", "escrowmq", "serve", *args], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.rule("DUR-1")
@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_confirmed_messages_survive_a_restart(tmp_path: Path, end: str) -> None:
    with running_broker(tmp_path) as broker:
        publish(broker, 50)
        if end == "kill":
            broker.kill()
        else:
            assert broker.terminate() == 0
        broker.start()
        assert drain(broker) == [b"%d" % i for i in range(50)]


class WithoutUvloop(BrokerProcess):
    """Run the broker as if uvloop were not installed."""

    @property
    def command(self) -> list[str]:
        executable, _, _, *args = super().command
        code = "import sys; sys.modules['uvloop'] = None; from escrowmq.cli import main; sys.exit(main(sys.argv[1:]))"
        return [executable, "-c", code, *args]


def test_it_runs_without_uvloop_too(tmp_path: Path) -> None:
    with WithoutUvloop(tmp_path).start() as broker:
        assert ask(broker.data_dir, "status")["event_loop"] == "asyncio"
        publish(broker, 50)
        connection = connect(broker)
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "q", bytes(3 << 20), PERSISTENT)
        connection.close()
        broker.restart()
        assert [len(body) for body in drain(broker)][-1] == 3 << 20


def test_users_of_the_first_start_stay(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.restart()
        connect(broker).close()
        assert broker.log().count("first start") == 1


def test_sigterm_lets_clients_finish_and_leaves_a_snapshot(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        publish(broker, 10)
        connection = connect(broker)
        broker.signal(signal.SIGTERM)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as raised:
            connection.sleep(30)
        assert raised.value.reply_code == 320
        assert broker.wait() == 0
        assert list(broker.data_dir.glob("*.snapshot"))
        assert not (broker.data_dir / "admin.sock").exists()
        broker.start()
        assert "with 6 records, 0 records in 0 frames replayed" in broker.log()
        assert len(drain(broker)) == 10


def test_a_client_that_does_not_answer_cannot_keep_the_broker(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, socket.create_connection(("127.0.0.1", broker.port), timeout=30) as deaf:
        deaf.sendall(b"AMQP\x00\x00\x09\x01")
        assert deaf.recv(7)
        assert broker.terminate() == 0


def test_a_second_signal_hurries(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        connection = connect(broker)  # which is not serviced, so it does not close
        broker.signal(signal.SIGINT)
        wait_until(lambda: "SIGINT: stopping" in broker.log())
        broker.signal(signal.SIGINT)
        assert broker.wait() == 0
        assert "stopping, at once" in broker.log()
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connection.process_data_events(30)


def test_a_second_start_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        for port in (0, broker.port):
            code, error = refused("--data-dir", str(broker.data_dir), "--listen", f"127.0.0.1:{port}")
            assert code == 1
            assert error.splitlines()[-1] == (
                f"escrowmq: data directory {broker.data_dir} is in use by process {broker.pid}; "
                "stop that process, or choose another --data-dir"
            )


def test_a_port_in_use_is_refused_with_its_name(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        address = f"127.0.0.1:{broker.port}"
        code, error = refused("--data-dir", str(tmp_path / "other"), "--listen", address)
        assert code == 1
        assert error == (
            f"escrowmq: cannot listen on {address}: Address already in use; stop the program that listens there, "
            "or choose another port (--listen, or listen.address in the file of --config)\n"
        )
        assert not (tmp_path / "other").exists()


def test_tls_files_that_are_not_there_are_a_fault_of_the_configuration(tmp_path: Path) -> None:
    toml = tmp_path / "broker.toml"
    toml.write_text(
        'data_dir = "data"\n[listen]\naddress = "127.0.0.1:0"\ntls_address = "127.0.0.1:0"\n'
        '[tls]\ncertificate = "no.pem"\nkey = "no.key"\n'
    )
    code, error = refused("--config", str(toml))
    assert code == 2
    assert error == (
        f"escrowmq: {toml}: tls.certificate: expected a certificate chain in PEM; "
        f"{tmp_path / 'no.pem'}: No such file or directory\n"
    )
    assert not (tmp_path / "data").exists()


@pytest.mark.rule("DUR-3")
def test_a_damaged_journal_is_refused_with_file_offset_and_advice(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        publish(broker, 50)
        broker.kill()
        (segment,) = broker.data_dir.glob("*.log")
        data = bytearray(segment.read_bytes())
        data[300] ^= 1
        segment.write_bytes(data)
        code, error = refused("--data-dir", str(broker.data_dir), "--listen", "127.0.0.1:0")
        assert code == 1
        last = error.splitlines()[-1]
        assert last.startswith(f"escrowmq: journal damaged: {segment.name} at offset ")
        assert f"escrowmq inspect {broker.data_dir}" in last
        assert segment.read_bytes() == data, "nothing was changed"


def test_the_data_is_for_its_owner_only(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        assert stat.S_IMODE(broker.data_dir.stat().st_mode) == 0o700
        assert stat.S_IMODE((broker.data_dir / "admin.sock").stat().st_mode) == 0o600
        assert "accessible to others" not in broker.log()


def test_in_a_directory_that_others_may_enter_files_are_private_and_it_warns(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    with running_broker(tmp_path) as broker:
        assert broker.terminate() == 0
        assert {path.suffix for path in data.iterdir()} >= {".log", ".snapshot"}
        assert {stat.S_IMODE(path.stat().st_mode) for path in data.iterdir()} == {0o600}
        assert f"the data directory {data} is accessible to others (mode 0755)" in broker.log()


@pytest.mark.rule("DUR-2")
def test_a_disk_that_is_full_ends_the_process_without_an_answer(tmp_path: Path) -> None:
    """A limit on the size of files makes a write fail like a full disk."""
    with running_broker(tmp_path) as broker:
        publish(broker, 1)
        connection = connect(broker)
        channel = connection.channel()
        channel.confirm_delivery()
        limit_files(broker.pid, 1 << 20)
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            publish_for_ever(channel)
        assert broker.wait() == 70
        assert "the journal cannot be written" in broker.log()
        broker.start()
        assert drain(broker)[0] == b"0"


def publish_for_ever(channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
    for _ in range(100):
        channel.basic_publish("", "q", bytes(100_000), PERSISTENT)


def limit_files(pid: int, size: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize(
    ("request_", "answer"),
    [(b"EHLO localhost\r\n", b"AMQP\x00\x00\x09\x01"), (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 ")],
)
def test_an_unknown_protocol_is_answered_in_its_family(tmp_path: Path, request_: bytes, answer: bytes) -> None:
    with running_broker(tmp_path) as broker, socket.create_connection(("127.0.0.1", broker.port), timeout=30) as client:
        client.sendall(request_)
        received = b""
        while data := client.recv(100):
            received += data
        assert received.startswith(answer)


def test_a_connection_over_the_limit_is_closed_at_once(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("[limits]\nconnections = 2\n")
    with running_broker(tmp_path, "--config", str(config)) as broker:
        first, second = connect(broker), connect(broker)
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connect(broker)
        first.close()
        wait_until(lambda: broker.log().count("closed 127.0.0.1") >= 1)
        connect(broker).close()
        second.close()


def test_a_client_that_does_not_log_in_is_disconnected(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('[limits]\nunauthenticated_seconds = "500ms"\n')
    with running_broker(tmp_path, "--config", str(config)) as broker:
        sockets = [socket.create_connection(("127.0.0.1", broker.port), timeout=30) for _ in range(2)]
        sockets[1].sendall(b"AMQP\x00\x00\x09\x01")
        for client in sockets:
            with client:
                data = b"x"
                while data:
                    try:
                        data = client.recv(4096)
                    except ConnectionResetError:
                        break


def test_a_reader_that_does_not_read_costs_no_memory(tmp_path: Path) -> None:
    """A consumer without prefetch limit and with auto-ack that stops reading gets no more than the buffers take."""
    with running_broker(tmp_path) as broker:
        connection = connect(broker)
        channel = connection.channel()
        channel.queue_declare("big", durable=True)
        channel.confirm_delivery()
        for _ in range(64):
            channel.basic_publish("", "big", bytes(1 << 20), PERSISTENT)
        reader = connect(broker)
        reader.channel().basic_consume("big", lambda *_: None, auto_ack=True)  # and never serviced again
        left = channel.queue_declare("big", passive=True).method.message_count
        assert left > 32
        connection.close()


def test_the_descriptor_of_a_reset_connection_is_given_back(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        folder = Path(f"/proc/{broker.pid}/fd")
        if not folder.exists():
            pytest.skip("needs /proc")
        connect(broker).close()
        before = len(os.listdir(folder))
        for _ in range(20):
            client = socket.create_connection(("127.0.0.1", broker.port), timeout=30)
            client.sendall(b"AMQP\x00\x00\x09\x01")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        connect(broker).close()  # the broker accepts connections in order, so it has accepted all of these
        wait_until(lambda: len(os.listdir(folder)) <= before)


class FewFiles(BrokerProcess):
    """A broker for which the system allows at most 260 open files."""

    @property
    def command(self) -> list[str]:
        return ["sh", "-c", 'ulimit -n 260; exec "$@"', "sh", *super().command]


def test_connections_cannot_take_the_files_that_the_journal_needs(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('[journal]\nsegment_bytes = "1MiB"\n')
    with FewFiles(tmp_path, "--config", str(config)).start() as broker:
        publisher = connect(broker)
        channel = publisher.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        strangers = [socket.create_connection(("127.0.0.1", broker.port), timeout=30) for _ in range(300)]
        for _ in range(50):
            channel.basic_publish("", "q", b"x" * 100_000, PERSISTENT)
        assert ask(broker.data_dir, "status")["journal"]["segments"] >= 4
        for stranger in strangers:
            stranger.close()
        publisher.close()
        assert broker.terminate() == 0
