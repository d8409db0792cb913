"""The HTTP process beside a real broker."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pika
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from escrowmq.admin.socket.client import ask
from escrowmq.amqp10 import Message
from escrowmq.amqp10 import connect as one_point_zero
from escrowmq.amqp10 import queue as node
from escrowmq.wire.amqp010.codec.spec import CreditUnit, MessageFlow, MessageSubscribe, QueueDeclare
from escrowmq.wire.amqp010.credit import INFINITE
from tests.broker import BrokerProcess, running_broker, wait_until
from tests.certificates import Authority
from tests.harness.amqp010_client import SocketClient
from tests.ports import reserve_port


class Owner:
    """Holds a reserved port for as long as it lives."""


class HttpBroker(NamedTuple):
    """A broker, and the port of its HTTP process."""

    broker: BrokerProcess
    port: int

    def get(self, path: str, user: str = "guest:guest") -> tuple[int, bytes]:
        """Return the status and the body of an answer; without `user`, ask without a login."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": "Basic " + base64.b64encode(user.encode()).decode()} if user else {}
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def answers(self) -> bool:
        try:
            return self.get("/health", "")[0] == 200
        except OSError:
            return False

    @property
    def process(self) -> psutil.Process:
        """The HTTP process."""
        (found,) = psutil.Process(self.broker.pid).children()
        return found


@contextlib.contextmanager
def started(folder: Path, *args: str) -> Iterator[HttpBroker]:
    """Start a broker with its HTTP process, and with more arguments."""
    owner = Owner()
    port = reserve_port(owner)
    with running_broker(folder, "--http", f"127.0.0.1:{port}", *args) as broker:
        found = HttpBroker(broker, port)
        wait_until(found.answers)
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpBroker]:
    with started(tmp_path_factory.mktemp("http")) as found:
        yield found


def connect(site: HttpBroker) -> Any:
    return pika.BlockingConnection(pika.URLParameters(site.broker.url))


def test_a_scrape_shows_what_clients_did(site: HttpBroker) -> None:
    with connect(site) as connection:
        channel = connection.channel()
        channel.queue_declare("scraped", durable=True)
        channel.confirm_delivery()
        for _ in range(3):
            channel.basic_publish("", "scraped", b"x", pika.BasicProperties(delivery_mode=2))
        channel.basic_get("scraped", auto_ack=True)
        status, body = site.get("/metrics")
        samples = {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }
        assert status == 200
        assert samples["rabbitmq_global_messages_confirmed_total", "amqp091"] == 3
        assert samples["rabbitmq_global_messages_delivered_get_auto_ack_total",] == 1
        assert samples["rabbitmq_connections",] == 1
        assert samples["escrowmq_journal_sync_seconds_count",] > 0
    status, body = site.get("/metrics/detailed?family=queue_coarse_metrics&vhost=%2F")
    assert b'rabbitmq_detailed_queue_messages{queue="scraped",vhost="/"} 2.0' in body


@contextlib.contextmanager
def amqp091(site: HttpBroker, queue: str) -> Iterator[None]:
    """A client that has published a message, and consumes it without an acknowledgement."""
    with connect(site) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=2))
        channel.basic_consume(queue, lambda *_: None)
        yield


@contextlib.contextmanager
def amqp010(site: HttpBroker, queue: str) -> Iterator[None]:
    with SocketClient(site.broker.port) as client:
        client.do(QueueDeclare(queue, durable=True))
        client.publish(queue, b"x")
        client.do(MessageSubscribe(queue, queue, accept_mode=0, acquire_mode=0))
        client.do(MessageFlow(queue, CreditUnit.BYTE, INFINITE))
        client.do(MessageFlow(queue, CreditUnit.MESSAGE, 1))
        yield


