"""Contents of messages that have just arrived, within a limit for all termini."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence

import pytest

from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.termini.arrivals import Arrival, fingerprint_of
from escrowmq.core.termini.fresh import FRESH_BYTES, FreshContents
from tests.unit.core.site import Site
from tests.unit.core.termini.links import TestedLink, incoming


class Digested:
    def __init__(self) -> None:
        self.tags: list[bytes] = []

    def digest(self, tags: Sequence[bytes]) -> None:
        self.tags += tags


def test_the_oldest_messages_beyond_the_limit_are_digested() -> None:
    one, two = Digested(), Digested()
    fresh = FreshContents(1000)
    fresh.add(one, [b"1"], [bytes(400)])
    fresh.add(two, [b"2"], [bytes(400)])
    assert not one.tags
    fresh.add(two, [b"3", b"4"], [bytes(100), bytes(100)])
    assert (one.tags, two.tags) == ([b"1"], [])
    fresh.add(one, [b"5"], [bytes(2000)])
    assert (one.tags, two.tags) == ([b"1", b"5"], [b"2", b"3", b"4"])


def test_the_messages_of_a_terminus_that_is_gone_are_forgotten() -> None:
    one, two = Digested(), Digested()
    fresh = FreshContents(1000)
    for number in range(3):
        fresh.add(one, [b"%d" % number], [bytes(100)])
        fresh.add(two, [b"%d" % number], [bytes(100)])
    fresh.forget(one)
    fresh.forget(one)
    fresh.add(two, [b"3"], [bytes(400)])
    assert not two.tags, "there is room for the others"
    fresh.add(two, [b"4"], [bytes(1000)])
    assert (one.tags, two.tags) == ([], [b"0", b"1", b"2", b"3", b"4"])


@pytest.mark.rule("FAIR-2")
def test_the_memory_of_a_terminus_is_free_at_once_although_its_messages_were_fresh() -> None:
    site = Site()
    site.queue("q")
    link = TestedLink(site, incoming())
    link.post([b"1"], [b"a"])
    site.turn()
    arrivals = link.terminus.arrivals
    before = sys.getrefcount(arrivals)
    link.loan.close()
    site.turn()
    assert sys.getrefcount(arrivals) < before
    assert not [each for each in gc.get_referrers(arrivals) if isinstance(each, tuple | dict)]


def test_a_terminus_keeps_the_outcomes_of_messages_that_are_no_longer_fresh() -> None:
    site = Site()
    site.queue("q")
    link = TestedLink(site, incoming())
    contents = [bytes((i,)) * (FRESH_BYTES // 4) for i in range(6)]
    for i, content in enumerate(contents):
        link.post([b"%d" % i], [content])
    arrivals = link.terminus.arrivals
    assert len(arrivals.accepted().contents) == 3
    assert dict(arrivals.items()) == {
        b"%d" % i: Arrival(Disposition.ACCEPTED, fingerprint_of(content)) for i, content in enumerate(contents)
    }
