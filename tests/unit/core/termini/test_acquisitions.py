"""Unsettled deliveries of an outgoing terminus, by number."""

from __future__ import annotations

import pytest

from escrowmq.core.access.holdings import STEP
from escrowmq.core.conditions import BrokerError
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue
from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.core.termini.acquisitions import Acquisitions
from escrowmq.core.termini.tags import delivery_tag
from escrowmq.core.termini.terminus import TerminusState
from tests.unit.core.site import Site
from tests.unit.core.termini.links import BRIEF, TestedLink, attached_again, consuming, outgoing

RUN = Run(Envelope("", "q"), 1, 0)


def entries(*positions: int) -> list[Entry]:
    return [Entry(position, b"%d" % position, RUN) for position in positions]


def acquisitions() -> tuple[Acquisitions, Consumer]:
    site = Site()
    return Acquisitions(site.broker.engine), Consumer(site.queue(), None)


def test_deliveries_get_consecutive_numbers() -> None:
    tested, consumer = acquisitions()
    assert tested.add(consumer, entries(5, 6)) == 1
    assert tested.add(consumer, entries(9)) == 3
    assert (tested.count, tested.next_number, tested.numbers()) == (3, 4, [1, 2, 3])


def test_a_range_of_numbers_is_taken_with_its_holes() -> None:
    tested, consumer = acquisitions()
    tested.add(consumer, entries(1, 2, 3, 4, 5))
    tested.take(3, 3)
    taken = tested.take(2, 4)
    assert [(number, [entry.position for entry in some]) for number, some, _ in taken] == [(2, [2]), (4, [4])]
    assert tested.take(2, 4) == []
    assert tested.numbers() == [1, 5]
    assert [entry.position for _, some in tested.take_all().copies() for entry in some] == [1, 5]
    assert tested.count == 0


def test_a_tag_names_its_delivery_only() -> None:
    tested, consumer = acquisitions()
    ident = consumer.queue.ident
    tested.add(consumer, entries(5, 6))
    assert tested.tags() == [(1, delivery_tag(ident, 5, 1)), (2, delivery_tag(ident, 6, 2))]
    assert tested.number_of(delivery_tag(ident, 6, 2)) == 2
    others = [delivery_tag(ident, 5, 2), delivery_tag(ident + 1, 6, 2), delivery_tag(ident, 6, 3), b"short"]
    assert [tested.number_of(tag) for tag in others] == [None] * 4


def test_a_tag_is_found_although_it_holds_only_32_bits_of_the_number() -> None:
    tested, consumer = acquisitions()
    tested.restart_at((1 << 32) - 1)
    tested.add(consumer, entries(1, 2, 3))
    assert [tested.number_of(tag) for _, tag in tested.tags()] == [(1 << 32) - 1, 1 << 32, (1 << 32) + 1]


def test_deliveries_are_held_for_snapshots_and_compaction() -> None:
    tested, consumer = acquisitions()
    some = entries(1, 2, 3)
    tested.add(consumer, some)
    assert tested.held() == [(consumer, some)]
    assert tested.held_part(1, 1) == [(consumer, some[1])]
    assert tested.slots() == [(1, some, consumer)]


def test_deliveries_in_memory_are_sent_again_under_their_numbers() -> None:
    tested, consumer = acquisitions()
    some = entries(7, 8)
    tested.add(consumer, some)
    (taken,) = tested.take_up([2, 3])
    assert taken == (2, delivery_tag(consumer.queue.ident, 8, 2), some[1], consumer)
    assert tested.count == 2


def test_a_message_that_cannot_be_read_stays_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    consuming(site, b"a", b"b")
    site = site.restart()
    link = attached_again(site, outgoing())

    def fail(pager: object, reference: object) -> None:
        raise LogUnreadable(f"{reference} in {pager}")

    with monkeypatch.context() as patch:
        patch.setattr(type(site.broker.engine.pager), "load", fail)
        with pytest.raises(LogUnreadable):
            link.terminus.deliveries.take_up([1])
    assert link.terminus.deliveries.count == 2
    assert [each.entry.content for each in link.terminus.deliveries.take_up([2, 1])] == [b"b", b"a"]


# -- memory


def queue_of(site: Site) -> Queue:
    return site.vhost.queues["q"]


