"""Posts of open transactions are unsettled deliveries of their terminus (SET-7, SET-9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.core.branches.branch import TransactionBranch
from escrowmq.core.conditions import BrokerError
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.termini.arrivals import Arrival, fingerprint_of
from escrowmq.core.termini.enlisted_posts import PIECE
from escrowmq.core.termini.terminus import TerminusInput
from tests.unit.core.site import Site
from tests.unit.core.termini.links import Account, TestedLink, attached_again, incoming


class Posting:
    """A link with posts in an open transaction: contents `a` and `b` with the tags 1 and 2."""

    def __init__(self) -> None:
        self.site = Site()
        self.site.queue()
        self.link = TestedLink(self.site, incoming())
        self.branch = self.site.begin()
        self.account = Account(self.branch)
        self.post(self.branch, b"1", b"a")
        self.post(self.branch, b"2", b"b")

    def post(self, branch: TransactionBranch, tag: bytes, content: bytes) -> None:
        publication = self.site.publication("q", content)
        self.link.loan.arrive_in(branch, self.account, publication, [tag])
        self.site.broker.transactions.enlist(branch, publication)

    def commit(self) -> None:
        self.site.broker.transactions.commit(self.branch)
        self.site.sync()

    def tags(self, site: Site | None = None) -> dict[bytes, bytes]:
        arrivals = (site or self.site).broker.termini.by_key[incoming()].arrivals
        return {tag: arrival.fingerprint for tag, arrival in arrivals.items()}


@pytest.mark.rule("SET-9")
def test_a_tag_is_not_posted_twice_in_a_transaction() -> None:
    posting = Posting()
    with pytest.raises(BrokerError, match="unsettled delivery"):
        posting.post(posting.branch, b"1", b"c")
    with pytest.raises(BrokerError, match="unsettled delivery"):
        posting.link.post([b"2"], [b"c"])


@pytest.mark.rule("SET-7", "SET-9")
def test_a_link_that_resumes_finds_the_posts_of_an_open_transaction() -> None:
    posting = Posting()
    posting.link.loan.detach()
    again = attached_again(posting.site, posting.link)
    found = again.loan.reconcile({b"1": True, b"2": False, b"3": False}, complete=True)
    assert found == {b"1": Arrival(Disposition.ACCEPTED, fingerprint_of(b"a"), Account.accepted), b"2": None}
    assert again.resumed(b"2", b"b") == Arrival(Disposition.ACCEPTED, fingerprint_of(b"b"), Account.accepted)
    posting.commit()
    assert posting.site.contents() == [b"a", b"b"]
    assert posting.tags() == {b"1": fingerprint_of(b"a"), b"2": fingerprint_of(b"b")}


@pytest.mark.rule("SET-9")
def test_another_message_with_the_tag_of_a_post_is_published_too() -> None:
    posting = Posting()
    again = attached_again(posting.site, posting.link)
    again.loan.reconcile({b"1": True, b"2": False}, complete=True)
    again.resumed(b"2", b"new")
    posting.commit()
    assert sorted(posting.site.contents()) == [b"a", b"b", b"new"]
    assert posting.tags() == {b"1": fingerprint_of(b"a"), b"2": fingerprint_of(b"new")}


@pytest.mark.rule("SET-9")
@pytest.mark.parametrize("way", ["settled", "absent from a complete map", "begun anew", "closed"])
def test_the_commit_keeps_no_tag_that_the_sender_has_settled(way: str) -> None:
    posting = Posting()
    if way == "settled":
        posting.link.loan.forget([b"1", b"2"])
    elif way == "closed":
        posting.link.loan.close()
        attached_again(posting.site, incoming())
    else:
        how = TerminusInput.RESUME if way.startswith("absent") else TerminusInput.ESTABLISH
        again = attached_again(posting.site, posting.link, how)
        if how is TerminusInput.RESUME:
            again.loan.reconcile({}, complete=True)
    posting.commit()
    for one in (posting.site, posting.site.restart()):
        assert one.contents() == [b"a", b"b"]
        assert posting.tags(one) == {}


@pytest.mark.rule("SET-9")
def test_a_tag_can_be_used_again_within_the_transaction_when_it_is_settled() -> None:
    posting = Posting()
    posting.link.loan.forget([b"1"])
    posting.post(posting.branch, b"1", b"c")
    posting.commit()
    assert posting.tags() == {b"1": fingerprint_of(b"c"), b"2": fingerprint_of(b"b")}


@pytest.mark.rule("SET-7")
def test_a_rollback_leaves_nothing_of_the_posts() -> None:
    posting = Posting()
    posting.site.broker.transactions.rollback(posting.branch)
    arrivals = posting.link.terminus.arrivals
    assert (b"1" in arrivals, arrivals.get(b"1"), arrivals.owners()) == (False, None, [])
    posting.link.post([b"1"], [b"again"])


def test_the_transaction_of_a_post_is_known_while_it_is_open() -> None:
    posting = Posting()
    arrivals = posting.link.terminus.arrivals
    assert arrivals.owner(b"1") is posting.account
    assert arrivals.owner(b"3") is None
    assert arrivals.owners() == [posting.account]
    assert (arrivals.count, list(arrivals.items())) == (0, [])
    posting.commit()
    assert (arrivals.count, arrivals.owner(b"1"), arrivals.owners()) == (2, None, [])


def committed_in_pieces(posting: Posting, between: Callable[[], None] = lambda: None) -> int:
    """Commit the transaction in pieces, with turns in between. Return their number."""
    engine, transactions = posting.site.broker.engine, posting.site.broker.transactions
    engine.requests.turn = count = 1
    assert transactions.is_large(posting.branch)
    work = transactions.commit_in_pieces(posting.branch)
    engine.requests.renew()
    for _ in work.gather():
        between()
        count += 1
        engine.turn.end()
    work.write()
    for _ in work.complete():
        count += 1
        engine.turn.end()
    posting.site.sync()
    return count


def many(count: int = 3000) -> Posting:
    posting = Posting()
    for i in range(count):
        posting.post(posting.branch, b"many %d" % i, b"%d" % i)
    return posting


@pytest.mark.rule("SET-7", "SET-8", "FAIR-1")
@pytest.mark.parametrize("earlier", [0, 5000])
def test_a_large_commit_keeps_the_tags_of_its_posts_as_a_small_one(earlier: int) -> None:
    one, other = many(), many()
    for posting in (one, other):
        for i in range(0, earlier, 100):
            posting.link.post([b"earlier %d" % j for j in range(i, i + 100)], [b"e"] * 100)
        posting.site.sync()
    one.commit()
    assert committed_in_pieces(other) > 3002 // PIECE
    assert other.site.contents() == one.site.contents()
    assert other.tags() == one.tags()
    assert len(other.tags()) == 3002 + earlier
    assert other.link.loan.terminus.arrivals.owners() == []
    again = other.site.restart()
    assert other.tags(again) == one.tags()
    assert again.contents() == one.site.contents()


@pytest.mark.rule("SET-9")
def test_tags_that_are_settled_during_a_large_commit_are_not_kept() -> None:
    posting = many()
    gone = [b"1", *[b"many %d" % i for i in range(0, 3000, 2)]]

    def settle() -> None:
        if gone:
            posting.link.loan.forget([gone.pop()])

    committed_in_pieces(posting, settle)
    assert b"many 2998" not in posting.tags()
    assert posting.tags(posting.site.restart()) == posting.tags()


@pytest.mark.rule("SET-7", "FAIR-1")
def test_a_large_rollback_leaves_no_tags_and_frees_them_in_pieces() -> None:
    posting = many()
    posting.site.broker.transactions.rollback(posting.branch)
    assert posting.tags() == {}
    assert posting.link.loan.terminus.arrivals.owners() == []
    assert posting.site.broker.engine.left_over, "later turns free the memory"
    posting.site.turn()
    assert not posting.site.broker.engine.left_over


def test_the_posts_of_another_transaction_stay_when_one_ends() -> None:
    posting = Posting()
    other = posting.site.begin()
    posting.account = Account(other)
    posting.post(other, b"3", b"c")
    posting.site.broker.transactions.rollback(posting.branch)
    assert posting.link.loan.terminus.arrivals.owners() == [posting.account]
    assert b"3" in posting.link.loan.terminus.arrivals
    posting.site.broker.transactions.commit(other)
    assert posting.tags() == {b"3": fingerprint_of(b"c")}
