"""Operations on virtual hosts."""

from __future__ import annotations

import random

import pytest

from escrowmq.admin.connections import ConnectionAdmin
from escrowmq.admin.operation import OperationRefused
from escrowmq.admin.vhosts import VhostAdmin
from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError
from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import spec
from tests.harness.client import SimClient
from tests.harness.server import SimServer
from tests.unit.admin.processes import CountingPieces, FakeConnection, FakeProcess, perform
from tests.unit.core.termini.links import TestedLink, incoming
from tests.unit.wire.amqp091.clients import server as made_server

PREPARED, ACTIVE = Xid(1, b"g", b"prepared").encode(), Xid(1, b"g", b"active").encode()


class Bench:
    """A broker with the virtual host `/`; pieces of ten steps."""

    def __init__(self, server: SimServer | None = None) -> None:
        self.server = server or made_server()
        self.client = SimClient(self.server)
        self.client.open_channel(1)
        self.process = FakeProcess(self.server)
        self.pieces = CountingPieces(10)
        self.operations = VhostAdmin(self.process, ConnectionAdmin(self.process, self.pieces), self.pieces).operations
        self.vhosts = self.server.broker.directory.vhosts


def test_a_virtual_host_is_added_and_listed() -> None:
    bench = Bench()
    perform(bench.operations, "vhost.add", name="orders")
    bench.client.declare(1, "q")
    perform(bench.operations, "vhost.limits", name="orders", max_connections=5, max_queues=0)
    assert perform(bench.operations, "vhost.list") == [
        {"name": "/", "queues": 1, "max_connections": None, "max_queues": None},
        {"name": "orders", "queues": 0, "max_connections": 5, "max_queues": 0},
    ]
    with pytest.raises(BrokerError, match="no such vhost 'nowhere'"):
        perform(bench.operations, "vhost.limits", name="nowhere")
    with pytest.raises(OperationRefused, match="vhost 'orders' already exists"):
        perform(bench.operations, "vhost.add", name="orders")


def test_the_queues_of_a_virtual_host_are_deleted_in_pieces_before_it() -> None:
    bench = Bench()
    for number in range(40):
        bench.client.declare(1, f"q{number}")
    perform(bench.operations, "vhost.delete", name="/")
    assert bench.vhosts == {}
    assert bench.pieces.count == 9, (
        "one each for no connections, branches, links and groups, four with ten queues each, and one for the end"
    )
    assert bench.process.turns == 40


def test_a_virtual_host_is_deleted_with_its_topics() -> None:
    bench = Bench()
    broker = bench.server.broker
    broker.directory.add_vhost("gone")
    broker.topics.declare(broker.directory.vhost("gone"), "t", 3)
    perform(bench.operations, "vhost.delete", name="gone")
    assert "gone" not in bench.vhosts


def test_connections_of_a_deleted_virtual_host_are_closed_also_those_that_come_meanwhile() -> None:
    bench = Bench()
    perform(bench.operations, "vhost.add", name="orders")
    here, elsewhere, late = FakeConnection("a:1"), FakeConnection("b:2", vhost="orders"), FakeConnection("c:3")
    bench.client.declare(1, "q")
    bench.process.connections = {here: None, elsewhere: None}
    bench.process.begin = lambda: bench.process.connections.setdefault(late)  # type: ignore[method-assign]
    perform(bench.operations, "vhost.delete", name="/")
    assert (set(here.reasons), elsewhere.reasons, late.reasons) == (
        {"vhost '/' was deleted"},
        [],
        ["vhost '/' was deleted"],
    )


def test_an_unknown_virtual_host_is_refused() -> None:
    with pytest.raises(BrokerError, match="no such vhost 'w'"):
        perform(Bench().operations, "vhost.delete", name="w")


def with_branches(bench: Bench) -> None:
    """The virtual host gets a prepared branch, an active one, and progress."""
    client = bench.client
    client.declare(1, "q")
    client.publish(1, "q", b"taken")
    client.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
    for xid in (PREPARED, ACTIVE):
        client.call(1, spec.DtxDemarcationStart(xid), spec.DtxDemarcationStartOk)
        if xid == PREPARED:
            message = client.get(1, "q")
            assert message is not None
            assert isinstance(message.method, spec.BasicGetOk)
            client.send(1, spec.BasicAck(message.method.delivery_tag))
        client.publish(1, "q", b"new")
        client.call(1, spec.DtxDemarcationEnd(xid), spec.DtxDemarcationEndOk)
    client.call(1, spec.DtxCoordinationPrepare(PREPARED), spec.DtxCoordinationPrepareOk)
    client.call(1, spec.EscrowDecide(1, b"other", {"bqual": []}, "app", 3), spec.EscrowDecideOk)


