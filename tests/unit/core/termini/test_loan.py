"""A link acts on its terminus through a loan, until it is detached, closed or stolen."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.core.branches.branch import Keep, Settlement, TransactionBranch
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.engine import Receipt
from escrowmq.core.messages.marks import Modification
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.commits import decode_commit
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.termini import decode_acquired, decode_forgotten, decode_given_back
from escrowmq.core.termini.arrivals import Arrival, fingerprint_of
from escrowmq.core.termini.terminus import TerminusInput
from tests.unit.core.site import Site
from tests.unit.core.termini.links import (
    BRIEF,
    KEPT,
    Account,
    TestedLink,
    attached_again,
    consuming,
    incoming,
    outgoing,
)

ACCEPTED, REJECTED, RELEASED, MODIFIED = Disposition


@pytest.mark.rule("SET-10")
def test_a_transfer_waits_for_the_record_of_its_acquisition() -> None:
    site = Site()
    link = consuming(site, b"a", b"b", settings=KEPT)
    queue = site.vhost.queue("q")
    assert [(number, entry.content) for number, entry, _ in link.got] == [(1, b"a"), (2, b"b")]
    (record,) = site.records(Kind.ACQUIRED)
    assert decode_acquired(record) == (1, queue.ident, [(1, 1, 2)])
    ends = {lsn for _, _, lsn in link.got}
    assert len(ends) == 1
    assert 0 < ends.pop() <= site.journal.end_lsn


def test_a_transfer_leaves_at_once_if_nothing_of_it_survives_a_restart() -> None:
    site = Site()
    link = consuming(site, b"a", settings=BRIEF)
    site.publish("q", b"transient", durable=False)
    site.turn()
    durable = TestedLink(site, outgoing("other"), KEPT)
    durable.consume(site.vhost.queue("q"))
    link.loan.close()
    site.turn()
    assert [lsn for _, _, lsn in link.got] == [0, 0]
    assert [lsn > 0 for _, _, lsn in durable.got] == [True, True]  # in one record with the durable message
    assert [decode_acquired(record).ranges for record in site.records(Kind.ACQUIRED)] == [[(1, 1, 1)]]


def test_settled_deliveries_leave_the_terminus_and_their_queue() -> None:
    site = Site()
    link = consuming(site, b"a", b"b", b"c")
    assert link.loan.settle(2, 9, ACCEPTED) == 2
    lsn = site.broker.termini.record()
    assert lsn == site.journal.end_lsn
    assert link.terminus.deliveries.count == 1
    assert site.vhost.queue("q").unsettled == 1
    assert link.loan.settle(2, 3, ACCEPTED) == 0
    site.turn()
    again = Site(site.storage)
    assert again.broker.termini.by_key[outgoing()].deliveries.count == 1


@pytest.mark.parametrize("disposition", [RELEASED, MODIFIED, Modification(failed=True)])
def test_returned_deliveries_are_no_longer_acquired(disposition: Disposition | Modification) -> None:
    site = Site()
    link = consuming(site, b"a", b"b", credit=2)
    assert link.loan.settle(1, 1, disposition) == 1
    (record,) = site.records(Kind.GIVEN_BACK)
    assert decode_given_back(record) == (1, site.vhost.queue("q").ident, [(1, 1)])
    assert site.contents() == [b"a"]
    again = site.restart()
    assert again.contents() == [b"a"]
    assert again.broker.termini.by_key[outgoing()].deliveries.count == 1


def test_a_message_that_is_delivered_again_has_another_number_and_tag() -> None:
    site = Site()
    link = consuming(site, b"a", credit=2)
    ((_, before),) = link.terminus.deliveries.tags()
    link.loan.settle(1, 1, RELEASED)
    site.turn()
    ((number, after),) = link.terminus.deliveries.tags()
    assert number == 2
    assert before != after
    assert link.terminus.deliveries.number_of(before) is None


def test_an_outcome_that_the_receiver_knows_is_applied_when_it_resumes() -> None:
    site = Site()
    tags = [tag for _, tag in consuming(site, b"a", b"b").terminus.deliveries.tags()]
    site.sync()
    site = site.restart()
    link = attached_again(site, outgoing())
    assert link.loan.settle_tags([tags[1], b"unknown"], ACCEPTED) == 1
    assert [tag for _, tag in link.terminus.deliveries.tags()] == tags[:1]
    site.turn()
    assert len(site.records(Kind.SETTLE)) == 1


def test_deliveries_that_are_sent_again_wait_for_their_acquisition_too() -> None:
    site = Site()
    for settings in (KEPT, BRIEF):
        link = consuming(site, b"a", settings=settings)
        link.loan.detach()
        again = TestedLink(site, outgoing(), settings, TerminusInput.RESUME)
        (taken,), lsn = again.loan.take_up([1, 2])
        assert taken.entry.content == b"a"
        assert lsn == (site.journal.end_lsn if settings is KEPT else 0)
        again.loan.settle(1, 1, ACCEPTED)
        again.loan.close()


@pytest.mark.rule("SET-3")
def test_an_attach_waits_until_settlements_of_the_earlier_link_are_on_disk() -> None:
    site = Site()
    link = consuming(site, b"a")
    link.loan.settle(1, 1, ACCEPTED)
    again = attached_again(site, link)
    assert again.loan.lsn == site.journal.end_lsn
    assert len(site.records(Kind.SETTLE)) == 1


@pytest.mark.rule("SET-9")
def test_settled_tags_are_recorded_once_in_a_turn_and_can_be_used_again_at_once() -> None:
    site = Site()
    site.queue()
    link = TestedLink(site, incoming())
    link.post([b"1", b"2"], [b"a", b"b"])
    link.loan.forget([b"1"])
    link.loan.forget([b"2"])
    assert site.records(Kind.FORGOTTEN) == []
    site.turn()
    assert [decode_forgotten(record) for record in site.records(Kind.FORGOTTEN)] == [(1, [b"1", b"2"])]
    link.post([b"1"], [b"c"])
    link.loan.forget([b"1"])
    link.post([b"1"], [b"d"])  # in the same turn: the log must learn of the settlement first
    site.turn()
    again = site.restart()
    assert again.broker.termini.by_key[incoming()].arrivals.accepted() == ([b"1"], [fingerprint_of(b"d")], [])
    assert again.contents() == [b"a", b"b", b"c", b"d"]


def test_a_tag_of_an_unsettled_delivery_is_refused() -> None:
    site = Site()
    site.queue()
    link = TestedLink(site, incoming())
    link.post([b"1"], [b"a"])
    with pytest.raises(BrokerError) as refused:
        link.post([b"1"], [b"b"])
    assert refused.value.condition is Condition.ILLEGAL_STATE
    site.sync()
    assert site.contents() == [b"a"]


@pytest.mark.rule("FAIR-3")
def test_unsettled_messages_of_a_link_are_limited() -> None:
    site = Site()
    site.queue()
    site.broker.termini.limits.unsettled = 2
    link = TestedLink(site, incoming())
    link.post([b"1", b"2"], [b"a", b"b"])
    for refuse in (lambda: link.post([b"3"], [b"c"]), lambda: link.loan.note(b"3", REJECTED, b"c")):
        with pytest.raises(BrokerError, match="has 2 unsettled deliveries; the limit is 2") as refused:
            refuse()
        assert refused.value.condition is Condition.LIMIT_EXCEEDED


@pytest.mark.rule("SET-9")
@pytest.mark.rule("SET-3")
def test_after_a_crash_the_same_message_is_recognised_and_a_new_one_with_its_tag_is_published() -> None:
    site = Site()
    site.queue()
    TestedLink(site, incoming()).post([b"1", b"2"], [b"a", b"b"])
    site.sync()
    site = site.restart()
    link = attached_again(site, incoming())
    assert link.loan.reconcile({b"1": False, b"2": False}, complete=True) == {b"1": None, b"2": None}
    assert link.resumed(b"1", b"a") == Arrival(ACCEPTED, fingerprint_of(b"a"))
    assert isinstance(link.resumed(b"2", b"new"), Receipt)
    assert isinstance(link.resumed(b"3", b"c"), Receipt)
    site.turn()
    assert site.contents() == [b"a", b"b", b"new", b"c"]
    again = site.restart().broker.termini.by_key[incoming()].arrivals
    assert again.get(b"2") == Arrival(ACCEPTED, fingerprint_of(b"new"))


def test_tags_that_a_resuming_sender_has_settled_are_forgotten() -> None:
    site = Site()
    site.queue()
    link = TestedLink(site, incoming())
    link.post([b"1", b"2"], [b"a", b"b"])
    link.loan.detach()
    again = attached_again(site, link)
    found = again.loan.reconcile({b"1": True}, complete=True)
    assert found == {b"1": Arrival(ACCEPTED, fingerprint_of(b"a"))}
    site.turn()
    assert site.restart().broker.termini.by_key[incoming()].arrivals.accepted()[0] == [b"1"]


def test_outcomes_of_messages_that_were_not_enqueued_are_remembered() -> None:
    site = Site()
    link = TestedLink(site, incoming())
    link.loan.note(b"1", RELEASED, b"a", b"detail")
    assert link.terminus.arrivals.get(b"1") == Arrival(RELEASED, fingerprint_of(b"a"), b"detail")
    link.loan.forget([b"1"])
    site.turn()
    assert link.terminus.arrivals.count == 0
    assert site.records(Kind.FORGOTTEN) == []  # the log had never heard of it


@pytest.mark.rule("SET-12")
@pytest.mark.parametrize(
    "use",
    [
        lambda link: link.loan.acquire(link.site.vhost.queue("q").getter, []),
        lambda link: link.consume(link.site.vhost.queue("q")),
        lambda link: link.post([b"1"], [b"a"]),
        lambda link: link.resumed(b"1", b"a"),
        lambda link: link.loan.note(b"1", RELEASED, b"a"),
        lambda link: link.loan.settle_tags([], ACCEPTED),
        lambda link: link.loan.reconcile({}, complete=True),
    ],
)
def test_nothing_can_be_done_through_a_void_loan(use: Callable[[TestedLink], object]) -> None:
    site = Site()
    site.queue()
    link = TestedLink(site, outgoing())
    link.loan.detach()
    with pytest.raises(AssertionError, match="is not on loan to this link any more"):
        use(link)


def test_the_end_of_a_void_loan_has_no_effect() -> None:
    site = Site()
    link = consuming(site, b"a")
    thief = attached_again(site, link)
    for end in (link.loan.detach, link.loan.session_ended, link.loan.connection_lost, link.loan.close):
        assert not end()
        assert thief.loan.current
        assert thief.terminus.deliveries.count == 1


class TestBranches:
    """Deliveries and messages of exactly-once links in a transaction."""

    def enlisted(self, site: Site, disposition: Disposition) -> tuple[TestedLink, TransactionBranch]:
        link = consuming(site, b"a", b"b", credit=2)
        branch = site.begin()
        for consumer, numbers, entries in link.loan.enlist(branch, 1, 1):
            undo = Keep(link.loan, numbers)
            site.broker.transactions.enlist(branch, Settlement(consumer, entries, disposition, undo))
        return link, branch

    @pytest.mark.rule("SET-7")
    def test_a_rollback_leaves_deliveries_with_the_link(self) -> None:
        site = Site()
        link, branch = self.enlisted(site, ACCEPTED)
        assert link.terminus.deliveries.numbers() == [2]
        site.broker.transactions.rollback(branch)
        assert link.terminus.deliveries.numbers() == [1, 2]
        assert link.loan.settle(1, 1, ACCEPTED) == 1

    @pytest.mark.rule("SET-7")
    def test_a_rollback_after_the_end_of_the_terminus_gives_the_default_outcome(self) -> None:
        site = Site()
        link, branch = self.enlisted(site, ACCEPTED)
        link.loan.close()
        assert site.contents() == [b"b"]
        site.broker.transactions.rollback(branch)
        assert site.contents() == [b"a", b"b"]

    @pytest.mark.rule("SET-7", "SET-12")
    def test_a_rollback_after_another_link_has_resumed_gives_the_default_outcome(self) -> None:
        site = Site()
        link, branch = self.enlisted(site, ACCEPTED)
        again = attached_again(site, link)
        assert again.terminus.deliveries.numbers() == [2], "the client regards the first one as settled"
        site.broker.transactions.rollback(branch)
        assert again.terminus.deliveries.numbers() == [2]
        assert site.contents() == [b"a"]

    @pytest.mark.rule("SET-10")
    @pytest.mark.parametrize("snapshot", [False, True])
    def test_a_crash_ends_the_branch_and_leaves_the_lock(self, snapshot: bool) -> None:
        site = Site()
        self.enlisted(site, ACCEPTED)
        site.turn()
        if snapshot:
            site.snapshot()
        site = site.restart()
        assert site.contents() == []
        assert site.broker.termini.by_key[outgoing()].deliveries.numbers() == [1, 2]

    @pytest.mark.rule("SET-7")
    @pytest.mark.parametrize(("disposition", "ready"), [(ACCEPTED, []), (REJECTED, []), (RELEASED, [b"a"])])
    @pytest.mark.parametrize("snapshot", [False, True])
    def test_a_commit_ends_the_lock(self, disposition: Disposition, ready: list[bytes], snapshot: bool) -> None:
        site = Site()
        _, branch = self.enlisted(site, disposition)
        site.broker.transactions.commit(branch)
        site.turn()
        if snapshot:
            site.snapshot()
        for one in (site, site.restart()):
            assert one.contents() == ready
            assert one.broker.termini.by_key[outgoing()].deliveries.numbers() == [2]

    @pytest.mark.rule("SET-8")
    @pytest.mark.rule("SET-7")
    @pytest.mark.parametrize("commit", [False, True])
    def test_the_record_of_the_commit_has_the_tags(self, commit: bool) -> None:
        site = Site()
        site.queue()
        link = TestedLink(site, incoming())
        branch = site.begin()
        publication = site.publication("q", b"a", b"b")
        site.broker.transactions.enlist(branch, publication)
        link.loan.arrive_in(branch, Account(branch), publication, [b"1", b"2"])
        assert link.terminus.arrivals.count == 0
        if commit:
            site.broker.transactions.commit(branch)
            (record,) = site.records(Kind.COMMIT)
            assert [kind for kind, _, _ in decode_commit(record)[1]] == [Kind.PUBLISH, Kind.ARRIVED]
        else:
            site.broker.transactions.rollback(branch)
        site.sync()
        for one in (site, site.restart()):
            assert one.contents() == ([b"a", b"b"] if commit else [])
            assert one.broker.termini.by_key[incoming()].arrivals.count == (2 if commit else 0)

    def test_tags_of_a_transient_message_are_in_memory_after_the_commit(self) -> None:
        site = Site()
        site.queue()
        link = TestedLink(site, incoming())
        branch = site.begin()
        publication = site.publication("q", b"a", durable=False)
        site.broker.transactions.enlist(branch, publication)
        link.loan.arrive_in(branch, Account(branch), publication, [b"1"])
        site.broker.transactions.commit(branch)
        assert link.terminus.arrivals.count == 1
        assert site.records(Kind.COMMIT, Kind.ARRIVED) == []


@pytest.mark.rule("SET-12")
def test_deliveries_are_settled_after_a_detach_until_another_link_has_the_terminus() -> None:
    site = Site()
    queue = site.queue()
    link = TestedLink(site, outgoing(), BRIEF)
    link.consume(queue)
    site.publish("q", b"a", b"b")
    site.turn()
    link.loan.detach()
    assert link.loan.settle(1, 1, ACCEPTED) == 1
    TestedLink(site, outgoing(), BRIEF, TerminusInput.RESUME)
    assert not link.loan.latest
    assert link.loan.settle(2, 2, ACCEPTED) == 0
    link.loan.forget([b"1"])
