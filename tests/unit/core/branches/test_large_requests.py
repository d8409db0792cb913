"""Requests about large XA branches in pieces: they have the effects of requests in one piece, whatever happens between
the pieces.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from escrowmq.core.branches import coordinator, large_effects
from escrowmq.core.branches.branch import Publication, Settlement
from escrowmq.core.branches.coordinator import Division
from escrowmq.core.branches.large_outcome import LargeOutcome
from escrowmq.core.branches.large_requests import Request
from escrowmq.core.branches.xa import XaResult, XaStatus
from escrowmq.core.branches.xa_branch import XaBranch
from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.returning import Lists
from escrowmq.core.records.kinds import Kind
from tests.harness.holding import each_held
from tests.unit.core.site import Held, taken
from tests.unit.core.xa_site import OK, X, XaSite, Y

NAMES = ("a", "b", "limited", "ranked", "log", "brief", "transient")
Z = Xid(1, b"global", b"three")


def nothing() -> None:
    """Nothing happens between the pieces."""


def pieces(site: XaSite, request: Request, between: Callable[[], None] = nothing) -> XaResult:
    """Carry out a request with a turn's budget of one unit, with turns in between."""
    engine = site.broker.engine
    engine.requests.turn = 1
    while True:
        engine.requests.left = 1
        try:
            while not next(request) and engine.requests.left > 0:
                pass
        except StopIteration as end:
            engine.requests.renew()
            result: XaResult = end.value
            return result
        between()
        engine.turn.end()


def settled(site: XaSite) -> XaSite:
    """Let everything end that the engine does in later turns."""
    site.turn()
    while site.broker.engine.turn.unfinished:
        site.turn()
    site.turn()  # with the records that the last sync caused
    return site


def site_of(limit: int = 1 << 20) -> XaSite:
    site = XaSite(resident_limit=limit)
    site.broker.transactions.large = 3
    site.broker.large_requests.few = 0
    site.queue("dead")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    site.queue("a", dead)
    site.queue("b", {"x-message-ttl": 60_000})
    site.queue("limited", {"x-max-length": 10_000, "x-overflow": "reject-publish"})
    site.queue("ranked", {"x-max-priority": 3})
    site.queue("log", {"x-queue-type": "stream"})
    site.queue("brief", {"x-queue-type": "quorum", "x-delivery-limit": 1, **dead})
    site.queue("transient", durable=False)
    for name in NAMES:
        site.broker.directory.bind_queue(site.vhost, "amq.fanout", name, "")
    for name in ("a", "b", "brief"):
        site.publish(name, *[b"%d" % i for i in range(30)])
    return site


def worked(site: XaSite, seed: int, xid: Xid = X) -> None:
    """Let a branch do work of all kinds, and end it."""
    choose = random.Random(seed)
    held = [taken(site, site.vhost.queue(name), 10) for name in ("a", "b", "brief")]
    branch = site.start(xid)
    for i in range(60):
        if choose.random() < 0.3:
            consumer, entries = held[choose.randrange(3)]
            count = choose.randrange(4)
            some, entries[:] = entries[:count], entries[count:]
            if some:
                disposition = choose.choice(list(Disposition))
                site.broker.transactions.enlist(branch, Settlement(consumer, some, disposition))
            continue
        exchange, ttl = choose.choice(["", "", "amq.fanout"]), choose.choice([None, None, 5000])
        made = Envelope(exchange, choose.choice(NAMES), b"\0\0", durable=choose.random() < 0.7, ttl=ttl, priority=i % 4)
        contents = [b"%d.%d" % (i, j) * choose.choice([1, 1, 70_000]) for j in range(choose.randrange(1, 4))]
        queues = site.broker.engine.route(site.vhost, made)
        site.broker.transactions.enlist(branch, Publication(made, contents, queues, mandatory=True))
    count = sum(len(entries) for _, entries in held)
    site.broker.engine.give_back(Lists(held), count, [consumer.queue for consumer, _ in held])
    assert site.end(xid) is OK


