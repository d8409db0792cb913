"""TLS with and without client certificates."""

from __future__ import annotations

import re
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pika
import pika.exceptions
import pytest
from pika.credentials import ExternalCredentials

from escrowmq.admin.socket.client import ask
from escrowmq.wire.amqp010.codec.commands import decode_header, encode_header
from escrowmq.wire.amqp010.codec.spec import (
    CreditUnit,
    DeliveryProperties,
    ErrorCode,
    ExecutionException,
    MessageFlow,
    MessageProperties,
    MessageSubscribe,
    MessageTransfer,
    QueueDeclare,
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionDetach,
)
from escrowmq.wire.amqp010.credit import INFINITE
from tests.broker import BrokerProcess, running_broker, wait_until
from tests.certificates import Authority
from tests.harness.amqp010_client import FRAME_MAX, SocketLink, command_frames


class Secured:
    """A broker with a TLS listener, an authority, and the files that clients need."""

    def __init__(self, folder: Path, verify: Literal["none", "optional", "required"]) -> None:
        self.authority = Authority(folder)
        certificate, key = self.authority.issue("server")
        config = folder / "broker.toml"
        config.write_text(
            "[listen]\ntls_address = '127.0.0.1:0'\n"
            f"[tls]\ncertificate = '{certificate}'\nkey = '{key}'\nca = '{self.authority.path}'\n"
            f"verify_client = '{verify}'\n"
        )
        self.broker: BrokerProcess = running_broker(folder, "--config", str(config))
        (url,) = [u for u in ask(self.broker.data_dir, "status")["listeners"] if u.startswith("amqps://")]
        self.port = int(url.rpartition(":")[2])

    def connect(
        self,
        certificate: tuple[Path, Path] | None = None,
        credentials: ExternalCredentials | pika.PlainCredentials | None = None,
    ) -> pika.BlockingConnection:
        context = ssl.create_default_context(cafile=str(self.authority.path))
        if certificate is not None:
            context.load_cert_chain(*certificate)
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1",
                self.port,
                ssl_options=pika.SSLOptions(context, "localhost"),
                credentials=credentials or pika.PlainCredentials("guest", "guest"),
            )
        )


def test_messages_pass_through_tls(tmp_path: Path) -> None:
    secured = Secured(tmp_path, "none")
    with secured.broker as broker:
        connection = secured.connect()
        channel = connection.channel()
        channel.queue_declare("q")
        channel.confirm_delivery()
        body = bytes(range(256)) * 4096
        channel.basic_publish("", "q", body)
        assert channel.basic_get("q", auto_ack=True)[2] == body
        (told,) = ask(broker.data_dir, "connection.list")
        assert told["tls"] is True
        connection.close()


