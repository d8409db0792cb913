"""The end of a turn: deliveries are recorded, and nothing is done for queues that are gone."""

from __future__ import annotations

import pytest

from tests.unit.core.site import Sink, Site


@pytest.fixture
def site() -> Site:
    return Site()


def test_deliveries_are_known_after_a_crash(site: Site) -> None:
    queue = site.queue()
    site.publish("q", b"a", b"b", b"c")
    site.consume(queue, credit=2)
    site.turn()
    again = site.restart()
    assert again.ready(again.vhost.queue("q")) == [(1, b"a", True), (2, b"b", True), (3, b"c", False)]


def test_an_idle_turn_writes_nothing(site: Site) -> None:
    site.queue()
    site.turn()
    before = site.journal.end_lsn
    site.turn()
    assert site.journal.end_lsn == before


def test_a_deleted_queue_is_not_served(site: Site) -> None:
    queue = site.queue()
    sink = Sink()
    site.consume(queue, sink)
    sink.writable = False
    site.publish("q", b"x")
    site.broker.directory.delete_queue(queue)
    sink.writable = True
    site.turn()
    assert sink.contents == []
    assert len(sink.gone) == 1


def test_while_deliveries_are_withheld_queues_wait_and_ask_for_no_turn(site: Site) -> None:
    queue = site.queue()
    sink = Sink()
    site.consume(queue, sink)
    site.broker.engine.turn.withheld = True
    site.publish("q", b"x")
    site.turn()
    assert sink.contents == []
    unfinished = [site.broker.engine.turn.unfinished]
    site.broker.engine.turn.withheld = False
    unfinished.append(site.broker.engine.turn.unfinished)
    assert unfinished == [False, True]
    site.turn()
    assert sink.contents == [b"x"]
