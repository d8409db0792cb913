"""A branch with an xid, without its coordination."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.association import Association
from escrowmq.core.branches.branch import Limits, State
from escrowmq.core.branches.xa_branch import UNDONE, LoggedContents
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.kinds import Kind
from tests.unit.core.xa_site import Channel, XaSite


@pytest.fixture
def site() -> XaSite:
    return XaSite()


def test_paged_bodies_are_loaded_when_needed(site: XaSite) -> None:
    lsn = site.journal.append(Kind.PAGE, *encode_block(1, Envelope("", "q"), [b"a", b"bc", b"d"]))
    contents = LoggedContents(site.broker.engine.pager, lsn, 3)
    assert len(contents) == 3
    assert list(contents) == [b"a", b"bc", b"d"]
    assert (contents[1], contents[1:]) == (b"bc", [b"bc", b"d"])


@pytest.mark.rule("DTX-4")
@pytest.mark.parametrize(("association", "occupied"), [(a, a in (2, 3)) for a in Association])
def test_a_worker_that_has_not_ended_occupies_the_branch(
    site: XaSite, association: Association, occupied: bool
) -> None:
    branch = site.worked(settle=0)
    assert not branch.occupied
    branch.associations[Channel()] = association
    assert branch.occupied == occupied


@pytest.mark.rule("DTX-14")
@pytest.mark.parametrize("state", sorted(UNDONE))
def test_settlements_that_arrive_too_late_are_undone_immediately(site: XaSite, state: State) -> None:
    site.publish("q", b"1")
    branch = site.start()
    branch.state = state
    site.settle(branch)
    branch.enlist(site.publication("to", b"new"))
    assert branch.empty
    assert site.ready(site.q) == [(1, b"1", True)]


@pytest.mark.parametrize(
    ("age", "asked", "given"), [(0, 0, 0), (0, 7, 7), (5000, 0, 5), (5000, 7, 5), (5000, 3, 3), (10, 0, 1)]
)
def test_timeouts_are_limited(site: XaSite, age: int, asked: int, given: int) -> None:
    assert site.start(limits=Limits(age=age)).bounded(asked) == given
