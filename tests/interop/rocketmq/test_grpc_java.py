"""RocketMQ's Java client for gRPC works with the broker unmodified, over TLS and with an access key.

`make jms` installs it.
"""

from __future__ import annotations

import pytest

from tests.interop.java_clients import names, needs, scenarios_of
from tests.interop.rocketmq.brokers import ServedBroker

SOURCE, FOLDER = "RocketGrpcScenarios.java", "rocketmq-grpc"

pytestmark = [pytest.mark.interop, needs("rocketmq-client-java", FOLDER)]


@pytest.mark.rule("HALF-2", "HALF-4", "HALF-5", "DLY-1", "GRP-4", "SEC-1")
def test_every_scenario_of_the_client_succeeds_the_last_one_through_a_kill(
    grpc_broker: ServedBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    broker, ports = grpc_broker
    grpc_broker.declare_for("java")
    grpc_broker.declare({"tran_topic": "transaction"})
    access_key, secret_key = grpc_broker.add_key("guest")
    environment = {"ACCESS_KEY": access_key, "SECRET_KEY": secret_key}
    with scenarios_of(SOURCE, FOLDER, tmp_path_factory, environment) as machine:
        for scenario in (*names(SOURCE), "workBeforeAKill"):
            machine.run(scenario, broker, ports.grpc)
        broker.kill()
        broker.start()
        machine.run("goOnAfterAKill", broker, ports.grpc)
