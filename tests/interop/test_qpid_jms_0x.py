"""Qpid JMS AMQP 0-x, the AMQP 0-10 client of the Java world, works with the broker unmodified. `make jms` installs it.

The same programs run against Apache Qpid Broker-J, the server of the same project, which shows that they are right:
`make jms-peer`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from bench.peers import BrokerJ
from tests.broker import BrokerProcess
from tests.interop.java_clients import names, needs, scenarios_of
from tests.interop.queues import declare_full
from tests.interop.scenarios import Scenarios

SOURCES: Final = ("Qpid0xSessions.java", "Qpid0xDestinations.java", "Qpid0xBranches.java")
FOLDER: Final = "jms-0x"

FAULTS: Final = {
    "resourcesOfTwoSessionsHaveTheirOwnBranches": "says that two resources are the same, and then refuses to end both",
    "failedWorkRollsBack": "prepares a branch that is rollback-only",
    "emptyBranchIsReadOnly": "never votes read-only",
    "wrongCallsHaveTheCodesOfXa": "answers a join of an unknown branch as if it existed",
    "closedConnectionRollsBack": "keeps the branch of a closed connection until its timeout",
}
"""The scenarios that Broker-J fails, and what it does there."""

pytestmark = [pytest.mark.interop, needs("qpid-client", FOLDER)]


@pytest.fixture(scope="session")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenarios]:
    with scenarios_of(SOURCES, FOLDER, tmp_path_factory) as machine:
        yield machine


@pytest.mark.rule("DTX-1", "DTX-2", "DTX-4", "DTX-5", "DTX-7", "DTX-8", "DTX-9", "DTX-12", "DTX-13", "DTX-14")
@pytest.mark.parametrize("scenario", names(*SOURCES))
def test_a_scenario_of_qpid_jms_0x_succeeds(scenarios: Scenarios, broker: BrokerProcess, scenario: str) -> None:
    scenarios.run(scenario, broker)


def test_a_full_queue_refuses(scenarios: Scenarios, broker: BrokerProcess) -> None:
    declare_full(broker, "0x.full")
    scenarios.run("sendToAFullQueue", broker)


def test_qpid_jms_0x_fails_over_after_a_kill(scenarios: Scenarios, own_broker: Callable[[str], BrokerProcess]) -> None:
    broker = own_broker("")
    scenarios.run("sendBeforeAKill", broker)
    broker.kill()
    broker.start()
    scenarios.run("goOnAfterAKill", broker)


@pytest.mark.rule("DTX-8", "DTX-10", "DTX-13")
def test_prepared_branches_survive_a_kill(scenarios: Scenarios, own_broker: Callable[[str], BrokerProcess]) -> None:
    broker = own_broker("")
    scenarios.run("prepareBeforeAKill", broker)
    broker.kill()
    broker.start()
    scenarios.run("recoverAfterAKill", broker)


@pytest.mark.rule("DTX-10", "DTX-11")
def test_an_operators_decision_is_reported_until_it_is_forgotten(
    scenarios: Scenarios, own_broker: Callable[[str], BrokerProcess]
) -> None:
    broker = own_broker("")
    scenarios.run("prepareForAnOperator", broker)
    for decision in ("commit", "rollback"):
        xid = f"7:{b'0x.heuristic'.hex()}:{decision.encode().hex()}"
        command = [sys.executable, "-m", "escrowmq", "tx", decision, xid, "--data-dir", str(broker.data_dir)]
        done = subprocess.run([*command, "--yes", "--reason", "a test"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    scenarios.run("forgetHeuristics", broker)


class Peer(BrokerJ):
    """Broker-J as AMQP 0-10 expects a broker: queues are created by commands only."""

    creates_queues = False


@pytest.mark.long
@pytest.mark.skipif(BrokerJ.missing() is not None, reason="needs Java and Broker-J, which make peers fetches")
def test_broker_j_passes_the_same_scenarios(scenarios: Scenarios, tmp_path: Path) -> None:
    peer = Peer(tmp_path)
    peer.start()
    failed = set()
    try:
        for name in names(*SOURCES):
            try:
                scenarios.call(name, peer.port)
            except AssertionError:
                failed.add(name)
        assert failed == set(FAULTS)
        for before, after in (("sendBeforeAKill", "goOnAfterAKill"), ("prepareBeforeAKill", "recoverAfterAKill")):
            scenarios.call(before, peer.port)
            peer.kill()
            peer.start()
            scenarios.call(after, peer.port)
    finally:
        peer.kill()
