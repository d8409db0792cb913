"""The effects of large transactions: gathered without a change, then applied together."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.large_effects import LargeEffects
from escrowmq.core.records.drafts import Draft
from tests.unit.core.site import Site


@pytest.mark.rule("TX-2")
def test_blocks_beyond_those_of_the_record_precede_it_and_nothing_is_visible_before_the_end() -> None:
    site = Site()
    queue = site.queue()
    draft = Draft()
    draft.begin(1)
    effects = LargeEffects(site.broker.engine, draft, inline_bytes=100)
    for body in (b"small", b"large" * 100):
        effects.publish(site.publication("q", body))
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
    effects.publish(site.publication("q", b"body"))
    assert not effects.outdated
    site.broker.directory.delete_queue(queue)
    assert effects.outdated
