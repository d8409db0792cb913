"""Outcomes: the effects of committing one branch, and of committing several in one record."""

from __future__ import annotations

import pytest

from escrowmq.core.branches import decision
from escrowmq.core.branches.branch import Publication
from escrowmq.core.branches.resolution import resolve
from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xid import Xid
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.branches import decode_placed
from escrowmq.core.records.commits import decode_commit, encode_commit
from escrowmq.core.records.kinds import Kind
from escrowmq.core.topology.arguments.consumer import ConsumerOptions, StreamOffset
from tests.unit.core.xa_site import OK, X, XaSite, Y


@pytest.fixture
def site() -> XaSite:
    return XaSite()


def read_from(site: XaSite, time: int) -> list[bytes]:
    """Return the messages for a reader of the stream that begins at `time`."""
    options = ConsumerOptions(stream_offset=StreamOffset("time", time))
    consumer, sink = site.consume(site.vhost.queue("stream"), options=options)
    site.turn()
    site.broker.engine.unsubscribe(consumer)
    return sink.contents


@pytest.mark.rule("ORD-4", "TX-5")
def test_positions_continue_from_branch_to_branch() -> None:
    site = XaSite()
    one = site.prepared(X, settle=0, publish=(b"a", b"b"))
    two = site.prepared(Y, settle=0, publish=(b"c",))
    lsns = [run.lsn for branch in (one, two) for run in branch.runs]

    def write(found: list) -> list[list[int]]:  # type: ignore[type-arg]
        parts, offsets = encode_commit(one.number, [each for operations in found for each in operations])
        lsn = site.journal.append(Kind.COMMIT, *parts)
        return [[lsn + offsets[0]], [lsn + offsets[1]]]

    returned = resolve(site.broker.engine, [one, two], write)
    site.turn()
    assert site.contents("to") == [b"a", b"b", b"c"]
    assert returned == []
    (record,) = site.records(Kind.COMMIT)
    placed = [decode_placed(payload) for _, _, payload in decode_commit(record)[1]]
    to = site.vhost.queue("to").ident
    assert [(p.targets, p.lsn, p.length) for p in placed] == [([(to, 1)], lsns[0], 2), ([(to, 3)], lsns[1], 1)]


def test_an_old_block_is_reused_unless_the_life_of_a_message_begins_with_its_commit() -> None:
    site = XaSite()
    site.queue("brief", {"x-message-ttl": 60_000})
    branch = site.start()
    site.broker.transactions.enlist(branch, site.publication("to", b"stays"))
    site.broker.transactions.enlist(branch, site.publication("brief", b"ages"))
    site.end()
    site.coordinator.prepare(X)
    site.after(5)
    site.coordinator.commit(X, one_phase=False)
    site.turn()
    (record,) = site.records(Kind.COMMIT)
    assert [kind for kind, _, _ in decode_commit(record)[1]] == [Kind.PLACED, Kind.PUBLISH]
    assert site.live() == 2