def state(site: XaSite) -> dict[str, list[Held]]:
    """Return the ready messages of all queues."""
    names = [name for name in (*NAMES, "dead") if name in site.vhost.queues and name != "log"]
    found = {name: site.ready(site.vhost.queue(name)) for name in names}
    log = site.vhost.queue("log").order.references()
    blocks = [(reference, site.broker.engine.pager.load(reference)) for reference in log]
    found["log"] = [(r.first + i, content, False) for r, block in blocks for i, content in enumerate(block.contents)]
    return found


def used(site: XaSite) -> int:
    """Return the number of messages for which the log is used."""
    count = 0
    for holder in site.broker.engine.holders:
        count += sum(bool(entry.run.lsn) for _, entry in each_held(holder))
        if isinstance(holder, XaBranch):
            count += sum(run.retained for run in holder.runs)
    for queue in site.vhost.queues.values():
        count += sum(bool(entry.run.lsn) for entry in queue.order.in_memory())
        count += sum(backlog.messages for backlog in queue.order.backlogs())
    return count


LIMITS = pytest.mark.parametrize("limit", [1 << 20, 3000])


@pytest.mark.rule("DTX-8", "DTX-9", "ORD-4")
@LIMITS
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("how", ["commit", "one phase", "rollback"])
def test_an_outcome_in_pieces_is_that_in_one_piece(how: str, seed: int, limit: int) -> None:
    one, other = site_of(limit), site_of(limit)
    for site in (one, other):
        worked(site, seed)
    if how != "one phase":
        assert one.coordinator.prepare(X).status is OK
        result = pieces(other, other.broker.large_requests.prepare(X))
        assert (result.status, result.lsn) == (OK, other.branches.find(X).lsn)
        for site in (one, other):
            settled(site)
            assert [*site.broker.engine.promised.values()] == [*one.broker.engine.promised.values()]
            assert site.broker.engine.outcomes == one.broker.engine.outcomes
        assert state(other) == state(one)
        assert other.live() == used(other)
        assert other.branches.views() == one.branches.views()
        assert state(other.restart()) == state(one.restart())
        for site in (one, other):
            site.after(7)
    if how == "rollback":
        for site in (one, other):
            assert site.coordinator.rollback(X).status is OK
    else:
        assert one.coordinator.commit(X, one_phase=how == "one phase").status is OK
        assert pieces(other, other.broker.large_requests.commit(X, one_phase=how == "one phase")).status is OK
    for site in (one, other):
        settled(site)
    assert state(other) == state(one)
    assert other.live() == used(other)
    assert not other.broker.engine.promised
    assert not other.broker.engine.outcomes
    assert other.branches.recover() == one.branches.recover()
    assert state(other.restart()) == state(one.restart())
    other.snapshot()
    assert state(other.restart()) == state(one.restart())
    assert len(other.broker.engine.holders) == len(one.broker.engine.holders)


@pytest.mark.rule("PIPE-2")
@pytest.mark.parametrize("seed", range(4))
def test_a_decision_in_pieces_is_that_in_one_piece(seed: int) -> None:
    one, other = site_of(), site_of()
    for site in (one, other):
        for i, xid in enumerate((X, Y, Z)):
            worked(site, 10 * seed + i, xid)
            assert site.coordinator.prepare(xid).status is OK
        worked(site, 10 * seed + 3, Xid(1, b"global", b"active"))
        settled(site)
    winners = [b"two", b"one"]
    assert one.coordinator.decide(b"global", 1, winners, application="app", epoch=1).status is OK
    request = other.broker.large_requests.decide(b"global", 1, winners, application="app", epoch=1)
    assert pieces(other, request).status is OK
    for site in (one, other):
        settled(site)
        assert site.branches.views() == []
        assert site.coordinator.progress.epoch("app") == 1
    assert state(other) == state(one)
    assert other.live() == used(other)
    assert len(other.records(Kind.DECIDE)) == 1
    assert state(other.restart()) == state(one.restart())