def test_a_websocket_passes_through_tls(tmp_path: Path) -> None:
    wsproto = pytest.importorskip("wsproto")
    secured = Secured(tmp_path, "none")
    context = ssl.create_default_context(cafile=str(secured.authority.path))
    client = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
    host = f"localhost:{secured.port}"
    request = wsproto.events.Request(
        host=host, target="/", subprotocols=["amqp"], extra_headers=[(b"origin", f"https://{host}".encode())]
    )
    with (
        secured.broker,
        socket.create_connection(("127.0.0.1", secured.port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        sock.sendall(client.send(request))
        heard: list[object] = []
        while not any(isinstance(each, wsproto.events.BytesMessage) for each in heard):
            client.receive_data(sock.recv(4096))
            for event in client.events():
                heard.append(event)
                if isinstance(event, wsproto.events.AcceptConnection):
                    sock.sendall(client.send(wsproto.events.BytesMessage(b"AMQP\x03\x01\x00\x00")))
        assert b"PLAIN" in heard[-1].data  # type: ignore[attr-defined]


def test_headers_of_amqp010_pass_through_tls_in_records_of_any_size(tmp_path: Path) -> None:
    """A header of 60 KB in records of a whole frame, of a few octets, and in one that cuts frames in their heads."""
    secured = Secured(tmp_path, "none")
    headers = {f"name {number}": "\u00e4" * 120 for number in range(230)}
    properties: list[Any] = [
        DeliveryProperties(routing_key="q", delivery_mode=2),
        MessageProperties(application_headers=headers),
    ]
    with secured.broker:
        context = ssl.create_default_context(cafile=str(secured.authority.path))
        link = SocketLink(secured.port, context=context)
        link.control(SessionAttach(b"tls"))
        link.expect(SessionAttached)
        link.control(SessionCommandPoint(0, 0))
        link.send(command_frames(QueueDeclare("q")))
        for frame_max, record in ((FRAME_MAX, FRAME_MAX), (FRAME_MAX, 97), (512, 16_000)):
            octets = command_frames(MessageTransfer("", 1, 0), encode_header(properties), b"body", frame_max)
            for at in range(0, len(octets), record):
                link.send(octets[at : at + record])
        link.send(command_frames(MessageSubscribe("q", "q", accept_mode=1, acquire_mode=0)))
        for unit in CreditUnit:
            link.send(command_frames(MessageFlow("q", unit, INFINITE)))
        found: list[Any] = []
        while len(found) < 3:
            received = link.receive()
            if isinstance(received.operation, MessageTransfer):
                structs = decode_header(received.header)
                found += [each.application_headers for each in structs if isinstance(each, MessageProperties)]
        assert found == [headers] * 3
        large = MessageProperties(application_headers={f"{number}": "x" * 1000 for number in range(70)})
        link.send(command_frames(MessageTransfer("", 1, 0), encode_header([large]), b""))
        while not isinstance(refused := link.receive().operation, ExecutionException):
            pass
        assert refused.error_code == ErrorCode.RESOURCE_LIMIT_EXCEEDED
        link.expect(SessionDetach)
        link.control(SessionAttach(b"another session of this connection"), 2)
        assert link.receive().operation == SessionAttached(b"another session of this connection")


def test_external_takes_the_user_from_the_certificate(tmp_path: Path) -> None:
    secured = Secured(tmp_path, "optional")
    with secured.broker as broker:
        ask(broker.data_dir, "user.add", name="alice")
        ask(broker.data_dir, "permission.set", user="alice", vhost="/", configure=".*", write=".*", read=".*")
        connection = secured.connect(secured.authority.issue("alice"), ExternalCredentials())
        (told,) = ask(broker.data_dir, "connection.list")
        assert told["user"] == "alice"
        connection.close()
        secured.connect().close()  # no certificate, but a password
        with pytest.raises(pika.exceptions.AuthenticationError):  # without a certificate it is not offered
            secured.connect(None, ExternalCredentials())
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            secured.connect(secured.authority.issue("mallory"), ExternalCredentials())


def test_a_certificate_may_be_required_and_must_be_of_our_authority(tmp_path: Path) -> None:
    secured = Secured(tmp_path, "required")
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other", "other authority").issue("alice")
    with secured.broker:
        secured.connect(secured.authority.issue("alice")).close()
        for certificate in (None, stranger):
            with pytest.raises(pika.exceptions.AMQPConnectionError):
                secured.connect(certificate)


def test_plain_text_on_the_tls_port_affects_no_other_client(tmp_path: Path) -> None:
    secured = Secured(tmp_path, "none")
    with secured.broker:
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", secured.port))
        secured.connect().close()


def test_it_is_ready_on_both_addresses_with_the_whole_path_of_its_data(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("server")
    (tmp_path / "broker.toml").write_text(
        "data_dir = 'data'\n[listen]\naddress = '127.0.0.1:0'\ntls_address = '127.0.0.1:0'\n"
        f"[tls]\ncertificate = '{certificate}'\nkey = '{key}'\n"
    )
    command = [sys.executable, "-m", "escrowmq", "serve", "--config", "broker.toml"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            for scheme in ("amqp", "amqps"):
                line = process.stdout.readline()
                assert re.fullmatch(rf"ready {scheme}://127\.0\.0\.1:\d+ data={tmp_path}/data\n", line)
        finally:
            process.terminate()


def presented(port: int) -> bytes:
    """Return the certificate that the broker presents, as in the file."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=30).encode()


def test_a_signal_renews_the_certificate_for_new_connections(tmp_path: Path) -> None:
    secured = Secured(tmp_path, "none")
    with secured.broker as broker:
        before = presented(secured.port)
        assert before == (tmp_path / "server.pem").read_bytes()
        connection = secured.connect()
        secured.authority.issue("server")  # in the same files
        assert presented(secured.port) == before
        broker.signal(signal.SIGHUP)
        wait_until(lambda: presented(secured.port) == (tmp_path / "server.pem").read_bytes(), what="the certificate")
        connection.channel().queue_declare("of the first connection")
        (tmp_path / "server.key").write_text("damaged")
        broker.signal(signal.SIGHUP)
        wait_until(
            lambda: "was not reloaded, because it has a fault: tls.certificate" in broker.log(), what="the fault"
        )
        secured.connect().close()
        connection.close()


def test_a_signal_changes_the_level_of_the_log_and_names_what_needs_a_restart(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("log.level = 'warning'\n")
    with running_broker(tmp_path, "--config", str(config)) as broker:
        config.write_text("log.level = 'info'\nlimits.connections = 7\n")
        broker.signal(signal.SIGHUP)
        wait_until(lambda: "the configuration was reloaded" in broker.log(), what="the line in the log")
        assert "take effect at the next start: limits.connections" in broker.log()
