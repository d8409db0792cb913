"""The commit of a large branch in pieces: it equals a commit in one piece, whatever happens between the pieces."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from escrowmq.core.branches import large_effects
from escrowmq.core.branches.branch import Publication, Settlement, TransactionBranch
from escrowmq.core.branches.large_commit import LargeCommit
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records import kinds as records_module
from escrowmq.core.records.kinds import Kind
from tests.unit.core.site import Held, Sink, Site, dead_lettering, taken

NAMES = ("a", "b", "limited", "ranked", "log", "brief", "transient")


def nothing() -> None:
    """Nothing happens between the pieces."""


def pieces(site: Site, work: Iterator[None], between: Callable[[], None] = nothing) -> int:
    """Carry out a phase with a turn's budget of one unit. Return the number of turns."""
    site.broker.engine.requests.left = 1
    turns = 1
    for _ in work:
        between()
        turns += 1
        site.broker.engine.requests.left = 1
    return turns


def commit(site: Site, branch: TransactionBranch, between: Callable[[], None] = nothing) -> LargeCommit:
    work = site.broker.transactions.commit_in_pieces(branch)
    pieces(site, work.gather(), between)
    work.write()
    between()
    pieces(site, work.complete(), between)
    return work


def declared(site: Site) -> None:
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
        site.broker.directory.bind_queue(site.vhost, "amq.topic", name, name[0] + ".#")
        site.broker.directory.bind_queue(site.vhost, "amq.fanout", name, "")


def worked(site: Site, seed: int) -> TransactionBranch:
    """Return a branch with work of all kinds."""
    declared(site)
    choose = random.Random(seed)
    for name in ("a", "b", "brief"):
        site.publish(name, *[b"%d" % i for i in range(30)])
    held = [taken(site, site.vhost.queue(name)) for name in ("a", "b", "brief")]
    branch = site.begin()
    for i in range(200):
        kind = choose.random()
        if kind < 0.2:
            consumer, entries = held[choose.randrange(3)]
            count = choose.randrange(4)
            some, entries[:] = entries[:count], entries[count:]
            if some:
                disposition = choose.choice(list(Disposition))
                site.broker.transactions.enlist(branch, Settlement(consumer, some, disposition))
            continue
        exchange = choose.choice(["", "", "amq.fanout", "amq.topic"])
        key = choose.choice(NAMES) if not exchange else choose.choice("abltr") + ".x"
        ttl = choose.choice([None, None, 5000])
        made = Envelope(
            exchange, key, b"\0\0" * choose.choice([1, 1, 900]), durable=choose.random() < 0.7, ttl=ttl, priority=i % 4
        )
        contents = [b"%d.%d" % (i, j) * choose.choice([1, 1, 200]) for j in range(choose.randrange(1, 4))]
        site.broker.transactions.enlist(branch, Publication(made, contents, site.broker.engine.route(site.vhost, made)))
    client = Sink()  # holds what the branch has not settled
    client.got = [(consumer, entry) for consumer, entries in held for entry in entries]
    site.broker.engine.holders[client] = None
    return branch


def state(site: Site) -> dict[str, list[Held]]:
    """Return the ready messages of all queues."""
    names = [name for name in (*NAMES, "dead") if name in site.vhost.queues and name != "log"]
    found = {name: site.ready(site.vhost.queue(name)) for name in names}
    log = site.vhost.queue("log").order.references()
    blocks = [(reference, site.broker.engine.pager.load(reference)) for reference in log]
    found["log"] = [(r.first + i, content, False) for r, block in blocks for i, content in enumerate(block.contents)]
    return found


def taken_back(site: Site) -> Site:
    """Return the broker after a snapshot and a restart."""
    site.snapshot()
    return site.restart()