@contextlib.contextmanager
def amqp10(site: HttpBroker, queue: str) -> Iterator[None]:
    with connect(site) as declaring:
        declaring.channel().queue_declare(queue, durable=True)
    with one_point_zero(site.broker.url, timeout=60) as connection:
        connection.sender(node(queue)).send(Message(b"x"))
        assert connection.receiver(node(queue)).receive().body == b"x"
        yield


CLIENTS: dict[str, Any] = {"AMQP 0-9-1": amqp091, "AMQP 0-10": amqp010, "AMQP 1.0": amqp10}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_of_every_protocol_is_in_all_lists_and_counted(site: HttpBroker, name: str) -> None:
    client = CLIENTS[name]
    queue = client.__name__

    def rows(path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(site.get(f"/api/{path}")[1])
        return found

    with client(site, queue):
        (connection,) = [row for row in rows("connections") if row["protocol"] == name]
        channels = f"connections/{quote(connection['name'], safe='')}/channels"
        assert (connection["user"], connection["vhost"]) == ("guest", "/")
        wait_until(lambda: any(row["messages_unacknowledged"] == 1 for row in rows(channels)))
        (channel,) = [row for row in rows(channels) if row["messages_unacknowledged"]]
        assert channel["consumer_count"] == 1
        (consumer,) = [row for row in rows("consumers") if row["queue"]["name"] == queue]
        assert (consumer["channel_details"]["name"], consumer["ack_required"]) == (channel["name"], True)
        (row,) = ask(site.broker.data_dir, "channel.list", peer=connection["name"])[:1]
        assert row["age_ms"] is not None
        metrics = site.get("/metrics")[1].decode()
        assert f'rabbitmq_global_messages_received_total{{protocol="{queue}"}}' in metrics
        assert f'rabbitmq_global_messages_confirmed_total{{protocol="{queue}"}}' in metrics


def test_the_journal_and_the_lives_of_messages_are_read_beside_the_broker(site: HttpBroker) -> None:
    with connect(site) as connection:
        channel = connection.channel()
        channel.queue_declare("told", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "told", b"x", pika.BasicProperties(delivery_mode=2, message_id="told-1"))

    def told() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(site.get("/api/escrow/messages?id=told-1")[1])["messages"]
        return found

    wait_until(told)
    ((moment,),) = [message["life"] for message in told()]
    records = json.loads(site.get(f"/api/escrow/journal?from={moment['lsn']}&kind=publish")[1])
    assert [record["lsn"] for record in records["records"]] == [moment["lsn"]]
    assert records["damage"] == []


def test_the_http_address_is_one_of_the_listeners(site: HttpBroker) -> None:
    listeners = json.loads(site.get("/api/overview")[1])["listeners"]
    assert [each["port"] for each in listeners if each["protocol"] == "http"] == [site.port]
    assert f"http://127.0.0.1:{site.port}" in ask(site.broker.data_dir, "status")["listeners"]
    assert site.get("/api/health/checks/protocol-listener/http")[0] == 200


def test_a_login_is_checked_by_the_broker_and_a_refusal_is_logged(site: HttpBroker) -> None:
    assert json.loads(site.get("/api/whoami")[1])["name"] == "guest"
    assert site.get("/api/whoami", "guest:wrong")[0] == 401
    assert site.get("/api/whoami", "nobody:x")[0] == 401
    log = site.broker.log()
    for user in ("guest", "nobody"):
        assert re.search(f"login of user '{user}' over HTTP from 127.0.0.1:[1-9][0-9]+ refused", log)
    assert site.get("/api/whoami", "")[0] == 401


def test_the_http_process_leaves_the_processors_to_the_broker(site: HttpBroker) -> None:
    assert site.process.nice() > psutil.Process(site.broker.pid).nice()


def test_an_http_process_that_is_killed_starts_again(site: HttpBroker) -> None:
    before = site.process
    before.kill()
    wait_until(lambda: not before.is_running() and site.answers())
    assert site.process.pid != before.pid
    assert "the HTTP process ended with status -9" in site.broker.log()


def test_the_http_process_ends_with_a_broker_that_is_killed(tmp_path: Path) -> None:
    with started(tmp_path) as found:
        process = found.process
        os.kill(found.broker.pid, signal.SIGKILL)
        found.broker.wait()
        wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)


