"""Associations of workers with branches; the table of calls by states is in test_coordinator.py."""

from __future__ import annotations

from functools import partial

import pytest

from escrowmq.core.branches.branch import Limits
from escrowmq.core.branches.shares import UserLimits
from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.conditions import BrokerError, Condition
from tests.unit.core.xa_site import OK, Channel, X, XaSite, Y

RB, TIMEOUT = XaStatus.RB_ROLLBACK, XaStatus.RB_TIMEOUT


@pytest.fixture
def site() -> XaSite:
    return XaSite()


class TestDemarcation:
    @pytest.mark.rule("DTX-3")
    def test_a_worker_has_one_branch_at_a_time(self, site: XaSite) -> None:
        site.start()
        with pytest.raises(BrokerError, match="end that before") as refused:
            site.demarcations.start(site.worker, Y, limits=Limits())
        assert refused.value.condition is Condition.COMMAND_INVALID
        assert [view.xid for view in site.branches.views()] == [X]
        assert site.end() is OK
        site.start(Y)
        with pytest.raises(BrokerError, match="end that before"):
            site.demarcations.start(site.worker, X, join=True, limits=Limits())

    @pytest.mark.rule("DTX-5")
    def test_a_worker_can_start_another_branch_while_the_first_is_suspended(self, site: XaSite) -> None:
        site.start()
        assert site.end(suspend=True) is OK
        site.start(Y)
        assert site.end(Y) is OK
        site.start(resume=True)
        assert site.end() is OK

    @pytest.mark.rule("DTX-4")
    def test_prepare_requires_that_all_workers_have_ended(self, site: XaSite) -> None:
        other = Channel()
        one = site.start()
        assert site.start(worker=other, join=True) is one
        site.broker.transactions.enlist(one, site.publication("to", b"new"))
        assert site.end() is OK
        coordinator = site.coordinator
        for call in (coordinator.prepare, coordinator.rollback, partial(coordinator.commit, one_phase=True)):
            with pytest.raises(BrokerError, match="still associated") as refused:
                call(X)
            assert refused.value.condition is Condition.ILLEGAL_STATE
        assert site.end(worker=other) is OK
        assert site.coordinator.commit(X, one_phase=True).status is OK
        site.turn()
        assert site.contents("to") == [b"new"]

    @pytest.mark.rule("DTX-7", "DTX-14")
    @pytest.mark.parametrize("suspended", [False, True])
    def test_a_worker_that_leaves_rolls_its_branch_back(self, site: XaSite, suspended: bool) -> None:
        site.publish("q", b"1", b"2")
        branch = site.start()
        site.settle(branch)
        site.broker.transactions.enlist(branch, site.publication("to", b"new"))
        if suspended:
            site.end(suspend=True)
        site.demarcations.leave(site.worker)
        assert site.ready(site.q) == [(1, b"1", True), (2, b"2", False)]
        assert site.coordinator.prepare(X).status is RB
        assert site.branches.views() == []
        assert site.contents("to") == []
        site.demarcations.leave(site.worker)

    @pytest.mark.rule("DTX-7")
    def test_a_worker_that_leaves_after_its_end_does_not_affect_the_branch(self, site: XaSite) -> None:
        site.worked()
        site.demarcations.leave(site.worker)
        assert site.coordinator.prepare(X).status is OK

    @pytest.mark.rule("DTX-7")
    def test_other_workers_can_continue_in_a_failed_branch_without_effect(self, site: XaSite) -> None:
        other = Channel()
        branch = site.start()
        site.start(worker=other, join=True)
        site.demarcations.leave(site.worker)
        site.publish("q", b"1")
        site.settle(branch)
        site.broker.transactions.enlist(branch, site.publication("to", b"new"))
        assert site.ready(site.q) == [(1, b"1", True)]
        assert site.q.unsettled == 0
        assert site.end(worker=other) is RB
        assert site.coordinator.commit(X, one_phase=True).status is RB
        assert site.waiting() == ([b"1"], [])

    def test_an_abandoned_branch_times_out_and_is_forgotten(self, site: XaSite) -> None:
        site.start()
        site.branches.set_timeout(X, 0)
        site.demarcations.leave(site.worker)
        site.after(60_000)
        assert site.branches.views()[0].state == "timed_out"
        site.after(30 * 60_000)
        assert site.branches.views() == []

    @pytest.mark.rule("TX-13")
    def test_the_number_of_branches_is_limited(self, site: XaSite) -> None:
        site.branches.limits = UserLimits(branches=1)
        site.worked()
        with pytest.raises(BrokerError, match="1 open transaction branches") as refused:
            site.demarcations.start(site.worker, Y, limits=Limits())
        assert refused.value.condition is Condition.LIMIT_EXCEEDED
        site.after(60_001)
        site.start(Y)

    @pytest.mark.rule("TX-13")
    def test_the_work_of_a_branch_is_limited(self, site: XaSite) -> None:
        site.publish("q", b"1", b"2")
        branch = site.start(limits=Limits(operations=1))
        site.settle(branch)
        with pytest.raises(BrokerError) as refused:
            site.settle(branch)
        assert refused.value.condition is Condition.LIMIT_EXCEEDED
        assert site.ready(site.q) == [(2, b"2", True)]
        site.demarcations.leave(site.worker)  # as a channel that is closed because of it does
        assert site.contents("q") == [b"1", b"2"]
