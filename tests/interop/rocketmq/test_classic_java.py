"""RocketMQ's classic Java client works with the broker unmodified. `make jms` installs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.broker import BrokerProcess
from tests.interop.java_clients import names, needs, scenarios_of
from tests.interop.rocketmq.brokers import RocketmqPorts
from tests.interop.scenarios import Scenarios

SOURCE, FOLDER = "RocketScenarios.java", "rocketmq"

pytestmark = [pytest.mark.interop, needs("rocketmq-client", FOLDER)]


@pytest.fixture(scope="session")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenarios]:
    with scenarios_of(SOURCE, FOLDER, tmp_path_factory) as machine:
        yield machine


@pytest.fixture(scope="session")
def rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, RocketmqPorts]]:
    ports = RocketmqPorts()
    with ports.broker(tmp_path_factory.mktemp("rocketmq")) as process:
        yield process, ports


@pytest.mark.parametrize("scenario", names(SOURCE))
def test_a_scenario_of_the_classic_client_succeeds(
    scenarios: Scenarios, rocketmq: tuple[BrokerProcess, RocketmqPorts], scenario: str
) -> None:
    process, ports = rocketmq
    scenarios.run(scenario, process, ports.name_server)


def test_transactions_go_on_after_a_kill(scenarios: Scenarios, own_broker: Callable[[str], BrokerProcess]) -> None:
    ports = RocketmqPorts()
    broker = own_broker(ports.config)
    scenarios.run("workBeforeAKill", broker, ports.name_server)
    broker.kill()
    broker.start()
    scenarios.run("goOnAfterAKill", broker, ports.name_server)