def test_clients_that_do_not_read_neither_keep_the_http_process_nor_delay_the_next_broker(tmp_path: Path) -> None:
    with started(tmp_path) as found, contextlib.ExitStack() as clients:
        for number in range(300):
            arguments = {"note": "x" * 16_000}
            ask(found.broker.data_dir, "queue.declare", vhost="/", name=f"q{number}", arguments=arguments)
        login = base64.b64encode(b"guest:guest").decode()
        for path in ["/api/queues", "/api/escrow/events", "/api/definitions"] * 3:
            sock = clients.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", found.port))
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {login}\r\n\r\n".encode())
            assert sock.recv(12) == b"HTTP/1.1 200"
        before = found.process
        found.broker.kill()
        found.broker.start()
        wait_until(found.answers)
        wait_until(lambda: not before.is_running() or before.status() == psutil.STATUS_ZOMBIE)
        assert found.process.pid != before.pid


def send_nonsense(site: HttpBroker) -> None:
    """Send a request that is invalid, which the HTTP process logs, and await the answer."""
    with socket.create_connection(("127.0.0.1", site.port), timeout=60) as sock:
        sock.sendall(b"nonsense\r\n\r\n")
        assert b" 400 " in sock.recv(1000)


def test_the_http_process_logs_as_the_broker_does_also_after_a_reload(tmp_path: Path) -> None:
    settings = tmp_path / "broker.toml"
    settings.write_text('[log]\nformat = "json"\n')
    with started(tmp_path, "--config", str(settings)) as found:
        send_nonsense(found)
        wait_until(lambda: "Invalid HTTP request" in found.broker.log())
        told = [json.loads(line) for line in found.broker.log().splitlines()]
        assert [line["level"] for line in told if line["logger"] == "uvicorn.error"] == ["warning"]
        assert not [line for line in told if line["logger"] == "asyncio"]
        settings.write_text('[log]\nformat = "text"\n')
        found.broker.signal(signal.SIGHUP)
        wait_until(lambda: "the configuration was reloaded" in found.broker.log())
        send_nonsense(found)
        wait_until(lambda: "Z warning uvicorn.error: Invalid HTTP request received." in found.broker.log())


def test_https_with_a_certificate_that_is_renewed(tmp_path: Path) -> None:
    authority, owner = Authority(tmp_path), Owner()
    certificate, key = authority.issue("localhost")
    port = reserve_port(owner)
    settings = tmp_path / "broker.toml"
    settings.write_text(
        f"[tls]\ncertificate = '{certificate}'\nkey = '{key}'\n[http]\ntls = true\naddress = '127.0.0.1:{port}'\n"
    )
    context = ssl.create_default_context(cafile=str(authority.path))

    def serial() -> object:
        """Return the serial number of the certificate; None while the process does not answer."""
        connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=context)
        try:
            connection.request("GET", "/health")
            found = connection.sock.getpeercert()
            assert found is not None
            return found["serialNumber"] if connection.getresponse().status == 200 else None
        except OSError:
            return None
        finally:
            connection.close()

    with running_broker(tmp_path, "--config", str(settings)) as broker:
        wait_until(lambda: serial() is not None)
        first = serial()
        with pytest.raises((OSError, http.client.HTTPException)):
            HttpBroker(broker, port).get("/health", "")
        assert authority.issue("localhost") == (certificate, key)
        broker.signal(signal.SIGHUP)
        wait_until(lambda: serial() not in (None, first))


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_signals_of_a_terminal_do_not_end_the_http_process(site: HttpBroker, number: signal.Signals) -> None:
    process = site.process
    process.send_signal(number)
    assert os.getpgid(process.pid) != os.getpgid(site.broker.pid)
    assert site.answers()
    assert site.process.pid == process.pid


