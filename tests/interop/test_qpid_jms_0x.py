"""Scenarios of Qpid JMS AMQP 0-x, the AMQP 0-10 client of the Java world. `make jms` installs it.

They run against Apache Qpid Broker-J, the server of the same project, which shows that they are right: `make jms-peer`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from bench.peers import BrokerJ
from tests.interop.java_clients import names, needs, scenarios_of
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
