"""Finding branches, and their timeouts."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.branch import Limits
from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError, Condition
from tests.unit.core.xa_site import OK, X, XaSite

RB, TIMEOUT = XaStatus.RB_ROLLBACK, XaStatus.RB_TIMEOUT


@pytest.fixture
def site() -> XaSite:
    return XaSite()


@pytest.mark.rule("DTX-12")
class TestTimeouts:
    def test_an_active_branch_is_rolled_back_at_its_timeout(self, site: XaSite) -> None:
        site.publish("q", b"1")
        branch = site.start()
        site.settle(branch)
        assert site.branches.get_timeout(X) == 60
        site.after(59_999)
        assert site.contents("q") == []
        site.after(1)
        assert site.ready(site.q) == [(1, b"1", True)]
        assert site.worker.expired == [branch]
        site.broker.transactions.enlist(branch, site.publication("to", b"late"))
        assert site.end() is TIMEOUT
        assert site.coordinator.rollback(X).status is TIMEOUT
        assert site.branches.views() == []
        assert site.waiting() == ([b"1"], [])

    def test_a_prepared_branch_does_not_time_out(self, site: XaSite) -> None:
        site.prepared()
        site.after(10**9)
        assert site.branches.recover() == [X]
        site.branches.set_timeout(X, 1)
        site.after(10**9)
        assert site.coordinator.commit(X, one_phase=False).status is OK

    def test_a_new_timeout_replaces_the_old_one(self, site: XaSite) -> None:
        site.worked()
        site.after(50_000)
        site.branches.set_timeout(X, 20)
        site.after(19_999)
        assert site.branches.get_timeout(X) == 20
        site.branches.set_timeout(X, 0)
        site.after(10**9)
        assert site.coordinator.prepare(X).status is OK

    @pytest.mark.rule("TX-13")
    @pytest.mark.parametrize(("asked", "given"), [(0, 100), (50, 50), (500, 100)])
    def test_a_timeout_is_limited(self, site: XaSite, asked: int, given: int) -> None:
        site.start(limits=Limits(age=100_000))
        site.branches.set_timeout(X, asked)
        assert site.branches.get_timeout(X) == given

    def test_the_number_of_timed_out_branches_is_limited(self, site: XaSite, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("escrowmq.core.branches.registry.MAX_OVERDUE", 2)
        for i in range(4):
            site.worked(Xid(1, b"g", b"%d" % i), settle=0)
            site.after(1)
        site.after(60_000)
        assert [view.xid.bqual for view in site.branches.views()] == [b"2", b"3"]


@pytest.mark.rule("FAIR-3")
def test_no_branch_begins_while_the_disk_is_nearly_full_but_others_end(site: XaSite) -> None:
    site.prepared()
    site.broker.engine.scarcity = "low on disk"
    with pytest.raises(BrokerError, match=r"no room for transaction branch .*low on disk") as raised:
        site.start(Xid(1, b"another", b"branch"))
    assert raised.value.condition is Condition.LIMIT_EXCEEDED
    assert site.coordinator.commit(X, one_phase=False).status is OK
