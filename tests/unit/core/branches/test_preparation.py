"""Preparation: only a branch whose commit cannot fail is prepared."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.branch import Limits, Settlement
from escrowmq.core.branches.preparation import Preparation
from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xa_branch import XaBranch
from escrowmq.core.branches.xid import Xid
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records import kinds as records_module
from escrowmq.journal import format as fmt
from tests.unit.core.site import Site
from tests.unit.core.xa_site import X, XaSite


class Worker:
    def branch_expired(self, branch: XaBranch) -> None:
        raise AssertionError(branch)


@pytest.mark.rule("DTX-8")
@pytest.mark.parametrize("fits", [True, False])
def test_a_branch_whose_commit_record_would_be_too_long_is_not_prepared(
    fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejections are short in the PREPARE record; the messages that they dead-letter are in the record of the
    commit.
    """
    site = Site()
    site.queue("dead")
    queue = site.queue("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    site.publish("q", *[b"x" * 300] * 30)
    consumer, sink = site.consume(queue)
    site.turn()
    monkeypatch.setattr(records_module, "RECORD_BYTES", 20_000 if fits else 9_000)
    coordinator, worker = site.broker.coordinator, Worker()
    _, branch = site.broker.demarcations.start(worker, X, limits=Limits())
    assert branch is not None
    site.broker.transactions.enlist(
        branch, Settlement(consumer, [entry for _, entry in sink.got], Disposition.REJECTED)
    )
    site.broker.demarcations.end(worker, X)
    prepared = coordinator.prepare(X)
    if fits:
        assert prepared.status is XaStatus.OK
        assert coordinator.commit(X, one_phase=False).status is XaStatus.OK
    else:
        assert prepared.status is XaStatus.RB_ROLLBACK
        assert prepared.reason.endswith("9000 of one record; nothing of it was applied")
        assert len(sink.got) == 30
        site.broker.engine.unsubscribe(consumer)
    site.turn()
    assert (queue.ready, len(site.contents("dead"))) == ((0, 30) if fits else (30, 0))


def dead_lettering_site(count: int) -> XaSite:
    """A site with a branch that rejects `count` messages of differing envelopes, not yet prepared."""
    site = XaSite()
    site.broker.directory.delete_queue(site.q)
    queue = site.queue("q", {"x-dead-letter-exchange": "amq.fanout"})
    site.queue("dead")
    site.broker.directory.bind_queue(site.vhost, "amq.fanout", "dead", "")
    for i in range(count):
        site.publish("q", b"%d" % i, priority=i % 2)
    branch = site.start()
    entries = [site.broker.engine.get(queue, auto_settle=False) for _ in range(count)]
    found = [entry for entry in entries if entry is not None]
    site.broker.transactions.enlist(branch, Settlement(queue.getter, found, Disposition.REJECTED))
    site.end()
    return site


@pytest.mark.rule("DTX-8", "DUR-5")
@pytest.mark.parametrize("how", ["at once", "after a restart", "after a snapshot and a restart", "decided with others"])
def test_queues_bound_after_the_prepare_do_not_make_the_commit_fail(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 30
    site = dead_lettering_site(count)
    monkeypatch.setattr(records_module, "RECORD_BYTES", 70_000)
    monkeypatch.setattr(fmt, "MAX_RECORD", 80_000)
    assert site.coordinator.prepare(X).status is XaStatus.OK
    site.turn()
    for i in range(300):  # 30 x 300 x 12 bytes would not fit
        site.queue(f"late {i}")
        site.broker.directory.bind_queue(site.vhost, "amq.fanout", f"late {i}", "")
    site.turn()
    if "snapshot" in how:
        site.snapshot()
    if "restart" in how:
        site = site.restart()
    if how.startswith("decided"):
        site.coordinator.decide(X.gtrid, X.format_id, [X.bqual], application="", epoch=0)
    else:
        assert site.coordinator.commit(X, one_phase=False).status is XaStatus.OK
    site.turn()
    expected = [b"%d" % i for i in range(count)]
    assert site.contents("dead") == expected
    assert site.contents("late 7") == []
    again = site.restart()
    assert again.contents("dead") == expected
    assert again.branches.recover() == []


@pytest.mark.rule("DTX-8")
def test_dead_letters_of_a_prepared_branch_survive_the_end_of_their_exchange_and_of_a_queue() -> None:
    site = dead_lettering_site(2)
    site.queue("other")
    site.broker.directory.declare_exchange(site.vhost, "x", "fanout", durable=True)
    site.broker.directory.bind_queue(site.vhost, "amq.fanout", "other", "")
    assert site.coordinator.prepare(X).status is XaStatus.OK
    site.broker.directory.delete_queue(site.vhost.queue("other"))
    site.broker.directory.unbind_queue(site.vhost, "amq.fanout", "dead", "")
    assert site.coordinator.commit(X, one_phase=False).status is XaStatus.OK
    site.turn()
    assert site.contents("dead") == [b"0", b"1"]


@pytest.mark.rule("DTX-8", "DUR-5")
def test_branches_of_one_transaction_are_prepared_only_if_their_outcomes_fit_into_one_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = XaSite()
    monkeypatch.setattr(records_module, "RECORD_BYTES", 500)
    xids = [Xid(1, b"global", b"%d" % i) for i in range(12)]
    statuses = []
    for xid in xids:
        site.worked(xid, settle=0, publish=(b"new",))
        statuses.append(site.coordinator.prepare(xid).status)
    prepared = statuses.count(XaStatus.OK)
    assert 1 < prepared < 12
    assert statuses == [XaStatus.OK] * prepared + [XaStatus.RB_ROLLBACK] * (12 - prepared)
    winners = [xid.bqual for xid in xids[:prepared]]
    site.coordinator.decide(b"global", 1, winners, application="", epoch=0)
    site.turn()
    assert site.contents("to") == [b"new"] * prepared
    assert not site.broker.engine.outcomes
    site.worked(X, settle=0)
    assert site.coordinator.prepare(X).status is XaStatus.OK


@pytest.mark.rule("DTX-8", "DUR-5")
def test_a_branch_whose_prepare_record_would_be_too_long_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    site = XaSite()
    branch = site.worked(settle=0, publish=(b"x" * 100,))
    size = Preparation(site.broker.engine, branch)
    size.check()
    monkeypatch.setattr(records_module, "RECORD_BYTES", sum(map(len, size._parts)) - 1)
    assert site.coordinator.prepare(X).status is XaStatus.RB_ROLLBACK
    site.turn()
    assert site.contents("to") == []
