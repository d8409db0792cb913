"""Engines that encrypt and authenticate: Kafka with TLS, SCRAM and PLAIN; NATS with TLS and a password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from escrowmq.replica.engines import open_log
from tests.certificates import Authority
from tests.engines.kafka_nodes import KafkaNodes
from tests.engines.nats_nodes import NatsNodes
from tests.ports import reserve_port

USER, PASSWORD = "broker", "p@ss/word"
QUOTED = "p%40ss%2Fword"
_names = count(1)
_LISTENER = """\
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SASL_SSL://127.0.0.1:{secure}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL
sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
"""


class SecuredKafka(KafkaNodes):
    """One node with a further listener, for clients that log in over TLS."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 1)
        self.authority = Authority(folder)
        self.secure_port = reserve_port(self)
        certificate, key = self.authority.issue("kafka")
        keystore = folder / "keystore.pem"
        keystore.write_bytes(key.read_bytes() + certificate.read_bytes())
        self._settings = _LISTENER.format(
            port=self.ports[0],
            controller=self.peer_ports[0],
            secure=self.secure_port,
            user=USER,
            password=PASSWORD,
            keystore=keystore,
        )

    def add_user(self) -> None:
        """Store the user's keys for SCRAM."""
        kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(USER, kind, PASSWORD.encode())
        for done in self.admin.alter_user_scram_credentials([change]).values():
            done.result(30)

    def secure_url(self, login: str, more: str = "") -> str:
        """Return the URL of a new log."""
        where = f"{login}@127.0.0.1:{self.secure_port}/secured-{next(_names)}"
        return f"kafka://{where}?replicas=1&ssl.ca.location={self.authority.path}{more}"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    if (why := KafkaNodes.missing()) is not None:
        pytest.skip(why)
    with SecuredKafka(tmp_path_factory.mktemp("kafka")) as nodes:
        nodes.add_user()
        yield nodes


@pytest.mark.parametrize("more", ["", "&sasl.mechanism=PLAIN"], ids=["scram", "plain"])
def test_kafka_is_used_over_tls_with_a_login(kafka: SecuredKafka, more: str) -> None:
    with closing(open_log(kafka.secure_url(f"{USER}:{QUOTED}", more), timeout=30)) as log:
        assert log.append([b"a", b"b"]) == [0, 1]
        assert [each.data for each in log.read(0, 8)] == [b"a", b"b"]
        assert log.state().in_sync == 1


def test_kafka_refuses_a_wrong_password(kafka: SecuredKafka) -> None:
    with pytest.raises(OSError, match="Kafka at kafka://") as caught:
        open_log(kafka.secure_url(f"{USER}:wrong"), timeout=5)
    assert "wrong" not in str(caught.value)


def test_a_certificate_of_another_authority_is_refused(kafka: SecuredKafka, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    url = kafka.secure_url(f"{USER}:{QUOTED}").replace(str(kafka.authority.path), str(other.path))
    with pytest.raises(OSError, match="Kafka at kafka://"):
        open_log(url, timeout=5)


def test_nats_is_used_over_tls_with_a_login(tmp_path: Path) -> None:
    if (why := NatsNodes.missing()) is not None:
        pytest.skip(why)
    authority = Authority(tmp_path)
    certificate, key = authority.issue("nats")
    tls = f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}\n'
    login = f'authorization {{ user: "{USER}", password: "{PASSWORD}" }}\n'
    with NatsNodes(tmp_path / "nodes", 1, further=tls + login) as nodes:
        url = f"nats+tls://{USER}:{QUOTED}@127.0.0.1:{nodes.ports[0]}/secured?replicas=1&cacertfile={authority.path}"
        with closing(open_log(url, timeout=30)) as log:
            assert log.append([b"a"]) == [0]
            assert log.state().in_sync == 1
        with pytest.raises(OSError, match="cannot be reached") as caught:
            open_log(url.replace(QUOTED, "wrong"), timeout=5)
        assert "wrong" not in str(caught.value).replace("wrong password", "")