class TestLargeCommit:
    @pytest.mark.rule("TX-5")
    @pytest.mark.rule("ORD-4")
    @pytest.mark.parametrize("limit", [1 << 20, 3000])
    @pytest.mark.parametrize("seed", range(8))
    def test_it_has_the_effects_of_a_commit_in_one_piece(self, seed: int, limit: int) -> None:
        one, other = Site(resident_limit=limit), Site(resident_limit=limit)
        branches = {one: worked(one, seed), other: worked(other, seed)}
        one.broker.transactions.commit(branches[one])
        commit(other, branches[other])
        one.turn()
        other.turn()
        assert state(other) == state(one)
        assert other.live() == one.live()
        assert state(other.restart()) == state(one.restart())
        assert state(taken_back(other)) == state(one.restart())
        assert len(other.broker.engine.holders) == len(one.broker.engine.holders)

    @pytest.mark.rule("TX-5")
    @pytest.mark.parametrize("seed", range(4))
    def test_a_snapshot_between_any_two_pieces_loses_and_doubles_nothing(self, seed: int) -> None:
        plain, site = Site(), Site()
        plain.broker.transactions.commit(worked(plain, seed))
        plain.turn()
        branch = worked(site, seed)
        before = state(site.restart())
        kept: list[tuple[bool, dict[str, list[Held]]]] = []
        work = site.broker.transactions.commit_in_pieces(branch)

        def look() -> None:
            end = site.journal.end_lsn
            kept.append((work.result.lsn > 0, state(taken_back(site))))
            assert site.journal.end_lsn >= end

        pieces(site, work.gather(), look)
        work.write()
        look()
        pieces(site, work.complete(), look)
        site.turn()
        look()
        after = state(plain.restart())
        assert {written for written, _ in kept} == {False, True}
        for written, found in kept:
            assert contents_of(found) == contents_of(after if written else before)

    @pytest.mark.rule("TX-2")
    @pytest.mark.rule("ORD-4")
    def test_nothing_is_visible_before_the_end_and_neighbours_keep_their_order(self, site: Site) -> None:
        site.queue("q")
        site.queue("other", durable=False)
        branch = site.begin()
        for i in range(40):
            for key in ("q", "other"):
                made = Envelope("", key, b"\0\0", durable=True, priority=i % 2)
                work = Publication(made, [b"tx%d" % i], (site.vhost.queue(key),))
                site.broker.transactions.enlist(branch, work)
        count = 0

        def publish() -> None:
            nonlocal count
            assert not any(body.startswith(b"tx") for name in ("q", "other") for body in site.contents(name))
            for name in ("q", "other"):
                site.publish(name, b"%d" % count)
            count += 1

        commit(site, branch, publish)
        publish()  # the record is not on disk
        site.turn()
        for name in ("q", "other"):
            found = site.contents(name)
            begin = found.index(b"tx0")
            assert found[begin : begin + 40] == [b"tx%d" % i for i in range(40)]
            assert found[:begin] + found[begin + 40 :] == [b"%d" % i for i in range(count)]
            assert 0 < begin < count
        assert site.restart().contents("q") == site.contents("q")

    def test_each_turn_does_a_bounded_piece(self, site: Site) -> None:
        site.queue("q")
        branch = site.begin()
        for i in range(2000):
            made = Envelope("", "q", b"\0\0", durable=True, priority=i % 2)
            site.broker.transactions.enlist(branch, Publication(made, [b"body"], (site.vhost.queue("q"),)))
        work = site.broker.transactions.commit_in_pieces(branch)
        assert pieces(site, work.gather()) >= 1000
        work.write()
        assert pieces(site, work.complete()) >= 4

    @pytest.mark.rule("TX-11")
    @pytest.mark.parametrize("after", range(1, 90, 7))
    def test_a_queue_may_be_deleted_between_any_two_pieces(self, site: Site, after: int) -> None:
        site.queue("gone")
        site.queue("stays")
        for name in ("gone", "stays"):
            site.broker.directory.bind_queue(site.vhost, "amq.fanout", name, "")
        consumer, entries = taken_from(site, "gone", b"old")
        branch = site.begin()
        site.broker.transactions.enlist(branch, Settlement(consumer, entries, Disposition.ACCEPTED))
        for i in range(20):
            some = site.publication("", b"%d" % i, exchange="amq.fanout", durable=i % 3 > 0)
            site.broker.transactions.enlist(branch, some)
        left = after

        def delete() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                site.broker.directory.delete_queue(site.vhost.queue("gone"))

        commit(site, branch, delete)
        site.turn()
        if left > 0:
            site.broker.directory.delete_queue(site.vhost.queue("gone"))
        site.turn()
        assert site.contents("stays") == [b"%d" % i for i in range(20)]
        assert site.restart().contents("stays") == [b"%d" % i for i in range(20) if i % 3]
        purged = site.vhost.queue("stays")
        site.broker.directory.purge(purged)
        site.turn()
        assert site.live() == 0

    @pytest.mark.rule("ORD-2")
    @pytest.mark.rule("TX-3")
    def test_nothing_overtakes_deliveries_that_return(self, site: Site) -> None:
        consumer, entries = taken_from(site, "q", *[b"%d" % i for i in range(3000)])
        branch = site.begin()
        site.broker.transactions.enlist(branch, Settlement(consumer, entries, Disposition.MODIFIED))
        _, sink = site.consume(site.vhost.queue("q"))
        commit(site, branch, site.broker.engine.turn.end)
        site.turn()
        assert sink.contents == [b"%d" % i for i in range(3000)]

    @pytest.mark.rule("TX-13")
    def test_it_applies_nothing_if_a_queue_is_full_or_the_record_too_long(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        site.queue("full", {"x-max-length": 5, "x-overflow": "reject-publish"})
        site.queue("q")
        for key in ("full", "q"):
            branch = site.begin()
            for i in range(20):
                site.broker.transactions.enlist(branch, site.publication("q", b"%d" % i))
                site.broker.transactions.enlist(branch, site.publication(key, b"%d" % i))
            if key == "q":
                monkeypatch.setattr(records_module, "RECORD_BYTES", 500)
            with pytest.raises(BrokerError) as error:
                commit(site, branch)
            assert error.value.condition is Condition.LIMIT_EXCEEDED
            site.broker.transactions.rollback(branch)
        site.turn()
        assert site.contents("q") == site.contents("full") == []
        assert not site.records(Kind.COMMIT)

    def test_an_unwritten_commit_leaves_nothing_behind(self, site: Site) -> None:
        dead_lettering(site)
        consumer, entries = taken_from(site, "q", *[b"%d" % i for i in range(20)])
        branch = site.begin()
        site.broker.transactions.enlist(branch, Settlement(consumer, entries[:10], Disposition.REJECTED))
        site.broker.transactions.enlist(branch, Settlement(consumer, entries[10:], Disposition.MODIFIED))
        work = site.broker.transactions.commit_in_pieces(branch)
        pieces(site, work.gather())
        site.broker.transactions.close(branch)
        site.turn()
        assert site.contents() == [b"%d" % i for i in range(20)]
        assert site.contents("dead") == []

    @pytest.mark.rule("TX-5")
    def test_a_crash_before_the_sync_undoes_it_and_a_later_one_does_not(self, site: Site) -> None:
        site.queue()
        site.turn()
        branch = site.begin()
        for i in range(20):
            site.broker.transactions.enlist(branch, site.publication("q", b"%d" % i))
        work = site.broker.transactions.commit_in_pieces(branch)
        pieces(site, work.gather(), lambda: assert_empty(site.restart()))
        work.write()
        assert_empty(site.restart())
        site.sync()
        assert site.contents() == [], "it is not applied yet"
        assert site.restart().contents() == [b"%d" % i for i in range(20)]
        pieces(site, work.complete())
        assert site.contents() == [b"%d" % i for i in range(20)]


@pytest.mark.rule("FAIR-1")
class TestManyQueues:
    @pytest.fixture
    def branch(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> TransactionBranch:
        """A branch with two messages for ten queues."""
        monkeypatch.setattr(large_effects, "QUEUES", 3)
        for number in range(10):
            site.queue(f"q{number}")
            site.broker.directory.bind_queue(site.vhost, "amq.fanout", f"q{number}", "")
        branch = site.begin()
        site.broker.transactions.enlist(branch, site.publication("", b"1", b"2", exchange="amq.fanout"))
        return branch

    def test_a_message_is_gathered_for_a_part_of_its_queues_after_the_other(
        self, site: Site, branch: TransactionBranch
    ) -> None:
        work = site.broker.transactions.commit_in_pieces(branch)
        assert pieces(site, work.gather()) > 4
        before = len(site.records(Kind.COMMIT))
        work.write()
        pieces(site, work.complete())
        assert len(site.records(Kind.COMMIT)) == before + 1
        site.sync()
        for running in (site, site.restart()):
            assert [running.contents(f"q{number}") for number in range(10)] == [[b"1", b"2"]] * 10

    def test_a_crash_between_two_parts_leaves_nothing(self, site: Site, branch: TransactionBranch) -> None:
        work = site.broker.transactions.commit_in_pieces(branch)
        for _ in work.gather():
            site.sync()
            again = site.restart()
            assert [again.contents(f"q{number}") for number in range(10)] == [[]] * 10
            site.broker.engine.requests.left = 1

    def test_a_queue_that_is_deleted_between_two_parts_is_left_out(self, site: Site, branch: TransactionBranch) -> None:
        def delete() -> None:
            for name in ("q0", "q9"):
                if name in site.vhost.queues:
                    site.broker.directory.delete_queue(site.vhost.queue(name))

        commit(site, branch, delete)
        site.sync()
        again = site.restart()
        assert [again.contents(f"q{number}") for number in range(1, 9)] == [[b"1", b"2"]] * 8


def assert_empty(site: Site) -> None:
    assert site.contents() == []


def contents_of(found: dict[str, list[Held]]) -> dict[str, list[bytes]]:
    """Return the bodies only: messages that a client holds are redelivered after a restart."""
    return {name: [body for _, body, _ in messages] for name, messages in found.items()}


def taken_from(site: Site, name: str, *contents: bytes) -> tuple[Consumer, list[Entry]]:
    """Publish to a queue, which is declared if necessary, and deliver everything in it."""
    queue = site.vhost.queues.get(name) or site.queue(name)
    site.publish(name, *contents)
    return taken(site, queue)


@pytest.fixture
def site() -> Site:
    return Site()
