"""Copies of branches in doubt for a snapshot."""

from __future__ import annotations

from itertools import pairwise

import pytest

from escrowmq.core.branches.capture import BranchCaptures, CapturedBranch
from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xid import Xid
from escrowmq.core.records.branches import decode_prepare
from escrowmq.core.records.kinds import Kind
from escrowmq.core.recovery.snapshot import Capture
from tests.unit.core.xa_site import X, XaSite, Y


def record(copy: CapturedBranch) -> bytes:
    kind, parts = copy.record()
    assert kind is Kind.PREPARE
    return b"".join(parts)


@pytest.mark.rule("DTX-8")
def test_a_copy_is_the_state_at_its_time_whatever_happens_to_the_branch_later() -> None:
    site = XaSite()
    branch = site.prepared(settle=2, publish=(b"a", b"b"))
    copy = CapturedBranch(branch)
    before = record(copy)
    found = decode_prepare(before, 0)
    assert (len(found.runs), [item.ranges for item in found.settlements]) == (1, [[(1, 2)]])
    site.coordinator.rollback(X)
    site.turn()
    assert branch.settlements == []
    assert [entry.position for _, entries in copy.held for entry in entries] == [1, 2]
    assert record(copy) == before


def test_a_copy_is_outdated_when_the_branch_is_decided_or_has_another_timeout() -> None:
    site = XaSite()
    captures = BranchCaptures(site.branches.by_xid)
    first, second = site.prepared(X), site.prepared(Y)
    active = site.start(Xid(1, b"global", b"active"))
    assert captures.outdated() == [first, second], f"{active.title} is not in doubt"
    for branch in (first, second):
        assert captures.take(branch) > 1
    assert captures.outdated() == []
    site.branches.set_timeout(X, 7)
    site.coordinator.force(Y, commit=False)
    assert captures.outdated() == [first, second]
    for branch in (first, second):
        captures.take(branch)
    assert captures.outdated() == []
    assert decode_prepare(record(captures.finish()[first]), 0).timeout == 7
    assert captures.finish()[second].held == []
    site.coordinator.forget(Y)
    assert [*captures.finish()] == [first]
    assert captures.take(second) == 1, "a branch that is not in doubt any more is not copied"


@pytest.mark.rule("FAIR-1", "DTX-8")
@pytest.mark.parametrize("decided", ["before its copy", "after its copy"])
def test_a_snapshot_copies_branches_in_pieces_and_has_the_state_of_its_last_step(decided: str) -> None:
    site = XaSite()
    xids = [Xid(1, b"global", b"%d" % i) for i in range(40)]
    for xid in xids:
        site.prepared(xid)
    capture = Capture(site.broker, piece=4)
    chosen = xids[-1] if decided == "before its copy" else xids[0]
    copied, steps = capture._branches._taken, []
    while not capture.step():
        steps.append(len(copied))
        if len(steps) == 2:
            assert (site.branches.find(chosen) in copied) is (decided != "before its copy")
            site.coordinator.commit(chosen, one_phase=False)
            site.turn()
    assert len(steps) > 5
    assert max(after - before for before, after in pairwise(steps)) <= 5
    prepared = [b"".join(parts) for kind, parts in capture.records() if kind is Kind.PREPARE]
    left = [xid for xid in xids if xid is not chosen]
    assert [Xid.decode(decode_prepare(each, 0).xid) for each in prepared] == left


@pytest.mark.rule("DTX-11")
def test_a_restart_from_a_snapshot_has_all_branches_in_doubt_with_their_work() -> None:
    site = XaSite()
    site.prepared(X, settle=2, publish=(b"a",))
    site.prepared(Y)
    site.coordinator.force(Y, commit=False)
    site.snapshot()
    again = site.restart()
    assert again.branches.recover() == [X, Y]
    assert again.coordinator.commit(Y, one_phase=False).status is XaStatus.HEUR_RB
    again.coordinator.commit(X, one_phase=False)
    again.turn()
    assert again.contents("to") == [b"a"]
