"""The view of branches for operators."""

from __future__ import annotations

from escrowmq.core.branches.xa import Tally
from tests.unit.core.xa_site import X, XaSite


def test_a_branch_is_shown_before_and_after_prepare() -> None:
    site = XaSite()
    branch = site.worked(settle=2, publish=(b"a", b"bc"))
    branch.owner = "app"
    site.after(5)
    (active,) = site.branches.views()
    assert (active.xid, active.number, active.state, active.age) == (X, branch.number, "active", 5)
    assert (active.owner, active.timeout, active.workers) == ("app", 60, 0)
    assert active.published == (Tally("/", "to", 2, 3),)
    assert active.settled == (Tally("/", "q", 2, 10),)
    site.coordinator.prepare(X)
    site.turn()
    (prepared,) = site.branches.views()
    (found,) = site.restart().branches.views()
    for view in (prepared, found):
        assert (view.state, view.published, view.settled) == ("prepared", active.published, active.settled)
    assert (found.owner, found.age, found.timeout) == ("app", 5, 60)


def test_deleted_queues_are_left_out() -> None:
    site = XaSite()
    site.prepared()
    site.broker.directory.delete_queue(site.q)
    (view,) = site.branches.views()
    assert view.settled == ()