@pytest.mark.rule("FAIR-1")
def test_the_termini_of_a_deleted_virtual_host_end_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    for number in range(5):
        TestedLink(bench.server.broker, incoming(f"l{number}"))
    seen: list[int] = []
    monkeypatch.setattr(bench.process, "begin", lambda: seen.append(len(bench.server.broker.termini.by_key)))
    perform(bench.operations, "vhost.delete", name="/")
    assert seen[:5] == [5, 4, 3, 2, 1]


@pytest.mark.rule("FAIR-1")
def test_the_consumer_groups_of_a_deleted_virtual_host_end_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    groups = bench.server.broker.groups
    for number in range(5):
        groups.declare("/", f"g{number}")
    seen: list[int] = []
    monkeypatch.setattr(bench.process, "begin", lambda: seen.append(len(groups.all("/"))))
    perform(bench.operations, "vhost.delete", name="/")
    assert seen[:5] == [5, 4, 3, 2, 1]
    assert not list(groups.every())


@pytest.mark.rule("SEC-2")
def test_a_virtual_host_with_branches_in_doubt_stays() -> None:
    bench = Bench()
    with_branches(bench)
    connection = FakeConnection("a:1")
    bench.process.connections = {connection: None}
    with pytest.raises(OperationRefused, match=r"1 transaction branch in doubt.*--force"):
        perform(bench.operations, "vhost.delete", name="/")
    assert not connection.reasons
    assert len(bench.server.broker.branches.by_xid) == 2


def test_a_refusal_tells_branches_in_doubt_from_decided_ones() -> None:
    bench = Bench()
    with_branches(bench)
    bench.server.broker.coordinator.force(Xid.decode(PREPARED), commit=True)
    with pytest.raises(OperationRefused) as refused:
        perform(bench.operations, "vhost.delete", name="/")
    assert "has 1 transaction branch that an operator has decided. `escrowmq tx` lists" in str(refused.value)
    assert "branch in doubt" not in str(refused.value)


@pytest.mark.rule("SEC-2")
def test_a_branch_prepared_while_connections_are_closed_stops_the_deletion() -> None:
    bench = Bench()
    bench.process.connections = {FakeConnection("a:1"): None}
    bench.process.begin = lambda: with_branches(bench)  # type: ignore[method-assign]
    with pytest.raises(OperationRefused, match="in doubt"):
        perform(bench.operations, "vhost.delete", name="/")
    assert len(bench.vhosts["/"].queues) == 1


@pytest.mark.rule("SEC-2")
@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize("snapshot", [False, True])
def test_branches_and_progress_do_not_reappear_in_a_new_virtual_host(snapshot: bool, decided: bool) -> None:
    storage = MemoryStorage(random.Random(1))
    bench = Bench(SimServer(storage))
    with_branches(bench)
    broker = bench.server.broker
    if decided:
        broker.coordinator.force(Xid.decode(PREPARED), commit=True)
    perform(bench.operations, "vhost.delete", name="/", force=True)
    perform(bench.operations, "vhost.add", name="/")
    assert (broker.branches.by_xid, broker.coordinator.progress.all()) == ({}, [])
    if snapshot:
        bench.server.begin_snapshot()
        bench.server.run_disk()
    again = SimServer(storage).broker
    assert (again.branches.by_xid, again.coordinator.progress.all()) == ({}, [])


@pytest.mark.rule("SEC-2")
def test_recovery_drops_what_an_older_version_left_behind() -> None:
    """A VHOST_DELETED record without the rollbacks and resets that precede it now."""
    storage = MemoryStorage(random.Random(1))
    bench = Bench(SimServer(storage))
    with_branches(bench)
    directory = bench.server.broker.directory
    directory._before_vhost_deletion.clear()
    directory.delete_vhost("/")
    directory.add_vhost("/")
    bench.server.end_turn()
    bench.server.run_disk()
    again = SimServer(storage).broker
    assert (again.branches.by_xid, again.coordinator.progress.all()) == ({}, [])


@pytest.mark.parametrize("name", ["x" * 256, "\ud800"])
def test_a_name_that_no_client_could_use_is_refused(name: str) -> None:
    bench = Bench()
    with pytest.raises(BrokerError):
        perform(bench.operations, "vhost.add", name=name)
    assert name not in bench.vhosts