@pytest.mark.rule("DTX-8", "TX-5")
@pytest.mark.parametrize("how", ["commit", "decide", "force"])
def test_a_crash_or_a_snapshot_between_any_two_pieces_leaves_all_or_nothing(how: str) -> None:
    plain, site = site_of(), site_of()
    for one in (plain, site):
        worked(one, 1)
        assert one.coordinator.prepare(X).status is OK
        settled(one)
    before = state(plain.restart())
    assert plain.coordinator.commit(X, one_phase=False).status is OK
    after = state(settled(plain).restart())
    seen: list[bool] = []

    def crash() -> None:
        if len(seen) % 7 == 3:
            site.sync()
            site.snapshot()
        again = site.restart()
        decided = not any(view.state == "prepared" for view in again.branches.views())
        assert state(again) == (after if decided else before)
        seen.append(decided)

    if how == "commit":
        pieces(site, site.broker.large_requests.commit(X, one_phase=False), crash)
    elif how == "force":
        pieces(site, site.broker.large_requests.force(X, commit=True), crash)
    else:
        request = site.broker.large_requests.decide(b"global", 1, [b"one"], application="", epoch=1)
        pieces(site, request, crash)
    assert {*seen} == {False, True}
    assert seen == sorted(seen)
    assert state(settled(site).restart()) == after


@pytest.mark.rule("TX-2")
def test_nothing_is_visible_before_everything_is() -> None:
    site = site_of()
    branch = site.start()
    for i in range(40):
        site.broker.transactions.enlist(branch, site.publication("q" if i % 2 else "to", b"%d" % i))
    site.end()
    site.coordinator.prepare(X)
    site.turn()

    def look() -> None:
        site.sync()
        assert site.contents("q") == site.contents("to") == []

    pieces(site, site.broker.large_requests.commit(X, one_phase=False), look)
    settled(site)
    assert len(site.contents("q")) == len(site.contents("to")) == 20


INTRUSIONS: dict[str, Callable[[XaSite], object]] = {
    "rolled back": lambda site: site.coordinator.rollback(X),
    "committed": lambda site: site.coordinator.commit(X, one_phase=False),
    "vhost dropped": lambda site: site.coordinator.drop_vhost(""),
    "queue deleted": lambda site: site.broker.directory.delete_queue(site.vhost.queue("a")),
}


@pytest.mark.rule("DTX-9")
@pytest.mark.parametrize("piece", [0, 3, 9])
@pytest.mark.parametrize("what", INTRUSIONS)
def test_another_request_between_the_pieces_comes_first_or_later(what: str, piece: int) -> None:
    site, plain = site_of(), site_of()
    for one in (site, plain):
        worked(one, 2)
        one.coordinator.prepare(X)
        settled(one)
    INTRUSIONS[what](plain)
    seen: list[bool] = []

    def intrude() -> None:
        if len(seen) == piece:
            INTRUSIONS[what](site)
        seen.append(True)

    request = site.broker.large_requests.commit(X, one_phase=False)
    if what == "queue deleted":
        assert plain.coordinator.commit(X, one_phase=False).status is OK
        assert pieces(site, request, intrude).status is OK
    else:
        with pytest.raises(BrokerError) as caught:
            pieces(site, request, intrude)
        assert caught.value.condition is Condition.NOT_FOUND
    assert state(settled(site)) == state(settled(plain))
    assert site.live() == used(site)


def test_work_that_is_added_between_the_pieces_is_not_left_out() -> None:
    site = site_of()
    worked(site, 2)
    seen: list[bool] = []

    def join() -> None:
        if not seen:
            branch = site.start(X, join=True)
            site.broker.transactions.enlist(branch, site.publication("to", b"more"))
            site.end(X)
        seen.append(True)

    assert pieces(site, site.broker.large_requests.prepare(X), join).status is OK
    settled(site)
    assert site.restart().coordinator.commit(X, one_phase=False).status is OK
    pieces(site, site.broker.large_requests.commit(X, one_phase=False))
    assert b"more" in settled(site).contents("to")


