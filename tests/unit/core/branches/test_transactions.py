"""Transactions without an xid: the effects of their commits and rollbacks."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.branch import Keep, Limits, Settlement, State
from escrowmq.core.branches.watch import Watch
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.marks import Marks, Modification
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records import kinds as records_module
from tests.unit.core.site import Hand, Site, dead_lettering, taken


@pytest.fixture
def site() -> Site:
    return Site()


class TestTransactions:
    @pytest.mark.rule("TX-5")
    @pytest.mark.rule("TX-8")
    def test_after_a_crash_a_commit_took_effect_as_a_whole_or_not_at_all(self, site: Site) -> None:
        one, _ = site.queue("one"), site.queue("two")
        site.publish("one", b"old", b"older")
        consumer, entries = taken(site, one)
        site.turn()
        branch = site.begin()
        site.broker.transactions.enlist(branch, Settlement(consumer, entries[:1], Disposition.ACCEPTED))
        site.broker.transactions.enlist(branch, site.publication("one", b"new"))
        site.broker.transactions.enlist(branch, site.publication("two", b"new"))
        result = site.broker.transactions.commit(branch)
        assert result.lsn == site.journal.end_lsn
        before = site.restart()
        assert (before.contents("one"), before.contents("two")) == ([b"old", b"older"], [])
        site.sync()
        after = site.restart()
        assert (after.contents("one"), after.contents("two")) == ([b"older", b"new"], [b"new"])

    @pytest.mark.rule("TX-12")
    def test_an_empty_commit_writes_nothing(self, site: Site) -> None:
        before = site.journal.end_lsn
        branch = site.begin()
        assert site.broker.transactions.commit(branch) == site.broker.transactions.commit(site.begin())
        assert site.journal.end_lsn == before
        assert branch.state is State.COMMITTED

    @pytest.mark.rule("ORD-4")
    def test_publishes_take_adjacent_positions_in_their_order(self, site: Site) -> None:
        site.queue()
        branch = site.begin()
        for i in range(5):
            site.broker.transactions.enlist(branch, site.publication("q", b"tx%d" % i))
            site.publish("q", b"plain%d" % i)
        site.broker.transactions.commit(branch)
        site.turn()
        expected = [b"plain%d" % i for i in range(5)] + [b"tx%d" % i for i in range(5)]
        assert site.contents() == site.restart().contents() == expected

    @pytest.mark.rule("TX-11")
    def test_a_queue_deleted_before_the_commit_is_left_out(self, site: Site) -> None:
        gone, stays = site.queue("gone"), site.queue("stays")
        for name in ("gone", "stays"):
            site.broker.directory.bind_queue(site.vhost, "amq.fanout", name, "")
        branch = site.begin()
        site.broker.transactions.enlist(branch, site.publication("gone", b"returned", mandatory=True))
        site.broker.transactions.enlist(branch, site.publication("gone", b"lost"))
        site.broker.transactions.enlist(branch, site.publication("", b"both", exchange="amq.fanout", mandatory=True))
        site.broker.directory.delete_queue(gone)
        site.queue("gone")
        result = site.broker.transactions.commit(branch)
        site.turn()
        assert [work.contents for work in result.returned] == [[b"returned"]]
        assert site.contents("stays") == [b"both"]
        assert site.contents("gone") == [], "the new one is another queue"
        assert stays.ready == 1

    @pytest.mark.rule("TX-3")
    @pytest.mark.rule("TX-4")
    def test_a_rollback_changes_nothing(self, site: Site) -> None:
        queue = site.queue()
        site.publish("q", b"a")
        consumer, sink = site.consume(queue, credit=1)
        site.publish("q", b"b")
        site.turn()
        branch = site.begin()
        site.broker.transactions.enlist(branch, Settlement(consumer, [sink.got[0][1]], Disposition.ACCEPTED))
        site.broker.transactions.enlist(branch, site.publication("q", b"new"))
        site.turn()
        assert (sink.contents, consumer.room()) == ([b"a"], 0)
        site.broker.transactions.rollback(branch)
        site.turn()
        assert (queue.unsettled, consumer.room(), site.contents()) == (1, 0, [b"b"])
        assert site.restart().contents() == [b"a", b"b"]

    def test_a_reject_dead_letters_in_the_record_of_the_commit(self, site: Site) -> None:
        queue, dead = dead_lettering(site)
        site.publish("q", b"a")
        consumer, entries = taken(site, queue)
        branch = site.begin()
        site.broker.transactions.enlist(branch, Settlement(consumer, entries, Disposition.REJECTED))
        assert dead.ready == 0
        site.broker.transactions.commit(branch)
        assert dead.ready == 0, "not before it is on disk"
        assert site.restart().contents() == [b"a"]
        site.sync()
        assert site.contents("dead") == [b"a"]
        assert (site.restart().contents(), site.restart().contents("dead")) == ([], [b"a"])

    def test_a_requeue_takes_effect_at_commit(self, site: Site) -> None:
        queue = site.queue()
        site.publish("q", b"a", b"b")
        consumer, entries = taken(site, queue)
        branch = site.begin()
        site.broker.transactions.enlist(branch, Settlement(consumer, entries[:1], Disposition.MODIFIED))
        assert queue.ready == 0
        site.broker.transactions.commit(branch)
        assert site.ready(queue) == [(1, b"a", True)]
        assert queue.unsettled == 1

    @pytest.mark.parametrize(("failed", "dead"), [(True, [b"a"]), (False, [])])
    def test_a_modification_takes_effect_at_commit(self, site: Site, failed: bool, dead: list[bytes]) -> None:
        queue, letters = dead_lettering(site, queue_type="quorum", delivery_limit=0)
        site.publish("q", b"a")
        consumer, entries = taken(site, queue)
        branch = site.begin()
        change = Modification(failed, {"x-reason": b"A"}, "link")
        site.broker.transactions.enlist(
            branch, Settlement(consumer, entries, Disposition.MODIFIED, modification=change)
        )
        assert queue.marks == {}
        site.broker.transactions.commit(branch)
        site.turn()
        site.sync()
        assert site.contents(letters.name) == dead
        assert [*queue.marks.values()] == ([] if failed else [Marks(0, {"x-reason": b"A"}, frozenset({"link"}))])

    @pytest.mark.rule("TX-3")
    def test_a_release_returns_the_message_without_counting_as_a_failure(self, site: Site) -> None:
        queue, _ = dead_lettering(site, queue_type="quorum", delivery_limit=0)
        site.publish("q", b"a", b"b")
        consumer, entries = taken(site, queue)
        branch = site.begin()
        site.broker.transactions.enlist(branch, Settlement(consumer, entries, Disposition.RELEASED))
        assert site.contents() == []
        site.broker.transactions.commit(branch)
        site.turn()
        assert (site.contents(), site.contents("dead"), queue.unsettled) == ([b"a", b"b"], [], 0)
        assert site.restart().vhost.queue("q").marks == queue.marks

    @pytest.mark.rule("TX-13")
    def test_the_age_counts_from_the_first_work(self, site: Site) -> None:
        site.queue()
        expired: list[bool] = []
        watch = Watch(site.broker.engine.deadlines, 100, lambda: expired.append(True))
        branch = site.broker.transactions.begin(Limits(age=100), watch)
        site.after(500)
        site.broker.transactions.enlist(branch, site.publication("q", b"a"))
        site.after(99)
        site.broker.transactions.enlist(branch, site.publication("q", b"b"))
        assert not expired
        site.after(1)
        assert expired
        site.broker.transactions.expire(branch)
        assert branch.state is State.TIMED_OUT
        with pytest.raises(BrokerError) as refused:
            site.broker.transactions.commit(branch)
        assert refused.value.condition is Condition.ILLEGAL_STATE
        assert site.restart().contents() == []

    @pytest.mark.rule("TX-5")
    @pytest.mark.rule("TX-13")
    @pytest.mark.parametrize("how", ["reject", "spend", "publish"])
    def test_a_transaction_that_does_not_fit_into_one_record_is_refused_as_a_whole(
        self, site: Site, how: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue, dead = dead_lettering(site, queue_type="quorum", delivery_limit=0)
        contents = [b"%03d" % i * 100 for i in range(30)]
        site.publish("q", *contents)
        consumer, entries = taken(site, queue)
        monkeypatch.setattr(records_module, "RECORD_BYTES", 9_000)
        branch, hand = site.begin(), Hand()
        site.broker.transactions.enlist(branch, site.publication("dead", b"x"))
        if how == "publish":
            for content in contents:
                site.broker.transactions.enlist(branch, site.publication("dead", content))
        else:
            said = Disposition.MODIFIED if how == "spend" else Disposition.REJECTED
            undo = Keep(hand, [0] * len(entries))
            site.broker.transactions.enlist(
                branch,
                Settlement(consumer, entries, said, undo),
            )
        with pytest.raises(BrokerError, match="9000 of one record; nothing of it was applied") as refused:
            site.broker.transactions.commit(branch)
        assert refused.value.condition is Condition.LIMIT_EXCEEDED
        site.turn()
        assert (dead.ready, queue.ready, queue.unsettled, branch.state) == (0, 0, 30, State.ACTIVE)
        site.broker.transactions.rollback(branch)
        assert how == "publish" or hand.kept == entries
        site.broker.engine.settle(consumer, entries, Disposition.REJECTED)
        site.turn()
        assert (site.contents("dead"), site.restart().contents("dead")) == (contents, contents)

    def test_a_queue_that_refuses_makes_the_whole_commit_fail(self, site: Site) -> None:
        site.queue("q", {"x-max-length": 2, "x-overflow": "reject-publish"})
        site.queue("other")
        branch = site.begin()
        site.broker.transactions.enlist(branch, site.publication("other", b"x"))
        for i in range(3):
            site.broker.transactions.enlist(branch, site.publication("q", b"%d" % i))
        with pytest.raises(BrokerError, match="nothing of it was applied") as refused:
            site.broker.transactions.commit(branch)
        assert refused.value.condition is Condition.LIMIT_EXCEEDED
        site.turn()
        assert (site.contents(), site.contents("other"), branch.state) == ([], [], State.ACTIVE)
        site.broker.transactions.rollback(branch)


@pytest.mark.rule("FAIR-1")
@pytest.mark.rule("TX-13")
def test_a_message_counts_once_for_each_of_its_queues() -> None:
    site = Site()
    for name in "abcd":
        site.queue(name)
        site.broker.directory.bind_queue(site.vhost, "amq.fanout", name, "")
    transactions, branch = site.broker.transactions, site.begin(Limits(operations=9))
    transactions.enlist(branch, site.publication("", b"x", exchange="amq.fanout"))
    transactions.enlist(branch, site.publication("", b"y", exchange="amq.fanout"))
    transactions.large = 8
    assert not transactions.is_large(branch)
    transactions.large = 7
    assert transactions.is_large(branch)
    transactions.enlist(branch, site.publication("a", b"z"))
    with pytest.raises(BrokerError, match="more than 9 operations"):
        transactions.enlist(branch, site.publication("a", b"z"))
    transactions.rollback(branch)
    transactions.begin_again(branch)
    assert not transactions.is_large(branch)