def test_a_broker_that_is_interrupted_ends_its_http_process_in_order(tmp_path: Path) -> None:
    with started(tmp_path) as found:
        process = found.process
        found.broker.signal(signal.SIGINT)
        assert found.broker.wait() == 0
        assert not process.is_running()
        assert "the HTTP process ended" not in found.broker.log()
        assert "Traceback" not in found.broker.log()


def test_health_of_a_frozen_broker_is_refused_within_seconds(tmp_path: Path) -> None:
    with started(tmp_path) as found:
        found.broker.signal(signal.SIGSTOP)
        began = time.monotonic()
        try:
            assert found.get("/health", "")[0] == 503
            assert time.monotonic() - began < 20
        finally:
            found.broker.signal(signal.SIGCONT)
        assert found.answers()


def test_a_missing_extra_is_one_clear_line(tmp_path: Path) -> None:
    hiding = "import sys; sys.modules['uvicorn'] = None; from escrowmq.cli import main; sys.exit(main(sys.argv[1:]))"
    command = ["serve", "--data-dir", str(tmp_path / "d"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    done = subprocess.run([sys.executable, "-c", hiding, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == ("escrowmq: http.address (--http): uvicorn is not installed: pip install 'escrowmq[http]'\n")
    assert not (tmp_path / "d").exists()


@pytest.mark.rule("SEC-4")
def test_invalid_requests_do_not_fill_the_log_and_guesses_are_refused(site: HttpBroker) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", site.port), 10) as sock:
            sock.sendall(b"nonsense\r\n\r\n")
            assert b"400 Bad Request" in sock.recv(1000)
    assert 0 < site.broker.log().count("Invalid HTTP request received") <= 5
    began = time.monotonic()
    for guess in range(7):
        assert site.get("/api/whoami", f"guest:{guess}")[0] == 401
    assert time.monotonic() - began > 2
    assert site.get("/api/whoami")[0] == 200


def test_events_are_told_as_they_happen_and_after_a_restart(tmp_path: Path) -> None:
    with started(tmp_path) as site:
        listener = Listener(site)
        with connect(site) as connection:
            connection.channel().queue_declare("first", durable=True)
        heard = [listener.next() for _ in range(3)]
        assert {name for name, _, _ in heard} == {"CONNECTION_OPENED", "QUEUE_DECLARED", "CONNECTION_CLOSED"}
        opened = next(fields for name, fields, _ in heard if name == "CONNECTION_OPENED")
        assert (opened["user"], opened["vhost"], opened["tls"]) == ("guest", "/", False)
        ident = heard[-1][2]
        with connect(site) as connection:
            connection.channel().queue_declare("second", durable=True)
        listener.close()
        site.broker.kill()
        site.broker.start()
        wait_until(site.answers)
        listener = Listener(site, ident)
        names = {name: fields for name, fields, _ in (listener.next() for _ in range(2))}
        assert names.keys() == {"restarted", "QUEUE_DECLARED"}
        assert names["QUEUE_DECLARED"]["name"] == "second"
        listener.close()


class Listener:
    """Reads server-sent events."""

    def __init__(self, site: HttpBroker, seen: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
        headers = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
        self._connection.request(
            "GET", "/api/escrow/events", headers=headers | ({"Last-Event-ID": seen} if seen else {})
        )
        self._answer = self._connection.getresponse()
        assert self._answer.headers["Content-Type"].startswith("text/event-stream")
        assert self._answer.readline() == b"retry: 2000\n"  # from here on everything is told

    def next(self) -> tuple[str, Any, str]:
        """Return name, fields and id of the next event."""
        found: dict[str, str] = {}
        while "data" not in found:
            name, _, value = self._answer.readline().decode().rstrip("\n").partition(": ")
            found[name] = value
        return found["event"], json.loads(found["data"]), found["id"]

    def close(self) -> None:
        self._connection.close()
