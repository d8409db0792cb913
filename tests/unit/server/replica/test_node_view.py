"""A node knows who leads, who led before, and what these have reported."""

from __future__ import annotations

from escrowmq.replica.entries import TakeOverReason
from escrowmq.server.replica.node_view import NodeView
from tests.unit.replica.logs import Log
from tests.unit.server.replica.standbys import led_by_another


def test_the_leader_of_the_log_is_noted_once() -> None:
    leader, view = led_by_another(Log(), "amqp://n2"), NodeView("n1")
    view.note(leader._tail.fold)
    view.note(leader._tail.fold)
    assert (view.epoch, view.leader, view.leader_url, view.watched) == (1, "n2", "amqp://n2", True)
    assert [(each.epoch, each.node) for each in view.take_overs] == [(1, "n2")]


def test_a_leader_that_had_resigned_before_it_was_seen_was_not_watched() -> None:
    leader, view = led_by_another(Log()), NodeView("n1")
    leader.resign()
    leader._tail.read_to_end()
    view.note(leader._tail.fold)
    assert not view.watched


def test_a_take_over_shows_what_its_node_has_reported() -> None:
    leader, view = led_by_another(Log()), NodeView("n1")
    leader.report(0, 5000, TakeOverReason.FIRST, 300)
    leader._tail.read_to_end()
    view.note(leader._tail.fold)
    (found,) = view.reported_take_overs(leader._tail.fold)
    assert (found.seen, found.reason, found.seconds) == (5.0, "first", 0.3)