@pytest.mark.rule("DTX-9", "ORD-4", "TX-5")
class TestCommit:
    def test_the_publishes_take_adjacent_positions_at_commit(self, site: XaSite) -> None:
        site.prepared(publish=(b"a", b"b"), settle=0)
        site.publish("to", b"before")
        site.coordinator.commit(X, one_phase=False)
        site.publish("to", b"after")
        site.turn()
        assert site.contents("to") == [b"before", b"a", b"b", b"after"]
        assert site.restart().contents("to") == [b"before", b"a", b"b", b"after"]

    @pytest.mark.rule("TX-2", "TX-8")
    def test_nothing_is_delivered_before_the_commit_is_on_disk(self, site: XaSite) -> None:
        site.prepared(settle=0)
        result = site.coordinator.commit(X, one_phase=False)
        site.turn(sync=False)
        assert site.contents("to") == []
        assert result.lsn > site.journal.synced_lsn
        site.sync()
        assert site.contents("to") == [b"new"]

    @pytest.mark.rule("TX-11")
    def test_a_deleted_queue_is_left_out(self, site: XaSite) -> None:
        site.queue("other")
        made = Envelope("", "both", durable=True)
        branch = site.start()
        queues = (site.vhost.queue("to"), site.vhost.queue("other"))
        site.broker.transactions.enlist(branch, Publication(made, [b"both"], queues))
        site.broker.transactions.enlist(branch, site.publication("to", b"lost"))
        site.broker.transactions.enlist(branch, site.publication("to", b"back", mandatory=True))
        site.end()
        site.coordinator.prepare(X)
        site.broker.directory.delete_queue(site.vhost.queue("to"))
        result = site.coordinator.commit(X, one_phase=False)
        assert [(p.contents, p.mandatory) for p in result.returned] == [([b"back"], True)]
        site.turn()
        assert site.contents("other") == [b"both"]
        assert site.live() == 1

    @pytest.mark.rule("TX-11")
    def test_a_commit_tolerates_the_deletion_of_a_queue_with_locked_messages(self, site: XaSite) -> None:
        site.prepared()
        site.broker.directory.delete_queue(site.q)
        assert site.coordinator.commit(X, one_phase=False).status is OK
        site.turn()
        assert site.contents("to") == [b"new"]
        assert site.live() == 1

    def test_rejected_messages_are_dead_lettered_in_the_same_record(self, site: XaSite) -> None:
        site.broker.directory.delete_queue(site.q)
        site.queue("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "to"})
        branch = site.prepared(disposition=Disposition.REJECTED, publish=())
        assert site.waiting() == ([b"old 1"], [])
        site.coordinator.commit(X, one_phase=False)
        site.turn()
        assert site.waiting() == ([b"old 1"], [b"old 0"])
        found = [decode_commit(record) for record in site.records(Kind.COMMIT)]
        (operations,) = [operations for number, operations in found if number == branch.number]
        assert [kind for kind, _, _ in operations] == [Kind.PUBLISH, Kind.SETTLE]

    def test_requeued_messages_return_at_commit(self, site: XaSite) -> None:
        site.prepared(disposition=Disposition.MODIFIED, publish=())
        assert site.contents("q") == [b"old 1"]
        site.coordinator.commit(X, one_phase=False)
        site.turn()
        assert site.ready(site.q) == [(1, b"old 0", True), (2, b"old 1", False)]
        assert site.q.unsettled == 0

    def test_a_requeue_over_the_delivery_limit_dead_letters_in_the_commit(self, site: XaSite) -> None:
        site.queue("dead")
        site.broker.directory.delete_queue(site.q)
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        site.queue("q", {**letters, "x-queue-type": "quorum", "x-delivery-limit": 0})
        site.prepared(disposition=Disposition.MODIFIED, publish=())
        site.coordinator.commit(X, one_phase=False)
        site.turn()
        assert (site.contents("q"), site.contents("dead")) == ([b"old 1"], [b"old 0"])

    def test_time_to_live_begins_at_commit(self, site: XaSite) -> None:
        to = site.queue("brief", {"x-message-ttl": 1000})
        branch = site.start()
        site.broker.transactions.enlist(branch, site.publication("brief", b"new"))
        site.end()
        site.coordinator.prepare(X)
        site.after(10_000)
        site.coordinator.commit(X, one_phase=False)
        site.turn()
        site.after(900)
        assert site.ready(to) == [(1, b"new", False)]
        again = site.restart()
        again.after(50)
        assert again.contents("brief") == [b"new"]
        again.after(60)
        assert again.contents("brief") == []
        assert site.live() == 1

    def test_transient_messages_and_queues_are_committed(self, site: XaSite) -> None:
        site.queue("passing", durable=False)
        branch = site.start()
        site.broker.transactions.enlist(branch, site.publication("passing", b"1"))
        site.broker.transactions.enlist(branch, site.publication("to", b"2", durable=False))
        site.broker.transactions.enlist(branch, site.publication("to", b"3"))
        site.end()
        site.coordinator.prepare(X)
        site.turn()
        again = site.restart()
        assert again.coordinator.commit(X, one_phase=False).status is OK
        again.turn()
        assert again.contents("to") == [b"3"]
        site.coordinator.commit(X, one_phase=False)
        site.turn()
        assert (site.contents("passing"), site.contents("to")) == ([b"1"], [b"2", b"3"])

    def test_a_branch_can_publish_to_streams(self, site: XaSite) -> None:
        stream = site.queue("stream", {"x-queue-type": "stream"})
        branch = site.start()
        site.broker.transactions.enlist(branch, site.publication("stream", b"1", b"2", durable=False))
        site.end()
        site.coordinator.prepare(X)
        site.after(5)
        site.coordinator.commit(X, one_phase=False)
        site.turn()
        assert stream.ready == 2
        assert site.restart().vhost.queue("stream").ready == 2

    def test_a_stream_shows_the_time_of_the_commit_not_of_the_prepare(self, site: XaSite) -> None:
        site.queue("stream", {"x-queue-type": "stream"})
        branch = site.start()
        site.broker.transactions.enlist(branch, site.publication("stream", b"late"))
        site.end()
        site.coordinator.prepare(X)
        for body in (b"1", b"2"):
            site.after(1000)
            site.publish("stream", body)
        site.after(1000)
        committed = site.now
        site.coordinator.commit(X, one_phase=False)
        site.after(1000)
        site.publish("stream", b"3")
        site.turn()
        for running in (site, site.restart(), site.restart(resident_limit=0)):
            assert read_from(running, committed - 2000) == [b"1", b"2", b"late", b"3"]
            assert read_from(running, committed) == [b"late", b"3"]
            assert read_from(running, committed + 1) == [b"3"]
        assert site.live() == 4

    def test_bodies_that_were_paged_out_are_committed(self, site: XaSite) -> None:
        contents = tuple(b"%06d" % i * 100 for i in range(1000))
        site.prepared(publish=contents, settle=0)
        site.coordinator.commit(X, one_phase=False)
        site.turn()
        assert site.contents("to") == list(contents)

    def test_one_phase_commit_writes_one_record(self, site: XaSite) -> None:
        site.worked()
        result = site.coordinator.commit(X, one_phase=True)
        assert (result.status, result.lsn) == (OK, site.journal.end_lsn)
        site.turn()
        assert site.waiting() == ([b"old 1"], [b"new"])
        assert site.restart().waiting() == ([b"old 1"], [b"new"])
        assert site.branches.views() == []

    def test_one_phase_commit_rolls_back_if_a_queue_is_full(self, site: XaSite) -> None:
        site.queue("small", {"x-max-length": 1, "x-overflow": "reject-publish"})
        site.publish("small", b"x")
        branch = site.worked(publish=())
        branch.enlist(site.publication("small", b"y"))
        result = site.coordinator.commit(X, one_phase=True)
        assert (result.status, "full" in result.reason) == (XaStatus.RB_ROLLBACK, True)
        assert site.contents("q") == [b"old 0", b"old 1"]


LARGE = b"x" * 40_000


@pytest.mark.rule("DTX-9", "TX-5", "TX-8")
@pytest.mark.parametrize("on_disk", [True, False])
def test_rewritten_content_does_not_lengthen_the_record_of_an_outcome(on_disk: bool) -> None:
    """This holds however many large branches are decided at once, because the length of a record is limited."""
    site = XaSite()
    brief = site.queue("brief", {"x-message-ttl": 60_000})
    names = [Xid(1, b"many", b"%d" % number) for number in range(3)]
    for name in names:
        branch = site.start(name)
        site.broker.transactions.enlist(branch, site.publication("brief", b"small"))
        site.broker.transactions.enlist(
            branch, Publication(Envelope("", "brief", b"", durable=True), [LARGE, LARGE], (brief,))
        )
        site.end(name)
        assert site.coordinator.prepare(name).status is OK
    site.after(50_000)
    site.coordinator.decide(b"many", 1, [name.bqual for name in names], application="app", epoch=1)
    if on_disk:
        site.turn()
        assert site.contents("brief") == [b"small", LARGE, LARGE] * 3
        (record,) = site.records(Kind.DECIDE)
        assert len(record) < 1000
        assert site.live() == 9
    again = site.restart()
    assert again.branches.recover() == ([] if on_disk else names)
    assert again.live() == 9
    if on_disk:
        again.after(50_000)
        assert again.contents("brief") == [b"small", LARGE, LARGE] * 3, "they live from their commit on"
        again.after(10_002)
        assert again.contents("brief") == []
        assert again.live() == 0


@pytest.mark.rule("DTX-9", "TX-5")
def test_dead_letters_of_an_outcome_are_written_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "BLOCK_BYTES", 70_000)
    site = XaSite()
    site.broker.directory.delete_queue(site.q)
    site.queue("q", {"x-dead-letter-exchange": "amq.fanout"})
    site.publish("q", *[LARGE] * 5)
    site.broker.directory.bind_queue(site.vhost, "amq.fanout", "to", "")
    site.prepared(settle=5, publish=(), disposition=Disposition.REJECTED)
    site.coordinator.commit(X, one_phase=False)
    site.turn()
    assert site.contents("to") == [LARGE] * 5
    (record,) = site.records(Kind.COMMIT)
    assert len(record) < 1000
    assert [len(page) // len(LARGE) for page in site.records(Kind.PAGE)] == [2, 2, 1]
    again = site.restart()
    assert again.waiting() == ([], [LARGE] * 5)
    assert again.live() == 5
