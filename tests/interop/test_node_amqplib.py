"""amqplib for Node.js and amqp-connection-manager work with the broker. `npm ci` in node/ installs them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.broker import BrokerProcess
from tests.interop.node_clients import needs, run_scenario, run_through_kills, scenarios

pytestmark = [pytest.mark.interop, needs("amqplib")]


@pytest.mark.parametrize("scenario", scenarios("scenarios.js"))
def test_a_scenario_of_amqplib_succeeds(scenario: str, broker: BrokerProcess) -> None:
    run_scenario("scenarios.js", scenario, broker, f"node.{scenario}")


def test_amqp_connection_manager_survives_kills(own_broker: Callable[[str], BrokerProcess], name: str) -> None:
    run_through_kills("survivor.js", own_broker(""), name)
