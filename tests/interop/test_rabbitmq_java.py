"""RabbitMQ's Java client for AMQP 1.0 works with the broker unmodified. `make jms` installs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.broker import BrokerProcess
from tests.interop.conftest import LIKE_RABBITMQ
from tests.interop.java_clients import names, needs, scenarios_of
from tests.interop.scenarios import Scenarios

SOURCE, FOLDER = "RabbitScenarios.java", "rabbitmq"

pytestmark = [pytest.mark.interop, needs("amqp-client", FOLDER)]


@pytest.fixture(scope="session")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenarios]:
    with scenarios_of(SOURCE, FOLDER, tmp_path_factory) as machine:
        yield machine


@pytest.mark.parametrize("scenario", names(SOURCE))
def test_a_scenario_of_rabbitmqs_client_succeeds(
    scenarios: Scenarios, broker_like_rabbitmq: BrokerProcess, scenario: str
) -> None:
    scenarios.run(scenario, broker_like_rabbitmq)


def test_the_client_recovers_its_topology_after_a_kill(
    scenarios: Scenarios, own_broker: Callable[[str], BrokerProcess]
) -> None:
    broker = own_broker(LIKE_RABBITMQ)
    scenarios.run("workBeforeAKill", broker)
    broker.kill()
    broker.start()
    scenarios.run("goOnAfterAKill", broker)


def test_the_client_refuses_the_brokers_own_version(scenarios: Scenarios, broker: BrokerProcess) -> None:
    scenarios.run("theVersionIsRefused", broker)
