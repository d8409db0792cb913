"""Contents of messages that have just arrived, within a limit for all termini."""

from __future__ import annotations

from collections.abc import Sequence

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
