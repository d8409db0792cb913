"""RocketMQ's classic Java client works with the broker unmodified. `make jms` installs it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.broker import BrokerProcess
from tests.interop.java_clients import names, needs
from tests.interop.rocketmq.brokers import RocketmqPorts, ServedBroker
from tests.interop.scenarios import Scenarios

SOURCE = "RocketScenarios.java"

pytestmark = [pytest.mark.interop, needs("rocketmq-client", "rocketmq")]

OF_RULES = [
    pytest.param(
        "transactionsAreDecidedByTheirProducer",
        marks=pytest.mark.rule("HALF-1", "HALF-2", "HALF-4", "HALF-5"),
    ),
    pytest.param("aTopicForTransactionsRefusesOtherMessages", marks=pytest.mark.rule("HALF-7")),
    pytest.param("aHalfMessageIsDeliveredWithoutItsDelay", marks=pytest.mark.rule("HALF-8")),
    pytest.param("aFailedMessageIsDeliveredAgain", marks=pytest.mark.rule("HALF-9", "GRP-4")),
    pytest.param("aMessageThatAlwaysFailsIsADeadLetter", marks=pytest.mark.rule("HALF-9", "GRP-4")),
    pytest.param("membersOfAGroupShareTheQueues", marks=pytest.mark.rule("GRP-1")),
    pytest.param("othersTakeTheQueuesOfALostConsumer", marks=pytest.mark.rule("GRP-1")),
    pytest.param("orderIsKeptWithinAQueue", marks=pytest.mark.rule("GRP-3")),
    pytest.param("aLitePullConsumerPolls", marks=pytest.mark.rule("GRP-5")),
    pytest.param("aFilterNamesTags", marks=pytest.mark.rule("GRP-6")),
]
"""Scenarios that show a rule."""
OTHERS = sorted(set(names(SOURCE)) - {each.values[0] for each in OF_RULES})


@pytest.mark.parametrize("scenario", [*OF_RULES, *OTHERS])
def test_a_scenario_of_the_classic_client_succeeds(
    classic_clients: Scenarios, grpc_broker: ServedBroker, scenario: str
) -> None:
    classic_clients.call(scenario, grpc_broker.ports.name_server)


def test_a_client_with_an_access_key_is_served(classic_clients: Scenarios, grpc_broker: ServedBroker) -> None:
    access_key, secret_key = grpc_broker.add_key("guest")
    port = grpc_broker.ports.name_server
    classic_clients.call("clientsWithAnAccessKeySendAndReceive", port, access_key, secret_key)
    with pytest.raises(AssertionError, match="failed"):
        classic_clients.call("clientsWithAnAccessKeySendAndReceive", port, access_key, "wrong")


@pytest.mark.rule("HALF-1", "HALF-2", "HALF-3", "HALF-12")
def test_transactions_go_on_after_a_kill(
    classic_clients: Scenarios, own_broker: Callable[[str], BrokerProcess]
) -> None:
    ports = RocketmqPorts()
    broker = own_broker(ports.config)
    classic_clients.run("workBeforeAKill", broker, ports.name_server)
    broker.kill()
    broker.start()
    classic_clients.run("goOnAfterAKill", broker, ports.name_server)
