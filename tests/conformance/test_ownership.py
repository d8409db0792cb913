"""A hostile user finds no way to the branches, the progress and the reservations of another one (SEC-2)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from escrowmq.core.branches.shares import UserLimits
from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xid import Xid
from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.method import Method
from tests.conformance.test_versions import storage_of
from tests.harness.client import SimClient
from tests.harness.server import Options, SimServer
from tests.pipeline.direct import audited, export
from tests.unit.wire.amqp091.clients import fails_channel

USERS = ("victim", "mallory", "friend", "admin", "monitor")
MINE = Xid(1, b"mallory", b"1")
XID = Xid(1, b"global", b"1")
DATA = XID.encode()
COORDINATION: tuple[tuple[type[Method], Method], ...] = (
    (spec.DtxCoordinationPrepareOk, spec.DtxCoordinationPrepare(DATA)),
    (spec.DtxCoordinationCommitOk, spec.DtxCoordinationCommit(DATA)),
    (spec.DtxCoordinationRollbackOk, spec.DtxCoordinationRollback(DATA)),
    (spec.DtxCoordinationForgetOk, spec.DtxCoordinationForget(DATA)),
    (spec.DtxCoordinationSetTimeoutOk, spec.DtxCoordinationSetTimeout(DATA, 1)),
    (spec.DtxCoordinationGetTimeoutOk, spec.DtxCoordinationGetTimeout(DATA)),
)
ASKS = [pytest.param(ask, id=ask.NAME) for _, ask in COORDINATION]


def started(storage: MemoryStorage | None = None) -> SimServer:
    """Return a server that the victim shares with a hostile user, a friend, and two users with tags.

    Mallory may do anything with names of its own and publish through the default exchange. The friend may do anything
    with the names of the victim.
    """
    server = SimServer(storage or MemoryStorage(random.Random(1)), Options(users=("victim",)))
    broker = server.broker
    if "mallory" in broker.access.users:
        return server
    patterns = {"mallory": ("^mine", "^(mine|amq\\.default$)"), "friend": ("^(q|to)$", "^(q|to|amq\\.default)$")}
    for user in USERS[1:]:
        tags = {"admin": ("administrator",), "monitor": ("monitoring",)}.get(user, ())
        broker.directory.record_access(broker.access.add_user(user, "hash", tags))
        own, write = patterns.get(user, ("", ""))
        broker.directory.record_access(broker.access.set_permission(user, "/", own, write, own))
    server.end_turn()
    server.run_disk()
    return server


def client_of(server: SimServer, user: str) -> SimClient:
    client = SimClient(server, user, user=user)
    client.open_channel(1)
    return client


def begin(client: SimClient, xid: Xid) -> None:
    """A channel that works for a branch."""
    client.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
    client.call(1, spec.DtxDemarcationStart(xid.encode()), spec.DtxDemarcationStartOk)


def prepared(client: SimClient, xid: Xid = XID, *, mandatory: bool = False) -> None:
    """A prepared branch that takes a message from `q` and publishes `secret` to `to`."""
    client.declare(1, "q")
    client.declare(1, "to")
    client.publish(1, "q", b"taken")
    begin(client, xid)
    message = client.get(1, "q")
    assert message is not None
    assert isinstance(message.method, spec.BasicGetOk)
    client.send(1, spec.BasicAck(message.method.delivery_tag))
    client.publish(1, "to", b"secret", mandatory=mandatory)
    client.call(1, spec.DtxDemarcationEnd(xid.encode()), spec.DtxDemarcationEndOk)
    answer = client.call(1, spec.DtxCoordinationPrepare(xid.encode()), spec.DtxCoordinationPrepareOk)
    assert answer.flags == XaStatus.OK


def listed(client: SimClient) -> list[bytes]:
    answer = client.call(1, spec.DtxCoordinationRecover(True, True), spec.DtxCoordinationRecoverOk)
    xids = answer.xids["xids"]
    assert isinstance(xids, list)
    return [xid.encode() if isinstance(xid, str) else xid for xid in xids if isinstance(xid, str | bytes)]


@pytest.mark.rule("SEC-2")
class TestBranches:
    @pytest.mark.parametrize("ask", ASKS)
    @pytest.mark.parametrize("restart", [False, True])
    def test_others_are_refused_and_the_branch_stays(self, ask: Method, restart: bool) -> None:
        storage = MemoryStorage(random.Random(1))
        server = started(storage)
        prepared(client_of(server, "victim"))
        if restart:
            server = started(storage)
        mallory = client_of(server, "mallory")
        mallory.send(1, ask)
        fails_channel(mallory, 1, 403, "transaction branch", "refused for user 'mallory'")
        assert listed(client_of(server, "victim")) == [DATA]

    def test_others_do_not_see_it(self) -> None:
        server = started()
        prepared(client_of(server, "victim"))
        assert listed(client_of(server, "mallory")) == []
        assert listed(client_of(server, "monitor")) == [DATA]

    def test_others_do_not_join_it(self) -> None:
        server = started()
        victim, mallory = client_of(server, "victim"), client_of(server, "mallory")
        begin(victim, XID)
        mallory.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
        mallory.send(1, spec.DtxDemarcationStart(DATA, True))
        fails_channel(mallory, 1, 403)
        victim.call(1, spec.DtxDemarcationEnd(DATA), spec.DtxDemarcationEndOk)

    def test_monitoring_sees_and_does_not_decide(self) -> None:
        server = started()
        prepared(client_of(server, "victim"))
        monitor = client_of(server, "monitor")
        monitor.call(1, spec.DtxCoordinationGetTimeout(DATA), spec.DtxCoordinationGetTimeoutOk)
        monitor.send(1, spec.DtxCoordinationRollback(DATA))
        fails_channel(monitor, 1, 403)

    @pytest.mark.parametrize("user", ["victim", "friend", "admin"])
    @pytest.mark.parametrize("restart", [False, True])
    def test_its_owner_and_those_with_all_rights_decide_it(self, user: str, restart: bool) -> None:
        storage = MemoryStorage(random.Random(1))
        server = started(storage)
        prepared(client_of(server, "victim"))
        if restart:
            server = started(storage)
        client = client_of(server, user)
        assert listed(client) == [DATA]
        assert client.call(1, spec.DtxCoordinationCommit(DATA), spec.DtxCoordinationCommitOk).flags == XaStatus.OK

    def test_a_right_on_a_part_of_its_queues_is_not_enough(self) -> None:
        server = started()
        prepared(client_of(server, "victim"))
        server.broker.access.set_permission("mallory", "/", "^q$", "^(q|amq\\.default)$", "^q$")
        mallory = client_of(server, "mallory")
        mallory.send(1, spec.DtxCoordinationCommit(DATA))
        fails_channel(mallory, 1, 403)

    def test_an_operators_decision_is_forgotten_by_the_owner_only(self) -> None:
        storage = MemoryStorage(random.Random(1))
        server = started(storage)
        prepared(client_of(server, "victim"))
        server.broker.coordinator.force(XID, commit=False)
        server.end_turn()
        server.run_disk()
        server = started(storage)
        mallory = client_of(server, "mallory")
        mallory.send(1, spec.DtxCoordinationForget(DATA))
        fails_channel(mallory, 1, 403)
        client_of(server, "victim").call(1, spec.DtxCoordinationForget(DATA), spec.DtxCoordinationForgetOk)

    def test_an_administrator_without_permissions_does_not_get_bodies_back(self) -> None:
        server = started()
        victim = client_of(server, "victim")
        prepared(victim, mandatory=True)
        victim.call(1, spec.QueueDelete("to"), spec.QueueDeleteOk)
        admin = client_of(server, "admin")
        admin.call(1, spec.DtxCoordinationCommit(DATA), spec.DtxCoordinationCommitOk)
        assert not admin.inbox


@pytest.mark.rule("SEC-2")
class TestLimits:
    def test_branches_of_one_user_leave_room_for_others(self) -> None:
        server = started()
        server.broker.coordinator.limit(UserLimits(branches=2, prepared_branches=1))
        mallory = client_of(server, "mallory")
        for number in range(2):
            mallory.call(1, spec.ChannelClose(200, "", 0, 0), spec.ChannelCloseOk)
            mallory.open_channel(1)
            begin(mallory, Xid(1, b"mallory", b"%d" % number))
        mallory.open_channel(2)
        mallory.call(2, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
        mallory.send(2, spec.DtxDemarcationStart(Xid(1, b"mallory", b"3").encode()))
        fails_channel(mallory, 2, 506, "user 'mallory' has 2 open transaction branches", "branches_per_user")
        prepared(client_of(server, "victim"))

    def test_prepared_branches_of_one_user_leave_room_for_others(self) -> None:
        server = started()
        server.broker.coordinator.limit(UserLimits(prepared_branches=1))
        server.broker.access.set_permission("mallory", "/", ".*", ".*", ".*")
        prepared(client_of(server, "mallory"), MINE)
        mallory = client_of(server, "mallory")
        begin(mallory, Xid(1, b"mallory", b"2"))
        mallory.publish(1, "to", b"more")
        second = Xid(1, b"mallory", b"2").encode()
        mallory.call(1, spec.DtxDemarcationEnd(second), spec.DtxDemarcationEndOk)
        answer = mallory.call(1, spec.DtxCoordinationPrepare(second), spec.DtxCoordinationPrepareOk)
        assert answer.flags == XaStatus.RB_ROLLBACK
        prepared(client_of(server, "victim"))

    def test_applications_of_one_user_are_limited(self) -> None:
        server = started()
        server.broker.coordinator.limit(UserLimits(applications=1))
        mallory, victim = client_of(server, "mallory"), client_of(server, "victim")
        mallory.call(1, spec.EscrowDecide(1, b"g", {"bqual": []}, "a", 1), spec.EscrowDecideOk)
        mallory.call(1, spec.EscrowDecide(1, b"g", {"bqual": []}, "a", 2), spec.EscrowDecideOk)
        mallory.send(1, spec.EscrowDecide(1, b"g", {"bqual": []}, "b", 1))
        fails_channel(mallory, 1, 506, "applications_per_user")
        victim.call(1, spec.EscrowDecide(1, b"g", {"bqual": []}, "b", 1), spec.EscrowDecideOk)


@pytest.mark.rule("SEC-2")
class TestDecisions:
    def test_others_do_not_decide_a_branch(self) -> None:
        server = started()
        prepared(client_of(server, "victim"))
        mallory = client_of(server, "mallory")
        mallory.send(1, spec.EscrowDecide(1, XID.gtrid, {"bqual": [XID.bqual]}, "", 1))
        fails_channel(mallory, 1, 403)

    def test_a_decision_of_others_rolls_no_branch_back(self) -> None:
        server = started()
        prepared(client_of(server, "victim"))
        mallory = client_of(server, "mallory")
        mallory.call(1, spec.EscrowDecide(1, XID.gtrid, {"bqual": []}, "", 1), spec.EscrowDecideOk)
        assert listed(client_of(server, "victim")) == [DATA]

    def test_a_branch_of_others_does_not_disturb_a_decision(self) -> None:
        server = started()
        victim = client_of(server, "victim")
        prepared(victim)
        begin(client_of(server, "mallory"), Xid(1, XID.gtrid, b"intruder"))
        victim.call(1, spec.EscrowDecide(1, XID.gtrid, {"bqual": [XID.bqual]}, "app", 1), spec.EscrowDecideOk)
        assert victim.count(1, "to") == 1
        assert Xid(1, XID.gtrid, b"intruder") in server.broker.branches.by_xid

    @pytest.mark.parametrize("restart", ["", "log", "snapshot"])
    def test_others_neither_set_nor_read_progress(self, restart: str) -> None:
        storage = MemoryStorage(random.Random(1))
        server = started(storage)
        victim = client_of(server, "victim")
        victim.call(1, spec.EscrowDecide(1, b"g", {"bqual": []}, "app", 1), spec.EscrowDecideOk)
        if restart == "snapshot":
            server.begin_snapshot()
            server.run_disk()
        if restart:
            server = started(storage)
        mallory = client_of(server, "mallory")
        mallory.send(1, spec.EscrowDecide(1, b"g", {"bqual": []}, "app", (1 << 63) - 1))
        fails_channel(mallory, 1, 403, "the progress of application 'app'")
        mallory.open_channel(2)
        mallory.send(2, spec.EscrowProgress("app"))
        fails_channel(mallory, 2, 403)
        for user in ("victim", "monitor", "admin"):
            answer = client_of(server, user).call(1, spec.EscrowProgress("app"), spec.EscrowProgressOk)
            assert (answer.known, answer.epoch) == (True, 1)


@pytest.mark.rule("SEC-2")
class TestReservations:
    @pytest.mark.parametrize("restart", [False, True])
    @pytest.mark.parametrize(
        "ask",
        [
            pytest.param(ask, id=ask.NAME)
            for ask in (
                spec.EscrowHold("q", "etl", 1),
                spec.EscrowRead("q", "etl", 1),
                spec.EscrowSettle("q", "etl", 2),
                spec.EscrowRelease("q", "etl"),
                spec.EscrowSettle("q\n", "etl", 2),  # line ends are stripped
            )
        ],
    )
    def test_others_leave_it_alone_although_they_may_read_the_queue(self, ask: Method, restart: bool) -> None:
        storage = MemoryStorage(random.Random(1))
        server = started(storage)
        victim = client_of(server, "victim")
        victim.declare(1, "q")
        victim.publish(1, "q", b"1", b"2")
        victim.call(1, spec.EscrowHold("q", "etl", 1), spec.EscrowHoldOk)
        if restart:
            server = started(storage)
        friend = client_of(server, "friend")
        friend.send(1, ask)
        fails_channel(friend, 1, 403, "that group 'etl' holds")
        victim = client_of(server, "victim")
        victim.call(1, spec.EscrowSettle("q", "etl", 2), spec.EscrowSettleOk)
        friend.open_channel(2)
        friend.call(2, spec.EscrowHold("q", "etl", 1), spec.EscrowHoldOk)


@pytest.mark.rule("SEC-2")
class TestJournalsWithoutOwners:
    """`unowned` was written by a version without owners: a prepared branch as above, progress 7, a reservation."""

    def server(self) -> SimServer:
        return started(storage_of(Path(__file__).parent / "unowned"))

    def test_permissions_still_decide_who_may_decide(self) -> None:
        server = self.server()
        mallory = client_of(server, "mallory")
        mallory.send(1, spec.DtxCoordinationCommit(DATA))
        fails_channel(mallory, 1, 403)
        friend = client_of(server, "friend")
        assert listed(friend) == [DATA]
        friend.call(1, spec.DtxCoordinationCommit(DATA), spec.DtxCoordinationCommitOk)

    def test_progress_belongs_to_administrators_until_it_is_assigned(self) -> None:
        server = self.server()
        victim = client_of(server, "victim")
        victim.send(1, spec.EscrowProgress("app"))
        fails_channel(victim, 1, 403)
        answer = client_of(server, "admin").call(1, spec.EscrowProgress("app"), spec.EscrowProgressOk)
        assert answer.epoch == 7
        server.broker.coordinator.progress.assign("/\0app", "victim")
        victim.open_channel(2)
        victim.call(2, spec.EscrowDecide(1, b"g", {"bqual": []}, "app", 8), spec.EscrowDecideOk)

    def test_every_user_that_may_read_the_queue_settles_the_reservation(self) -> None:
        friend = client_of(self.server(), "friend")
        friend.call(1, spec.EscrowSettle("q", "etl", 2), spec.EscrowSettleOk)


class TestAudit:
    """Owners, resets and forced deletions are no violations, also with snapshots in between."""

    def snapshot(self, server: SimServer) -> None:
        server.begin_snapshot()
        server.run_disk()

    def test_a_life_of_branches_and_progress_is_clean(self, tmp_path: Path) -> None:
        storage = MemoryStorage(random.Random(1))
        server = started(storage)
        victim = client_of(server, "victim")
        prepared(victim)
        victim.call(1, spec.EscrowDecide(1, b"g", {"bqual": []}, "app", 7), spec.EscrowDecideOk)
        progress = server.broker.coordinator.progress
        progress.assign("/\0app", "friend")
        progress.assign("/\0new", "friend")
        server.end_turn()
        server.run_disk()
        self.snapshot(server)
        progress.reset("/\0app")
        victim.call(1, spec.EscrowDecide(1, b"g", {"bqual": []}, "app", 1), spec.EscrowDecideOk)
        self.snapshot(server)
        victim.lose()
        server.broker.directory.delete_vhost("/")
        server.end_turn()
        server.run_disk()
        self.snapshot(server)
        assert audited(export(storage, tmp_path / "journal")).wrong == []

    def test_a_journal_without_owners_is_clean(self, tmp_path: Path) -> None:
        storage = storage_of(Path(__file__).parent / "unowned")
        server = started(storage)
        server.broker.coordinator.progress.assign("/\0app", "victim")
        server.end_turn()
        server.run_disk()
        self.snapshot(server)
        assert audited(export(storage, tmp_path / "journal")).wrong == []
