"""A deleted topic is gone at once; its messages and consumers follow in pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest

from escrowmq.core.budget import CANCELLED, DELETED, TURN
from tests.unit.core.groups.consuming import Consuming


@pytest.fixture
def consuming() -> Consuming:
    """A topic of 300 partitions, all of which have a message."""
    made = Consuming(partitions=300)
    for partition in range(300):
        made.publish("m", partition=partition)
    made.site.turn()
    return made


@pytest.mark.rule("FAIR-1")
def test_the_streams_are_emptied_and_their_consumers_cancelled_in_several_turns(consuming: Consuming) -> None:
    site = consuming.site
    sinks = [site.consume(stream)[1] for stream in consuming.streams]
    site.turn()
    assert site.live() == 300
    site.broker.engine.requests.renew()
    site.broker.topics.delete(site.vhost, "t")
    assert not site.vhost.queues
    cancelled = [sum(len(sink.gone) for sink in sinks)]
    while cancelled[-1] < 300:
        site.broker.engine.turn.end()
        cancelled.append(sum(len(sink.gone) for sink in sinks))
    assert max(after - before for before, after in pairwise(cancelled)) <= TURN // (DELETED + CANCELLED) + 1
    site.turn()
    assert site.live() == 0


@pytest.mark.rule("FAIR-1")
def test_a_restart_before_the_end_knows_nothing_of_the_topic(consuming: Consuming) -> None:
    site = consuming.site
    site.broker.topics.delete(site.vhost, "t")
    assert site.broker.engine.turn.unfinished
    site.snapshot()
    site.sync()
    again = site.restart()
    assert again.vhost.queues == {}
    assert again.live() == 0
