"""The effects of large transactions: gathered without a change, then applied together."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.branch import Settlement
from escrowmq.core.branches.large_effects import PIECE, LargeEffects
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.drafts import Draft
from tests.unit.core.site import Site, taken


@pytest.mark.rule("TX-2")
def test_blocks_beyond_those_of_the_record_precede_it_and_nothing_is_visible_before_the_end() -> None:
    site = Site()
    queue = site.queue()
    draft = Draft()
    draft.begin(1)
    effects = LargeEffects(site.broker.engine, draft, inline_bytes=100)
    for body in (b"small", b"large" * 100):
        list(effects.publish(site.publication("q", body)))
    assert draft.size < 200, "the large block is in a record of its own"
    assert queue.next_position == 1
    effects.apply(0, 0)
    assert site.contents() == []
    for _ in effects.complete():
        assert site.contents() == []
    assert site.contents() == [b"small", b"large" * 100]


def test_effects_on_a_queue_that_is_deleted_meanwhile_are_outdated() -> None:
    site = Site()
    queue = site.queue()
    effects = LargeEffects(site.broker.engine, Draft())
    list(effects.publish(site.publication("q", b"body")))
    assert not effects.outdated
    site.broker.directory.delete_queue(queue)
    assert effects.outdated


@pytest.mark.rule("FAIR-1")
def test_settlements_and_publications_are_freed_in_pieces() -> None:
    site = Site()
    queue, count = site.queue(), 3 * PIECE
    site.publish("q", *[b"x"] * (2 * count))
    consumer, entries = taken(site, queue)
    publications = [site.publication("q", b"x") for _ in range(count)]
    settlements = [
        Settlement(consumer, entries[:count], Disposition.ACCEPTED),
        *[Settlement(consumer, [entry], Disposition.REJECTED) for entry in entries[count:]],
    ]

    def left() -> int:
        return len(publications) + sum(len(settlement.entries) for settlement in settlements)

    effects = LargeEffects(site.broker.engine, Draft())
    effects.apply(0, 0, [publications, settlements])
    steps, before = 0, left()
    for _ in effects._rest():
        assert before - left() <= PIECE
        before, steps = left(), steps + 1
    assert (left(), len(settlements)) == (0, 0)
    assert steps >= 9


@pytest.mark.rule("ORD-4")
def test_messages_that_come_after_the_positions_were_written_are_in_front() -> None:
    site = Site()
    queue, draft = site.queue(), Draft()
    draft.begin(1)
    effects = LargeEffects(site.broker.engine, draft)
    list(effects.publish(site.publication("q", b"committed")))
    for _ in effects.fill():
        pass
    site.publish("q", b"other")
    filled, positions = draft.size, effects.bases()
    parts = effects.finish()
    assert len(b"".join(parts)) == filled
    assert positions == {queue.ident: 2}
    effects.apply(0, 0)
    for _ in effects.complete():
        pass
    assert site.contents() == [b"other", b"committed"]