@pytest.mark.rule("FAIR-3", "SET-10")
def test_relieved_deliveries_stay_locked_without_their_content() -> None:
    site = Site()
    link = consuming(site, *[b"%d" % i * 8000 for i in range(5)])
    link.loan.settle(2, 2, Disposition.ACCEPTED)
    held = site.broker.holdings.of_user("u")
    assert held > 0
    link.terminus.deliveries.give_up("memory is short")
    assert link.terminus.state is TerminusState.SUSPENDED
    assert link.terminus.deliveries.held() == []
    assert (link.terminus.unsettled, queue_of(site).unsettled, queue_of(site).ready) == (4, 4, 0)
    assert site.broker.holdings.of_user("u") < held
    rival = TestedLink(site, outgoing("rival"))
    rival.consume(queue_of(site))
    site.turn()
    assert rival.contents == []
    again = attached_again(site, link)
    taken, _ = again.loan.take_up([1, 3, 4, 5])
    assert [each.entry.content[:1] for each in taken] == [b"0", b"2", b"3", b"4"]
    assert again.loan.settle(1, 5, Disposition.ACCEPTED) == 4
    assert (again.terminus.unsettled, queue_of(site).unsettled, queue_of(site).ready) == (0, 0, 0)


def test_relieved_twice_and_after_a_restart_in_between() -> None:
    site = Site()
    link = consuming(site, b"a", b"b", b"c")
    link.terminus.deliveries.give_up("memory is short")
    again = attached_again(site, link)
    again.loan.take_up([2])
    again.terminus.deliveries.give_up("memory is short")
    assert again.terminus.deliveries.numbers() == [1, 2, 3]
    assert queue_of(site).unsettled == 3
    site = site.restart()
    last = attached_again(site, outgoing())
    taken, _ = last.loan.take_up([1, 2, 3])
    assert [each.entry.content for each in taken] == [b"a", b"b", b"c"]


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize("attached", [True, False])
def test_deliveries_that_the_log_does_not_keep_return_to_their_queue(attached: bool) -> None:
    site = Site()
    link = consuming(site, b"a" * 40_000, b"b", settings=BRIEF)
    if not attached:
        link.loan.detach()
    assert site.broker.holdings.of_user("u") > 40_000
    link.terminus.deliveries.give_up("memory is short")
    assert link.terminus.state is TerminusState.GONE
    assert (queue_of(site).unsettled, queue_of(site).ready) == (0, 2)
    assert site.broker.holdings.of_user("u") == 0


@pytest.mark.rule("FAIR-2")
def test_deliveries_count_until_they_are_settled_or_their_terminus_ends() -> None:
    site = Site()
    link = consuming(site, *[b"x" * 20_000] * 10)
    held = site.broker.holdings.of_user("u")
    assert 200_000 <= held <= 300_000
    assert site.broker.holdings.of_vhost("/") == held
    link.loan.settle(1, 5, Disposition.ACCEPTED)
    assert site.broker.holdings.of_user("u") <= held // 2 + 2 * STEP
    link.loan.detach()
    assert site.broker.holdings.of_user("u") > 100_000
    site.broker.termini.end(link.terminus)
    assert site.broker.holdings.of_user("u") == 0


