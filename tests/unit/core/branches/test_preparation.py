"""Preparation: only a branch whose commit cannot fail is prepared."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.branch import Limits, Settlement
from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xa_branch import XaBranch
from escrowmq.core.branches.xid import Xid
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records import kinds as records_module
from tests.unit.core.site import Site

X = Xid(1, b"global", b"branch")


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
