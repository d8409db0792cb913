"""A Kafka broker that serves clients with and without a login, for all tests that need one node."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.certificates import Authority
from tests.engines.kafka_nodes import KafkaNodes
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
