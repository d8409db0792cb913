"""Other brokers of AMQP 1.0, which `make peers` fetches: Apache ActiveMQ Artemis and Apache Qpid Broker-J.

Both store durable messages on the disk and sync them before they answer. Neither has limits at which it would page
messages out or stop its publishers during a measurement.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from abc import abstractmethod
from ctypes.util import find_library
from pathlib import Path
from typing import IO

from bench.brokers import ProcessBroker, free_port
from bench.measure import sync_rate
from escrowmq.perf.amqp10.connection import LinkConnection
from escrowmq.perf.errors import PerfError
from escrowmq.perf.url import parse_url

ARTEMIS, BROKER_J = "Artemis", "Broker-J"
_HEAP = "-Xmx4G"
_VENV = Path(sys.prefix)


class JavaBroker(ProcessBroker):
    """A broker in a Java virtual machine, whose jars are in one folder."""

    jars: Path
    """The folder with the jars."""
    main: str
    """The class to run."""
    jar: str
    """The start of the name of the jar that has the broker's version in its name."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.port = free_port()

    @classmethod
    def missing(cls) -> str | None:
        """Return why it cannot be started here, or None if it can."""
        if shutil.which("java") is None:
            return "there is no Java"
        return None if cls.jars.is_dir() else "`make peers` has not fetched it"

    @abstractmethod
    def _configure(self) -> list[str]:
        """Write the configuration, and return the arguments of the class to run."""

    def _launch(self, log: IO[str]) -> None:
        arguments = self._configure()
        self._process = subprocess.Popen(
            ["java", _HEAP, f"-DQPID_WORK={self.directory}", "-cp", f"{self.jars}/*", self.main, *arguments],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,
        )

    def _answers(self) -> bool:
        try:
            LinkConnection(parse_url(self.url), "bench", timeout=5.0).close()
        except PerfError:
            return False
        return True

    def version(self) -> str:
        (found,) = self.jars.glob(f"{self.jar}-[0-9]*.jar")
        return f"{self.name} {found.stem.removeprefix(self.jar + '-')}"


class Artemis(JavaBroker):
    """Artemis with its own journal. Queues are created when a link attaches: durable, of routing type anycast."""

    name = ARTEMIS
    jars = _VENV / "artemis"
    main = "org.apache.activemq.artemis.core.server.embedded.Main"
    jar = "artemis-server"

    def _configure(self) -> list[str]:
        # As `artemis create` does, use libaio if it is there, and wait for others to share a sync for as long as a sync
        # takes.
        asynchronous = find_library("aio") is not None
        timeout_ns = int(1e9 / sync_rate(self.directory))
        text = _ARTEMIS.format(journal="ASYNCIO" if asynchronous else "NIO", timeout=timeout_ns, port=self.port)
        folder = self.directory / "etc"
        folder.mkdir(exist_ok=True)
        (folder / "broker.xml").write_text(text)
        return [str(self.directory)]


_ARTEMIS = """\
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <name>bench</name>
  <persistence-enabled>true</persistence-enabled>
  <security-enabled>false</security-enabled>
  <journal-type>{journal}</journal-type>
  <journal-directory>data/journal</journal-directory>
  <bindings-directory>data/bindings</bindings-directory>
  <paging-directory>data/paging</paging-directory>
  <large-messages-directory>data/large-messages</large-messages-directory>
  <journal-datasync>true</journal-datasync>
  <journal-sync-transactional>true</journal-sync-transactional>
  <journal-sync-non-transactional>true</journal-sync-non-transactional>
  <journal-buffer-timeout>{timeout}</journal-buffer-timeout>
  <journal-pool-files>10</journal-pool-files>
  <max-disk-usage>100</max-disk-usage>
  <global-max-size>-1</global-max-size>
  <acceptors>
    <acceptor name="amqp">tcp://127.0.0.1:{port}?protocols=AMQP;tcpSendBufferSize=1048576;tcpReceiveBufferSize=1048576;useEpoll=true</acceptor>
  </acceptors>
  <address-settings>
    <address-setting match="#">
      <max-size-bytes>-1</max-size-bytes>
      <max-size-messages>-1</max-size-messages>
      <auto-create-queues>true</auto-create-queues>
      <auto-create-addresses>true</auto-create-addresses>
      <default-address-routing-type>ANYCAST</default-address-routing-type>
      <default-queue-routing-type>ANYCAST</default-queue-routing-type>
    </address-setting>
  </address-settings>
</core></configuration>
"""


class BrokerJ(JavaBroker):
    """Broker-J with a Derby store. Queues are created when a link attaches; they are durable."""

    name = BROKER_J
    creates_queues = True
    """Whether it creates queues that clients of AMQP 1.0 address. AMQP 0-10 has commands for that."""
    jars = _VENV / "broker-j"
    main = "org.apache.qpid.server.Main"
    jar = "qpid-broker"

    def _configure(self) -> list[str]:
        created = {
            "pattern": ".*",
            "createdOnPublish": "true",
            "createdOnConsume": "true",
            "nodeType": "queue",
            "attributes": {"durable": "true"},
        }
        host = {"type": "DERBY", "nodeAutoCreationPolicies": [created] if self.creates_queues else []}
        user = {"name": "guest", "type": "managed", "password": "guest"}
        path = self.directory / "initial.json"
        path.write_text(
            json.dumps(
                {
                    "name": "bench",
                    "modelVersion": "9.0",
                    "authenticationproviders": [
                        {"name": "plain", "type": "Plain", "secureOnlyMechanisms": [], "users": [user]}
                    ],
                    "ports": [
                        {
                            "name": "amqp",
                            "port": str(self.port),
                            "bindingAddress": "127.0.0.1",
                            "authenticationProvider": "plain",
                            "protocols": ["AMQP_0_10", "AMQP_1_0"],
                            "virtualhostaliases": [
                                {"name": "any", "type": "hostnameAlias"},
                                {"name": "none", "type": "defaultAlias"},
                            ],
                        }
                    ],
                    "virtualhostnodes": [
                        {
                            "name": "default",
                            "type": "JSON",
                            "defaultVirtualHostNode": "true",
                            "virtualHostInitialConfiguration": json.dumps(host),
                        }
                    ],
                }
            )
        )
        return ["-icp", str(path)]
