"""How many messages become dead letters in one piece of work."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues import portions
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.unsettled import Unsettled
from tests.unit.core.site import Site, taken


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site whose queue `q` has dead letters that go to three queues."""
    monkeypatch.setattr(portions, "TOGETHER", 10)
    site = Site()
    for name in "abc":
        site.queue(name)
        site.vhost.bind_queue("amq.fanout", name, "")
    site.queue("q", {"x-dead-letter-exchange": "amq.fanout"})
    return site


def admitted(site: Site, name: str) -> int:
    """Return how many messages of a queue are in one piece, before any dead letter has gone anywhere."""
    portion = site.broker.engine.dead_letters.portion(Outcome.REJECTED)
    queue = site.vhost.queue(name)
    _, entries = taken(site, queue)
    return [portion.admits(queue, entry) for entry in entries].index(False)


@pytest.mark.rule("FAIR-1")
def test_the_first_dead_letters_of_all_are_bounded_by_their_route(site: Site) -> None:
    site.publish("q", *[b"x"] * 20)
    assert admitted(site, "q") == 3


@pytest.mark.rule("FAIR-1")
def test_one_message_may_go_to_any_number_of_queues(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "TOGETHER", 2)
    site.publish("q", b"x", b"y")
    assert admitted(site, "q") == 1


@pytest.mark.rule("FAIR-1")
def test_messages_without_a_destination_count_as_one_place_each(site: Site) -> None:
    site.queue("plain")
    site.queue("astray", {"x-dead-letter-exchange": "missing"})
    for name in ("plain", "astray"):
        site.publish(name, *[b"x"] * 20)
        assert admitted(site, name) == 10


@pytest.mark.rule("FAIR-1")
def test_a_piece_of_deliveries_ends_at_a_tag(site: Site) -> None:
    site.publish("q", *[b"x"] * 9)
    consumer, entries = taken(site, site.vhost.queue("q"))
    unsettled = Unsettled()
    unsettled.add(entries, consumer)
    unsettled.take(2)

    def reach(first: int, last: int, most: int) -> int:
        portion = site.broker.engine.dead_letters.portion(Outcome.REJECTED)
        return portion.reach(unsettled.stretches(first), first, last, most)

    assert [reach(1, 9, 9), reach(3, 9, 9), reach(5, 9, 2), reach(8, 9, 9), reach(2, 2, 9)] == [4, 5, 6, 9, 2]


def test_a_deleted_queue_has_no_dead_letters(site: Site) -> None:
    site.publish("q", b"x")
    queue = site.vhost.queue("q")
    _, entries = taken(site, queue)
    site.broker.directory.delete_queue(queue)
    entry: Entry = entries[0]
    assert site.broker.engine.dead_letters.width(queue, entry, Outcome.REJECTED) == (0, True)
