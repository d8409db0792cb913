"""The branches of one user are counted apart from those of others."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.shares import UserLimits
from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError, Condition
from tests.unit.core.xa_site import Channel, X, XaSite, Y


@pytest.mark.rule("SEC-2")
def test_ended_branches_leave_room() -> None:
    site = XaSite()
    site.branches.limits = UserLimits(branches=1, prepared_branches=1)
    site.prepared(settle=0)
    site.worked(Y, settle=0)  # a prepared branch is not open any more
    with pytest.raises(BrokerError) as refused:
        site.start(Xid(1, b"global", b"three"), Channel())
    assert refused.value.condition is Condition.LIMIT_EXCEEDED
    site.coordinator.rollback(Y)
    site.coordinator.rollback(X)
    site.turn()
    site.prepared(Y, settle=0)


@pytest.mark.rule("SEC-2")
def test_restored_branches_count() -> None:
    site = XaSite()
    site.prepared(settle=0)
    again = site.restart()
    again.branches.limits = UserLimits(prepared_branches=1)
    with pytest.raises(BrokerError, match="in doubt"):
        again.branches.check_prepare(again.branches.find(X))
