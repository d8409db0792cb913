"""A broker and a Java virtual machine for the clients of RocketMQ, shared by all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.certificates import Authority
from tests.interop.java_clients import scenarios_of
from tests.interop.rocketmq.brokers import RocketmqPorts, ServedBroker
from tests.interop.scenarios import Scenarios


@pytest.fixture(scope="session")
def grpc_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """A broker with TLS that asks soon about half messages. Each client has topics and groups of its own, so a test may
    also kill the broker and start it again.
    """
    folder, ports = tmp_path_factory.mktemp("rocketmq"), RocketmqPorts()
    certificate, key = Authority(folder).issue("localhost", server=True)
    tls = f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n'
    checks = "[half_messages]\ntimeout_seconds = 2\ncheck_interval_seconds = 2\n"
    with ports.broker(folder, tls + checks) as process:
        yield ServedBroker(process, ports)


@pytest.fixture(scope="session")
def classic_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenarios]:
    """The scenarios of the classic Java client and of mqadmin."""
    with scenarios_of("RocketScenarios.java", "rocketmq", tmp_path_factory) as machine:
        yield machine