def test_an_abandoned_request_changes_nothing_before_its_record_and_is_carried_through_after_it() -> None:
    for steps in range(2, 60, 3):
        site, plain = site_of(), site_of()
        for one in (site, plain):
            worked(one, 3)
            one.coordinator.prepare(X)
            settled(one)
        before = state(site)
        plain.coordinator.commit(X, one_phase=False)
        request = site.broker.large_requests.commit(X, one_phase=False)
        site.broker.engine.requests.turn = 1
        for _, _ in zip(range(steps), request, strict=False):
            site.broker.engine.turn.end()
        request.close()
        site.broker.engine.requests.turn = 700
        settled(site)
        written = len(site.records(Kind.COMMIT)) > 0
        assert state(site) == (state(settled(plain)) if written else before)


@pytest.mark.rule("DTX-11", "FAIR-1")
@pytest.mark.parametrize("seed", range(4))
def test_an_operators_commit_in_pieces_is_that_in_one_piece(seed: int) -> None:
    one, other = site_of(), site_of()
    for site in (one, other):
        worked(site, seed)
        assert site.coordinator.prepare(X).status is OK
        settled(site)
    before = one.coordinator.force(X, commit=True)
    turns: list[bool] = []
    result = pieces(other, other.broker.large_requests.force(X, commit=True), lambda: turns.append(True))
    assert result.status is before.status is XaStatus.HEUR_COM
    assert len(turns) > 20, "one unit of work is done in each turn"
    for site in (one, other):
        settled(site)
    assert state(other) == state(one)
    assert other.live() == used(other)
    assert not other.broker.engine.promised
    assert not other.broker.engine.outcomes
    assert len(other.records(Kind.HEURISTIC)) == 1
    assert other.branches.views() == one.branches.views()
    assert state(other.restart()) == state(one.restart())
    other.snapshot()
    again = other.restart()
    assert state(again) == state(one.restart())
    assert again.coordinator.commit(X, one_phase=False).status is XaStatus.HEUR_COM
    again.coordinator.forget(X)
    assert again.branches.recover() == []


@pytest.mark.rule("DTX-11")
def test_an_operators_rollback_needs_no_pieces_before_its_record() -> None:
    site = site_of()
    worked(site, 1)
    site.coordinator.prepare(X)
    settled(site)
    request = site.broker.large_requests.force(X, commit=False)
    with pytest.raises(StopIteration) as end:
        next(request)
    assert end.value.value.status is XaStatus.HEUR_RB


@pytest.mark.rule("DTX-11")
@pytest.mark.parametrize("what", ["rolled back", "committed", "vhost dropped"])
def test_a_branch_that_ends_while_an_operator_commits_it_stays_as_decided(what: str) -> None:
    site, plain = site_of(), site_of()
    for one in (site, plain):
        worked(one, 2)
        one.coordinator.prepare(X)
        settled(one)
    INTRUSIONS[what](plain)
    seen: list[bool] = []

    def intrude() -> None:
        if not seen:
            INTRUSIONS[what](site)
        seen.append(True)

    with pytest.raises(BrokerError) as caught:
        pieces(site, site.broker.large_requests.force(X, commit=True), intrude)
    assert caught.value.condition is Condition.NOT_FOUND
    assert state(settled(site)) == state(settled(plain))
    assert site.live() == used(site)


