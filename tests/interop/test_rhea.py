"""rhea, an AMQP 1.0 client in JavaScript, works with the broker unmodified. `npm ci` in node/ installs it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.broker import BrokerProcess
from tests.interop.node_clients import has_websockets, needs, run_scenario, run_through_kills, scenarios

pytestmark = [pytest.mark.interop, needs("rhea")]


@pytest.mark.parametrize("scenario", scenarios("rhea.js"))
def test_a_scenario_of_rhea_succeeds(scenario: str, broker: BrokerProcess) -> None:
    if scenario == "webSocket" and not has_websockets():
        pytest.skip("needs node 20.10")
    run_scenario("rhea.js", scenario, broker, f"rhea.{scenario}")


def test_rhea_reconnects_after_kills(own_broker: Callable[[str], BrokerProcess]) -> None:
    run_through_kills("rhea-survivor.js", own_broker(""), "survivor")
