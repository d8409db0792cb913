"""Decisions: the records that they write, the changes that they make, and the agreement of both."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.branches.decision import Decision
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.commits import decode_commit
from escrowmq.core.records.kinds import Kind
from tests.unit.core.site import Site

DURABLE = Envelope("", "q", durable=True)
TRANSIENT = Envelope("", "q")


def kinds(site: Site) -> list[Kind]:
    return [Kind(kind) for _, kind, _ in site.restart().replayed if kind in {Kind.PUBLISH, Kind.SETTLE, Kind.COMMIT}]


def test_one_effect_outside_a_branch_is_one_plain_record() -> None:
    site = Site()
    queue = site.queue()
    decision = Decision(site.broker.engine)
    decision.place(DURABLE, [b"a"], [queue])
    assert decision.apply() == site.journal.end_lsn
    site.sync()
    assert kinds(site) == [Kind.PUBLISH]
    assert site.restart().contents() == site.contents() == [b"a"]


@pytest.mark.rule("TX-5")
def test_all_effects_of_a_branch_are_one_record() -> None:
    site = Site()
    one, two = site.queue("one"), site.queue("two")
    site.publish("one", b"old")
    entries = one.take(1)
    decision = Decision(site.broker.engine, 5)
    decision.place(DURABLE, [b"a", b"b"], [one, two])
    decision.place(DURABLE, [b"c"], [two])
    decision.remove(one, entries, Outcome.ACCEPTED)
    lsn = decision.apply(sealed=True)
    assert lsn == site.journal.end_lsn
    assert (one.ready, two.ready) == (0, 0)
    site.sync()
    assert kinds(site) == [Kind.PUBLISH, Kind.COMMIT]
    branch, operations = decode_commit(site.records(Kind.COMMIT)[0])
    assert branch == 5
    assert [kind for kind, _, _ in operations] == [Kind.PUBLISH, Kind.PUBLISH, Kind.SETTLE]
    for running in (site, site.restart()):
        assert running.contents("one") == [b"a", b"b"]
        assert running.contents("two") == [b"a", b"b", b"c"]
        assert running.live() == 5


def test_transient_effects_write_nothing_and_wait_for_nothing() -> None:
    site = Site()
    queue, passing = site.queue(), site.queue("passing", durable=False)
    site.sync()
    before = site.journal.end_lsn
    decision = Decision(site.broker.engine, 1)
    decision.place(TRANSIENT, [b"a"], [queue])
    decision.place(DURABLE, [b"b"], [passing])
    assert decision.apply(sealed=True) == 0
    assert site.journal.end_lsn == before
    assert (site.contents(), site.contents("passing")) == ([b"a"], [b"b"])


def test_settlements_of_a_deleted_queue_write_nothing() -> None:
    site = Site()
    queue = site.queue()
    site.publish("q", b"a")
    entries = queue.take(1)
    site.broker.directory.delete_queue(queue)
    decision = Decision(site.broker.engine, 1)
    decision.remove(queue, entries, Outcome.ACCEPTED)
    assert decision.apply() == 0
    assert site.live() == 0


def test_an_empty_decision_writes_nothing() -> None:
    site = Site()
    before = site.journal.end_lsn
    assert Decision(site.broker.engine, 9).apply(sealed=True) == 0
    assert site.journal.end_lsn == before


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(1, 3), st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True)),
        max_size=6,
    ),
    st.integers(0, 1),
    st.booleans(),
)
def test_the_log_and_the_queues_agree(plan: list[tuple[bool, int, list[int]]], branch: int, sealed: bool) -> None:
    site = Site()
    queues = [site.queue(f"q{i}", durable=i != 3) for i in range(4)]
    decision = Decision(site.broker.engine, branch)
    number = 0
    for durable, count, targets in plan:
        contents = [b"%d%c" % (number + i, b"dt"[not durable]) for i in range(count)]
        number += count
        decision.place(DURABLE if durable else TRANSIENT, contents, [queues[i] for i in targets])
    decision.apply(sealed=sealed)
    site.turn()
    again = site.restart()
    for queue in queues[:3]:
        ready = [held for held in site.ready(queue) if held[1].endswith(b"d")]
        assert again.ready(again.vhost.queue(queue.name)) == ready
    assert again.live() == site.live()
