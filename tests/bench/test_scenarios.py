"""Each procedure of the benchmark, at a small scale, against a separate broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.amqp010 import Branches010
from bench.backlogs import PriorityBacklog
from bench.brokers import Broker, EscrowMQ, TimedEscrowMQ
from bench.http_lists import HttpEscrowMQ, HttpLists
from bench.idle import cpu_of_lone_messages
from bench.large_requests import LARGE_REQUESTS
from bench.neighbours import NEIGHBOURS
from bench.publish_many import PublishMany
from bench.rates import Fetch, KeptQueues, Rate, Volume
from bench.replicated_brokers import OnNats
from bench.scenario import Scenario, Settings
from bench.scenarios import SCENARIOS
from bench.stalls import STALLS
from bench.take_overs import HandOver

SMALL = Settings(duration=0.3, scale=0.001)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    started = EscrowMQ(tmp_path_factory.mktemp("escrowmq"))
    started.start()
    yield started
    started.stop()


@pytest.mark.parametrize(
    "scenario",
    [
        Rate("varied-topic", "title", None),
        Rate("rpc50", "title", None, "confirm"),
        Volume("large-256k", "title", 1),
        Fetch("get-pipelined", "title", 1, 100, 1000),
        KeptQueues("random400", "title", None),
        PublishMany(),
        SCENARIOS["amqp10-varied-second"],
        SCENARIOS["amqp10-varied-tx100"],
        SCENARIOS["amqp10-varied-latency"],
        SCENARIOS["amqp010-varied-durable"],
        SCENARIOS["amqp010-xa32"],
    ],
    ids=lambda scenario: scenario.name,
)
def test_a_steady_load_yields_its_figure(broker: Broker, scenario: Scenario) -> None:
    assert scenario.measure(broker, SMALL).figures[scenario.name] > 0


def test_two_phase_commits_are_compared_with_another_protocol(broker: Broker) -> None:
    scenario = Branches010(pairs=1)
    figures = scenario.measure(broker, SMALL).figures
    assert figures.keys() == {figure.name for figure in scenario.figures}
    assert all(value > 0 for value in figures.values())


def test_a_lone_message_costs_little(broker: Broker) -> None:
    assert 0 <= cpu_of_lone_messages(broker, consumers=25, messages=50) < 20_000


@pytest.mark.parametrize("scenario", [*STALLS, *LARGE_REQUESTS], ids=lambda scenario: scenario.name)
def test_a_stall_is_measured_in_every_situation(tmp_path: Path, scenario: Scenario) -> None:
    broker = TimedEscrowMQ(tmp_path)
    broker.start()
    try:
        figures = scenario.measure(broker, SMALL).figures
    finally:
        broker.stop()
    assert figures.keys() == {figure.name for figure in scenario.figures}
    assert all(value > 0 for value in figures.values())


@pytest.mark.parametrize("scenario", NEIGHBOURS, ids=lambda scenario: scenario.name)
def test_a_neighbour_is_measured_beside_every_operation(tmp_path: Path, scenario: Scenario) -> None:
    broker = EscrowMQ(tmp_path)
    broker.start()
    try:
        figures = scenario.measure(broker, SMALL).figures
    finally:
        broker.stop()
    assert figures.keys() == {figure.name for figure in scenario.figures}
    assert all(value > 0 for value in figures.values())


def test_a_neighbour_is_measured_beside_lists_over_http(tmp_path: Path) -> None:
    broker = HttpEscrowMQ(tmp_path)
    broker.start()
    try:
        figures = HttpLists(pairs=2, windows=1, seconds=1).measure(broker, SMALL).figures
    finally:
        broker.stop()
    assert figures.keys() == {figure.name for figure in SCENARIOS["neighbours-http"].figures}
    assert all(value > 0 for value in figures.values())


def test_a_queue_with_priorities_is_stopped_started_and_drained(tmp_path: Path) -> None:
    broker = EscrowMQ(tmp_path)
    broker.start()
    try:
        figures = PriorityBacklog().measure(broker, SMALL).figures
    finally:
        broker.stop()
    assert all(value > 0 for value in figures.values())


@pytest.mark.parametrize("name", ["amqp10-held-received", "amqp10-held-published"])
def test_unsettled_deliveries_are_held_over_restarts(name: str, tmp_path: Path) -> None:
    broker = EscrowMQ(tmp_path)
    broker.start()
    try:
        figures = SCENARIOS[name].measure(broker, SMALL).figures
    finally:
        broker.stop()
    assert figures.keys() == {figure.name for figure in SCENARIOS[name].figures}
    assert all(value > 0 for value in figures.values())


@pytest.mark.skipif(OnNats.engine.missing() is not None, reason=str(OnNats.engine.missing()))
def test_replicated_brokers_are_measured_and_take_over(tmp_path: Path) -> None:
    cluster = OnNats(tmp_path)
    cluster.start()
    try:
        for name in ("replicated-nats-varied-confirms", "replicated-nats-kill"):
            assert SCENARIOS[name].measure(cluster, SMALL).figures[name] > 0
        cluster.freeze()
        cluster.thaw()
        figures = HandOver("handover", "title", OnNats, times=2).measure(cluster, SMALL).figures
    finally:
        cluster.stop()
    assert 0 < figures["handover"] <= figures["handover.longest"]


def test_only_scenarios_of_ours_alone_need_the_timed_loop() -> None:
    assert all(not scenario.peers for scenario in SCENARIOS.values() if scenario.timed)
