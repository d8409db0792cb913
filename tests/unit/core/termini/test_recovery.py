"""Termini after a restart: settings, tags and locked messages, from the log and from snapshots."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.termini import NumberedRange, encode_acquired, encode_given_back
from escrowmq.core.termini.recovery import FoundTermini, _FoundTerminus
from escrowmq.core.termini.terminus import Durability, ExpiryPolicy, Terminus
from tests.unit.core.site import Site
from tests.unit.core.termini.links import KEPT, TestedLink, attached_again, consuming, incoming, outgoing


def compact(site: Site) -> None:
    """Move all living messages to the end of the log."""
    site.sync()
    site.compact()
    site.sync()


def straight(site: Site) -> None:
    site.turn()


def through_a_snapshot(site: Site) -> None:
    site.turn()
    site.snapshot()


def through_compaction(site: Site) -> None:
    site.turn()
    compact(site)
    site.snapshot()


WAYS = [straight, through_a_snapshot, through_compaction]


def restarted(site: Site, way: Callable[[Site], None]) -> tuple[Site, Terminus]:
    """Restart twice, the second time from what the first one restored."""
    way(site)
    site = site.restart()
    way(site)
    site = site.restart()
    return site, site.broker.termini.by_key[outgoing()]


@pytest.mark.rule("SET-10")
@pytest.mark.parametrize("way", WAYS)
def test_unsettled_messages_are_locked_for_their_terminus(way: Callable[[Site], None]) -> None:
    site = Site()
    link = consuming(site, b"a", b"b", b"c", b"d", credit=3)
    tags = link.terminus.deliveries.tags()
    link.loan.settle(2, 2, Disposition.ACCEPTED)
    site, terminus = restarted(site, way)
    assert site.contents() == [b"d"]
    assert site.vhost.queue("q").unsettled == 2
    assert terminus.deliveries.tags() == [tags[0], tags[2]]
    other, sink = site.consume(site.vhost.queue("q"))
    site.turn()
    assert sink.contents == [b"d"]
    again = attached_again(site, outgoing())
    taken = again.terminus.deliveries.take_up([1, 2, 3])
    assert [(each.number, each.tag, each.entry.content) for each in taken] == [(*tags[0], b"a"), (*tags[2], b"c")]
    again.loan.settle(1, 3, Disposition.ACCEPTED)
    site.turn()
    assert other.queue.unsettled == 1
    assert site.live() == 1


@pytest.mark.rule("SET-10")
@pytest.mark.parametrize("way", WAYS)
def test_locked_messages_return_when_their_terminus_is_released(way: Callable[[Site], None]) -> None:
    site = Site()
    consuming(site, b"a", b"b", b"c", credit=2)
    site, terminus = restarted(site, way)
    assert site.broker.termini.release(terminus) == 2
    site.turn()
    for one in (site, site.restart()):
        assert one.ready(one.vhost.queue("q")) == [(1, b"a", True), (2, b"b", True), (3, b"c", False)]
        assert one.vhost.queue("q").unsettled == 0
    assert terminus.deliveries.count == 0


@pytest.mark.rule("SET-10")
def test_an_acquisition_that_was_not_synced_has_not_happened() -> None:
    site = Site()
    site.publish(site.queue().name, b"a")
    link = TestedLink(site, outgoing())
    link.consume(site.vhost.queue("q"))
    site.sync()
    site.turn(sync=False)
    assert link.contents == [b"a"]  # its transfer waits
    assert site.restart().contents() == [b"a"]


@pytest.mark.parametrize("way", WAYS)
def test_a_message_that_was_given_back_can_be_acquired_again(way: Callable[[Site], None]) -> None:
    site = Site()
    link = consuming(site, b"a", b"b", credit=3)
    link.loan.settle(1, 1, Disposition.RELEASED)
    site.turn()
    assert [number for number, _ in link.terminus.deliveries.tags()] == [2, 3]
    link.loan.settle(2, 2, Disposition.RELEASED)
    site, terminus = restarted(site, way)
    assert site.contents() == [b"b"]
    assert [number for number, _ in terminus.deliveries.tags()] == [3]
    assert terminus.deliveries.next_number == 4
    (taken,) = terminus.deliveries.take_up([3])
    assert taken.entry.content == b"a"


@pytest.mark.parametrize("way", WAYS)
def test_numbers_are_not_used_again_although_everything_is_settled(way: Callable[[Site], None]) -> None:
    site = Site()
    link = consuming(site, b"a", b"b")
    link.loan.settle(1, 2, Disposition.ACCEPTED)
    _, terminus = restarted(site, way)
    assert terminus.deliveries.next_number == 3
    assert terminus.deliveries.count == 0


@pytest.mark.rule("SET-3")
@pytest.mark.parametrize("way", WAYS)
def test_tags_of_unsettled_arrivals_are_kept(way: Callable[[Site], None]) -> None:
    site = Site()
    consuming(site)
    link = TestedLink(site, incoming())
    link.post([b"1", b"2", b"3"], [b"a", b"b", b"c"])
    link.loan.forget([b"2"])
    kept = link.terminus.arrivals.accepted()
    site, _ = restarted(site, way)
    found = site.broker.termini.by_key[incoming()].arrivals.accepted()
    assert (found.tags, found.fingerprints()) == ([b"1", b"3"], kept.fingerprints())


@pytest.mark.parametrize("way", WAYS)
def test_without_unsettled_state_only_the_configuration_survives(way: Callable[[Site], None]) -> None:
    site = Site()
    settings = KEPT._replace(durability=Durability.CONFIGURATION, policy=ExpiryPolicy.NEVER)
    consuming(site, b"a", settings=settings)
    site, terminus = restarted(site, way)
    assert terminus.settings == settings
    assert terminus.deliveries.count == 0
    assert site.contents() == [b"a"]


def test_the_timeout_starts_again_at_a_restart() -> None:
    site = Site()
    consuming(site, b"a", settings=KEPT._replace(policy=ExpiryPolicy.SESSION_END, timeout_ms=100))
    site.turn()
    site = site.restart()
    site.after(99)
    assert site.contents() == []
    site.after(1)
    assert site.contents() == [b"a"]
    assert site.broker.termini.by_key == {}


def test_a_terminus_that_never_expires_waits_after_a_restart() -> None:
    site = Site()
    consuming(site, b"a")
    site = site.restart()
    site.after(10**10)
    assert outgoing() in site.broker.termini.by_key


def test_locked_messages_of_a_priority_queue_are_found_by_number() -> None:
    site = Site()
    queue = site.queue("q", {"x-max-priority": 5})
    for content, priority in ((b"low", 1), (b"high", 5), (b"middle", 3)):
        site.publish("q", content, priority=priority)
    consuming(site)
    site.turn()
    site = site.restart()
    again = attached_again(site, outgoing())
    assert [each.entry.content for each in again.terminus.deliveries.take_up([1, 2, 3])] == [b"high", b"middle", b"low"]
    assert queue.name == "q"


def test_records_of_an_unknown_terminus_are_ignored() -> None:
    found = FoundTermini(Site().broker)
    assert found.acquired(0, encode_acquired(9, 3, [(1, 40, 2)])) == (3, 42)
    found.given_back(0, encode_given_back(9, 3, [(40, 1)]))


@pytest.mark.parametrize(
    ("back", "expected"),
    [
        ({}, [(1, 5, 4)]),
        ({5: 9}, [(2, 6, 3)]),
        ({6: 9, 8: 9}, [(1, 5, 1), (3, 7, 1)]),
        ({6: 2}, [(1, 5, 4)]),  # given back before it was acquired under this number
        ({5: 9, 6: 9, 7: 9, 8: 9}, []),
    ],
)
def test_ranges_lose_what_was_given_back_later(back: dict[int, int], expected: list[tuple[int, int, int]]) -> None:
    found = _FoundTerminus({})
    found.acquired[3] = [NumberedRange(1, 5, 4)]
    found.given_back[3] = back
    assert found.still_acquired(3) == expected
