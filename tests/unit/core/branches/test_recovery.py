"""Branches that are in doubt when the broker crashes."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.branch import State
from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xid import Xid
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.recovery.relocation import Relocation
from tests.unit.core.xa_site import OK, X, XaSite

TAKEN = ([b"old 2"], [b"new"])
GIVEN_BACK: tuple[list[bytes], list[bytes]] = ([b"old 0", b"old 1", b"old 2"], [])


@pytest.fixture
def site() -> XaSite:
    site = XaSite()
    site.prepared(settle=2)
    return site


def compact(site: XaSite) -> None:
    """Move all living messages to the end of the log."""
    for segment in site.journal._table:
        work = Relocation(site.broker, segment.first_lsn, segment.end_lsn)
        while work.step():
            pass
    site.turn()


@pytest.mark.rule("DTX-8", "DTX-10")
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("before", ["nothing", "a snapshot", "two snapshots", "compaction and a snapshot", "restarts"])
def test_either_outcome_is_possible(site: XaSite, before: str, commit: bool) -> None:
    if before.startswith("compaction"):
        compact(site)
    if "snapshot" in before:
        for _ in range(40):  # the segment with the branch is far behind the snapshot
            site.publish("q", b"x" * 200)
            site.turn()
            site.broker.engine.get(site.q, auto_settle=True)
        site.broker.directory.purge(site.q)
        site.publish("q", b"old 2")
        site.turn()
        site.snapshot()
        if before.startswith("two"):
            site = site.restart()
            site.snapshot()
    if before == "restarts":
        site = site.restart().restart()
    again = site.restart()
    assert again.branches.recover() == [X]
    assert again.waiting() == ([b"old 2"], [])
    assert again.q.unsettled == 2
    live = again.live()
    result = again.coordinator.commit(X, one_phase=False) if commit else again.coordinator.rollback(X)
    assert (result.status, result.lsn) == (OK, again.journal.end_lsn)
    again.turn()
    expected = TAKEN if commit else GIVEN_BACK
    assert again.waiting() == expected
    assert again.q.unsettled == 0
    assert again.live() == live - (2 if commit else 1)
    last = again.restart()
    assert last.waiting() == expected
    assert last.branches.recover() == []
    if not commit:
        assert [redelivered for _, _, redelivered in last.ready(last.q)[:2]] == [True, True]


@pytest.mark.rule("DTX-8")
def test_a_branch_whose_prepare_is_not_on_disk_was_not_prepared() -> None:
    site = XaSite()
    site.worked()
    site.sync()
    site.coordinator.prepare(X)
    again = site.restart()
    assert again.branches.views() == []
    assert again.waiting() == ([b"old 0", b"old 1"], [])


@pytest.mark.rule("ORD-5")
def test_positions_of_commits_survive_compaction(site: XaSite) -> None:
    site.publish("to", b"before")
    site.coordinator.commit(X, one_phase=False)
    site.publish("to", b"after")
    site.turn()
    compact(site)
    site.snapshot()
    assert site.restart().contents("to") == [b"before", b"new", b"after"]


def test_queues_that_are_deleted_while_the_branch_is_in_doubt_are_left_out(site: XaSite) -> None:
    site.broker.directory.delete_queue(site.q)
    site.broker.directory.delete_queue(site.vhost.queue("to"))
    site.turn()
    again = site.restart()
    assert again.coordinator.commit(X, one_phase=False).status is OK
    again.turn()
    assert again.waiting() == ([], [])  # the queues of these names are new ones
    assert again.live() == 0


@pytest.mark.rule("TX-11")
def test_a_mandatory_message_without_a_queue_is_returned_after_a_restart() -> None:
    site = XaSite()
    branch = site.start()
    site.broker.transactions.enlist(branch, site.publication("to", b"back", mandatory=True))
    site.end()
    site.coordinator.prepare(X)
    site.broker.directory.delete_queue(site.vhost.queue("to"))
    site.turn()
    again = site.restart()
    result = again.coordinator.commit(X, one_phase=False)
    assert [publication.contents for publication in result.returned] == [[b"back"]]
    assert again.live() == 0


@pytest.mark.rule("TX-7", "TX-11")
@pytest.mark.parametrize("how", ["nothing", "a snapshot"])
@pytest.mark.parametrize("key", ["nowhere", "fleeting"])
def test_a_mandatory_message_without_a_durable_queue_is_returned_after_a_restart(key: str, how: str) -> None:
    site = XaSite()
    site.queue("fleeting", durable=False)
    branch = site.start()
    site.broker.transactions.enlist(branch, site.publication(key, b"back", mandatory=True))
    site.end()
    assert site.coordinator.prepare(X).status is OK
    site.turn()
    if how == "a snapshot":
        site.snapshot()
    again = site.restart()
    result = again.coordinator.commit(X, one_phase=False)
    assert [publication.contents for publication in result.returned] == [[b"back"]]
    again.turn()
    assert again.live() == 0


@pytest.mark.rule("DTX-8", "DTX-14")
@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_a_restart_while_a_branch_is_in_doubt_counts_as_no_delivery(restarts: int) -> None:
    site = XaSite()
    site.broker.directory.delete_queue(site.q)
    site.queue("q", {"x-queue-type": "quorum", "x-delivery-limit": 1})
    site.prepared(settle=1)
    for _ in range(restarts):
        site = site.restart()
    site.coordinator.rollback(X)
    site.turn()
    assert site.ready(site.q) == [(1, b"old 0", True), (2, b"old 1", False)], "delivered once, and once is allowed"


@pytest.mark.rule("DTX-11", "DTX-14")
def test_a_snapshot_of_a_forced_rollback_that_is_not_on_disk_yet_locks_nothing(site: XaSite) -> None:
    site.coordinator.force(X, commit=False)
    site.snapshot()
    again = site.restart()
    assert again.waiting() == GIVEN_BACK
    assert again.q.unsettled == 0
    assert again.coordinator.rollback(X).status is XaStatus.HEUR_RB
    again.coordinator.forget(X)
    again.turn()
    assert again.restart().waiting() == GIVEN_BACK


@pytest.mark.parametrize("disposition", [Disposition.REJECTED, Disposition.MODIFIED])
def test_other_dispositions_survive_a_restart(disposition: Disposition) -> None:
    site = XaSite()
    site.broker.directory.delete_queue(site.q)
    site.queue("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "to"})
    site.prepared(disposition=disposition)
    again = site.restart()
    again.coordinator.commit(X, one_phase=False)
    again.turn()
    settled = ([b"old 0", b"old 1"], [b"new"]) if disposition.returns else ([b"old 1"], [b"new", b"old 0"])
    assert again.waiting() == settled


def test_numbers_of_branches_are_never_reused(site: XaSite) -> None:
    first = site.branches.views()[0].number
    again = site.restart()
    assert again.start(Xid(1, b"next", b"")).number == first + 1
    again.snapshot()
    third = again.restart()
    assert third.start(Xid(1, b"third", b"")).number > first + 1


def test_a_restored_branch_has_its_former_state(site: XaSite) -> None:
    site.branches.set_timeout(X, 7)
    site.snapshot()
    found = site.restart().branches
    (branch,) = found.views()
    assert branch.state == State.PREPARED.name.lower()
    assert found.get_timeout(X) == 7
