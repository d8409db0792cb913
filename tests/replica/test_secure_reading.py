"""A standby that is reached over TLS: the copy that serves reads is told who the client is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from escrowmq.admin.socket.client import ask
from escrowmq.client import AuthenticationError, Connection, ConnectionClosed, connect
from escrowmq.client.escrow import Escrow
from escrowmq.client.reads import PLAN, PROPERTY, STANDBY
from tests.certificates import Authority
from tests.engines.nats_nodes import NatsNodes
from tests.ports import reserve_port
from tests.replicas import ReplicaBroker, ReplicaBrokers, standby_of

pytestmark = pytest.mark.skipif(NatsNodes.missing() is not None, reason=str(NatsNodes.missing()))

SIZE, COUNT = 100_000, 30
"""Of the messages of the stream, which are more than what fits into the buffers between the processes."""


class SecureNode:
    """The address of a node with TLS, and its options for that."""

    def __init__(self, node: ReplicaBroker, folder: Path, authority: Authority) -> None:
        self.port = reserve_port(self)
        self._authority = authority
        certificate, key = authority.issue("server")
        config = folder / f"{node.node}.toml"
        config.write_text(
            f"[listen]\ntls_address = '127.0.0.1:{self.port}'\n"
            f"[tls]\ncertificate = '{certificate}'\nkey = '{key}'\nca = '{authority.path}'\n"
            "verify_client = 'optional'\n"
        )
        node.args = (*node.args, "--config", str(config))

    def connect(self, *, login: str = "guest:guest@", user: str = "", reads: bool = True) -> Connection:
        """Connect with a password, or with the certificate of `user`."""
        given = {"cacertfile": self._authority.path}
        if user:
            given["certfile"], given["keyfile"] = self._authority.issue(user)
        query = "&".join(f"{name}={quote(str(path))}" for name, path in given.items())
        if user:
            query += "&auth_mechanism=external"
        url = f"amqps://{'' if user else login}127.0.0.1:{self.port}/?{query}"
        return connect(url, client_properties={PROPERTY: PLAN} if reads else {})


@pytest.fixture(scope="module")
def standby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    folder = tmp_path_factory.mktemp("secure")
    authority = Authority(folder)
    with NatsNodes(folder / "engine", 1) as engine:
        brokers = ReplicaBrokers(folder, engine.url("secure"), 2)
        secure = {node: SecureNode(node, folder, authority) for node in brokers.nodes}
        with brokers:
            leader = brokers.leader()
            ask(leader.data_dir, "user.add", name="reader", password="r")
            ask(leader.data_dir, "permission.set", vhost="/", user="reader", configure="", write="", read=".*")
            with secure[leader].connect(reads=False) as connection:
                channel = connection.channel()
                channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
                channel.confirm_delivery()
                for number in range(COUNT):
                    channel.basic_publish("", "s", bytes([number]) * SIZE)
            yield secure[standby_of(brokers)]


def test_large_messages_are_read(standby: SecureNode) -> None:
    with standby.connect() as connection:
        assert connection.server_properties[STANDBY] is True
        blocks = Escrow(connection).blocks("s", "", 1, COUNT + 1)
        bodies = [message.body for block in blocks for message in block.bulk.messages()]
        assert bodies == [bytes([number]) * SIZE for number in range(COUNT)]


def test_the_certificate_names_the_user(standby: SecureNode) -> None:
    with standby.connect(user="reader") as connection:
        assert Escrow(connection).describe("s")[0].next == COUNT + 1
    with pytest.raises(AuthenticationError):
        standby.connect(user="stranger")


def test_a_wrong_password_is_refused(standby: SecureNode) -> None:
    with pytest.raises(AuthenticationError):
        standby.connect(login="guest:wrong@")


def test_a_client_that_does_not_only_read_is_told_who_leads(standby: SecureNode) -> None:
    with pytest.raises(ConnectionClosed, match="the leader is amqp"):
        standby.connect(reads=False)
