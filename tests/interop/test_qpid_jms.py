"""Qpid JMS, the AMQP 1.0 client of the Java world, works with the broker unmodified. `make jms` installs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.broker import BrokerProcess
from tests.interop.java_clients import names, needs, scenarios_of
from tests.interop.queues import declare_full
from tests.interop.scenarios import Scenarios

SOURCE, FOLDER = "Scenarios.java", "jms"

pytestmark = [pytest.mark.interop, needs("qpid-jms-client", FOLDER)]


@pytest.fixture(scope="session")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenarios]:
    with scenarios_of(SOURCE, FOLDER, tmp_path_factory) as machine:
        yield machine


@pytest.mark.parametrize("scenario", names(SOURCE))
def test_a_scenario_of_qpid_jms_succeeds(scenarios: Scenarios, broker: BrokerProcess, scenario: str) -> None:
    scenarios.run(scenario, broker)


def test_a_full_queue_rejects(scenarios: Scenarios, broker: BrokerProcess) -> None:
    declare_full(broker, "jms.full")
    scenarios.run("sendToAFullQueue", broker)


def test_qpid_jms_fails_over_after_a_kill(scenarios: Scenarios, own_broker: Callable[[str], BrokerProcess]) -> None:
    broker = own_broker("")
    scenarios.run("sendBeforeAKill", broker)
    broker.kill()
    broker.start()
    scenarios.run("goOnAfterAKill", broker)