@pytest.mark.rule("FAIR-1", "PIPE-2")
@pytest.mark.parametrize("winners", [[b"one", b"two", b"three"], []])
def test_a_decision_over_many_branches_is_written_in_a_turn_of_its_own(
    winners: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_of()
    for xid in (X, Y, Z):
        site.prepared(xid)
    begun: list[int] = []
    write = LargeOutcome.write

    def counted(self: LargeOutcome, kind: Kind, prefix: bytes) -> int:
        begun.append(site.broker.engine.requests.left)
        return write(self, kind, prefix)

    monkeypatch.setattr(LargeOutcome, "write", counted)
    engine = site.broker.engine
    request = site.broker.large_requests.decide(b"global", 1, winners, application="app", epoch=1)
    while not begun:
        engine.requests.left = engine.requests.turn
        while not next(request, True) and engine.requests.left > 0:
            pass
        engine.turn.end()
        site.sync()
    assert begun == [engine.requests.turn], "nothing else was done in that turn before"
    pieces(site, request)
    settled(site)
    assert not site.branches.views()


@pytest.mark.rule("DTX-9", "PIPE-2")
def test_a_queue_that_is_deleted_before_the_turn_of_the_record_is_left_out() -> None:
    site, plain = site_of(), site_of()
    for one in (site, plain):
        for xid in (X, Y):
            worked(one, 5, xid)
            assert one.coordinator.prepare(xid).status is OK
        settled(one)
    request = site.broker.large_requests.decide(b"global", 1, [b"one", b"two"], application="", epoch=1)
    engine = site.broker.engine
    engine.requests.left = 1 << 30
    assert next(request) is None
    assert engine.requests.left == 0, "the next turn writes the record"
    for one in (site, plain):
        one.broker.directory.delete_queue(one.vhost.queue("b"))
    assert pieces(site, request).status is OK
    plain.coordinator.decide(b"global", 1, [b"one", b"two"], application="", epoch=1)
    for one in (site, plain):
        settled(one)
    assert state(site) == state(plain)
    assert site.live() == used(site)
    assert state(site.restart()) == state(plain.restart())


@pytest.mark.rule("FAIR-1", "PIPE-2")
@pytest.mark.parametrize("changes", [False, True])
def test_the_branches_of_a_decision_are_divided_in_pieces(changes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "_PIECE", 2)
    site = XaSite()
    site.broker.large_requests.few = 0
    site.queue("q")
    xids = [Xid(1, b"global", b"%d" % number) for number in range(9)]
    for xid in xids:
        site.prepared(xid)
    sizes: list[int] = []
    divide = Division.divide

    def divided(plan: Division, gtrid: bytes, winners: Sequence[bytes], wanted: int) -> Iterator[int]:
        for size in divide(plan, gtrid, winners, wanted):
            sizes.append(size)
            if changes and len(sizes) == 4:
                assert site.coordinator.rollback(xids[8]).status is OK
            yield size

    monkeypatch.setattr(Division, "divide", divided)
    winners = [xid.bqual for xid in xids[:4]]
    request = site.broker.large_requests.decide(b"global", 1, winners, application="app", epoch=1)
    assert pieces(site, request).status is OK
    settled(site)
    assert max(sizes) == 2
    assert len(sizes) > (20 if changes else 10), "a change in between makes it begin again"
    assert [content for _, content, _ in site.ready(site.vhost.queue("to"))] == 4 * [b"new"]
    assert not site.branches.views()


@pytest.mark.rule("PIPE-2")
def test_a_winner_that_is_rolled_back_during_the_division_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in one piece: the branch is not told to be in a state in which it no longer is."""
    site = XaSite()
    site.broker.large_requests.few = 0
    site.queue("q")
    site.prepared(X)
    divide = Division.divide

    def divided(plan: Division, gtrid: bytes, winners: Sequence[bytes], wanted: int) -> Iterator[int]:
        if plan.states:
            assert site.coordinator.rollback(X).status is OK
        yield from divide(plan, gtrid, winners, wanted)

    monkeypatch.setattr(Division, "divide", divided)
    request = site.broker.large_requests.decide(b"global", 1, [X.bqual], application="app", epoch=1)
    with pytest.raises(BrokerError) as caught:
        pieces(site, request)
    assert caught.value.condition is Condition.NOT_FOUND


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize("one_phase", [False, True])
def test_a_message_for_many_queues_makes_a_branch_large_and_is_placed_for_a_part_of_them_after_the_other(
    one_phase: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_effects, "QUEUES", 3)
    site = XaSite()
    site.broker.transactions.large = 9
    names = [f"q{number}" for number in range(10)]
    for name in names:
        site.queue(name)
        site.broker.directory.bind_queue(site.vhost, "amq.fanout", name, "")
    branch = site.start()
    site.broker.transactions.enlist(branch, site.publication("", b"x", exchange="amq.fanout"))
    site.end()
    if not one_phase:
        assert site.coordinator.prepare(X).status is OK
    turns: list[None] = []
    request = site.broker.large_requests.commit(X, one_phase=one_phase)
    assert pieces(site, request, lambda: turns.append(None)).status is OK
    assert len(turns) > 4
    settled(site)
    for running in (site, site.restart()):
        assert [running.contents(name) for name in names] == [[b"x"]] * 10