# -- deliveries beyond the share of memory


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a terminus keep few deliveries in memory."""
    monkeypatch.setattr(f"{Acquisitions.__module__}.RESIDENT", 3 * STEP)


def holding(site: Site, count: int = 200) -> TestedLink:
    """Deliver messages of about 1 KB, in runs of 20."""
    queue = site.queue()
    for first in range(0, count, 20):
        site.publish("q", *[b"%d " % i + bytes(1000) for i in range(first, first + 20)])
    link = TestedLink(site, outgoing())
    link.consume(queue)
    site.turn()
    return link


@pytest.mark.usefixtures("little_memory")
class TestManyDeliveries:
    """More deliveries than a terminus keeps in memory, of which the oldest are locked."""

    def test_only_the_newest_ones_stay_in_memory(self) -> None:
        site = Site()
        link = holding(site)
        deliveries = link.terminus.deliveries
        assert [entry.content.split()[0] for _, entry, _ in link.got] == [b"%d" % i for i in range(200)]
        assert (deliveries.count, queue_of(site).unsettled, deliveries.numbers()) == (200, 200, list(range(1, 201)))
        assert site.broker.holdings.of_user("u") < 8 * STEP
        in_memory = [entry.position for _, some in deliveries.held() for entry in some]
        assert in_memory == list(range(201 - len(in_memory), 201))

    @pytest.mark.parametrize("pieces", [1, 7, 200])
    def test_they_are_accepted_without_being_read(self, pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
        site = Site()
        link = holding(site)
        with monkeypatch.context() as patch:
            patch.setattr(type(site.broker.engine.pager), "load", None)
            settled = [
                link.loan.settle(first, min(first + pieces - 1, 200), Disposition.ACCEPTED)
                for first in range(1, 201, pieces)
            ]
        assert (sum(settled), link.terminus.unsettled, queue_of(site).unsettled) == (200, 0, 0)
        site.turn()
        site = site.restart()
        assert (queue_of(site).ready, queue_of(site).unsettled) == (0, 0)

    def test_they_return_with_their_content_and_in_their_order(self) -> None:
        site = Site()
        link = holding(site)
        assert link.loan.settle(1, 100, Disposition.RELEASED) == 100
        assert (link.terminus.unsettled, queue_of(site).unsettled) == (100, 100)
        link.got.clear()
        rival = TestedLink(site, outgoing("rival"))
        link.loan.close()
        rival.consume(queue_of(site))
        site.turn()
        assert [content.split()[0] for content in rival.contents] == [b"%d" % i for i in range(200)]

    def test_they_are_the_same_after_a_restart(self) -> None:
        site = Site()
        link = holding(site)
        link.loan.settle(50, 69, Disposition.ACCEPTED)
        site.turn()
        site = site.restart()
        again = attached_again(site, outgoing())
        expected = [*range(1, 50), *range(70, 201)]
        assert again.terminus.deliveries.numbers() == expected
        taken, _ = again.loan.take_up(expected)
        assert [each.entry.content.split()[0] for each in taken] == [b"%d" % (number - 1) for number in expected]

    def test_a_snapshot_in_progress_includes_those_that_are_locked_meanwhile(self) -> None:
        site = Site()
        queue = site.queue()
        link = TestedLink(site, outgoing())
        for first in range(0, 40, 20):
            site.publish("q", *[b"%d " % i + bytes(1000) for i in range(first, first + 20)])
        link.consume(queue)
        site.turn()
        queue.watched = True
        for first in range(40, 200, 20):
            site.publish("q", *[b"%d " % i + bytes(1000) for i in range(first, first + 20)])
        site.turn()
        assert link.terminus.deliveries.locks
        assert not queue.watched

    def test_one_that_cannot_be_read_stays_unsettled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        site = Site()
        link = holding(site)

        def fail(pager: object, reference: object) -> None:
            raise LogUnreadable(f"{reference} in {pager}")

        with monkeypatch.context() as patch:
            patch.setattr(type(site.broker.engine.pager), "load", fail)
            with pytest.raises(BrokerError, match="cannot be read"):
                link.loan.settle(1, 200, Disposition.MODIFIED)
            with pytest.raises(BrokerError, match="cannot be read"):
                link.loan.enlist(site.begin(), 1, 5)
        assert link.terminus.unsettled == 200

    def test_transient_ones_stay_in_memory(self) -> None:
        site = Site()
        queue = site.queue()
        envelope = Envelope("", "q")
        link = TestedLink(site, outgoing())
        link.consume(queue)
        for _ in range(200):
            site.broker.engine.publish(envelope, [bytes(1000)], [queue])
            site.turn()
        assert len(link.terminus.deliveries.held()) > 0
        assert not link.terminus.deliveries.locks
        assert link.loan.settle(1, 200, Disposition.ACCEPTED) == 200


def test_the_first_tags_are_found_without_the_others() -> None:
    site = Site()
    link = consuming(site, *[b"%d" % i for i in range(6)])
    site.turn()
    site = site.restart()
    deliveries = attached_again(site, outgoing()).terminus.deliveries
    deliveries.take_up([2, 5])
    assert [number for number, _ in deliveries.tags()] == [1, 2, 3, 4, 5, 6]
    assert deliveries.tags(3) == deliveries.tags()[:3]
    assert link.terminus.deliveries.tags(0) == []
