"""Messages from producers whose receiver settles second: one record for messages and tags."""

from __future__ import annotations

import pytest

from escrowmq.core.engine import Receipt
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.placing import WIDE
from escrowmq.core.queues.queue import Queue
from escrowmq.core.records.commits import decode_commit
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.termini import decode_arrived
from escrowmq.core.termini.arrivals import fingerprint_of
from escrowmq.core.termini.terminus import TerminusSettings
from tests.unit.core.site import Site
from tests.unit.core.termini.links import BRIEF, KEPT, TestedLink, incoming


def site_with_queue(arguments: dict[str, object] | None = None, *, durable: bool = True) -> Site:
    site = Site()
    site.queue("q", arguments, durable=durable)
    return site


@pytest.mark.rule("SET-8")
def test_the_record_that_enqueues_messages_has_their_tags_and_outcome() -> None:
    site = site_with_queue()
    link = TestedLink(site, incoming())
    receipt = link.post([b"t1", b"t2"], [b"a", b"b"])
    assert receipt == Receipt(site.journal.end_lsn)
    (commit,) = site.records(Kind.COMMIT)
    branch, operations = decode_commit(commit)
    found = [(kind, bytes(payload)) for kind, _, payload in operations]
    assert branch == 0
    assert [kind for kind, _ in found] == [Kind.PUBLISH, Kind.ARRIVED]
    assert decode_arrived(found[1][1]) == (1, Disposition.ACCEPTED, [b"t1", b"t2"], None)
    again = site.restart().broker.termini.by_key[incoming()].arrivals
    assert again.accepted() == ([b"t1", b"t2"], [fingerprint_of(b"a"), fingerprint_of(b"b")], [])


@pytest.mark.rule("SET-8")
def test_messages_are_visible_when_their_record_is_synced() -> None:
    site = site_with_queue()
    link = TestedLink(site, incoming())
    site.sync()
    link.post([b"t1"], [b"a"])
    site.turn(sync=False)
    assert site.contents() == []
    site.sync()
    assert site.contents() == [b"a"]


@pytest.mark.parametrize(
    ("settings", "durable", "queue"), [(BRIEF, True, True), (KEPT, False, True), (KEPT, True, False)]
)
def test_tags_are_only_in_memory_if_terminus_message_or_queue_does_not_survive_a_restart(
    settings: TerminusSettings, durable: bool, queue: bool
) -> None:
    site = site_with_queue(durable=queue)
    link = TestedLink(site, incoming(), settings)
    link.post([b"t1"], [b"a"], durable=durable)
    assert link.terminus.arrivals.count == 1
    assert site.contents() == [b"a"]
    assert site.records(Kind.COMMIT, Kind.ARRIVED) == []


def test_a_message_that_a_full_queue_refuses_leaves_no_tag() -> None:
    site = site_with_queue({"x-max-length": 2, "x-overflow": "reject-publish"})
    for settings in (KEPT, BRIEF):
        link = TestedLink(site, incoming(settings.policy + str(settings.durability)), settings)
        site.vhost.queue("q").order.withdraw()
        receipt = link.post([b"1", b"2", b"3"], [b"a", b"b", b"c"])
        assert receipt.refused == (2,)
        assert [tag for tag, _ in link.terminus.arrivals.items()] == [b"1", b"2"]
        site.sync()
        assert site.contents() == [b"a", b"b"]


def test_a_message_that_only_some_queues_take_is_there_without_a_tag() -> None:
    site = site_with_queue()
    full = site.queue("full", {"x-max-length": 1, "x-overflow": "reject-publish"})
    site.publish("full", b"0")
    site.broker.directory.declare_exchange(site.vhost, "f", "fanout", durable=True)
    for name in ("q", "full"):
        site.broker.directory.bind_queue(site.vhost, "f", name, "")
    link = TestedLink(site, incoming())
    queues = (site.vhost.queue("q"), full)
    receipt = link.loan.post(Envelope("f", "", durable=True), [b"a"], queues, [b"1"])
    assert receipt.refused == (0,)
    assert link.terminus.arrivals.count == 0
    site.sync()
    assert (site.contents(), site.contents("full")) == ([b"a"], [b"0"])


def test_a_queue_that_persists_everything_makes_the_tag_durable_too() -> None:
    site = site_with_queue({"x-queue-type": "quorum"})
    link = TestedLink(site, incoming())
    link.post([b"t1"], [b"a"], durable=False)
    assert len(site.records(Kind.COMMIT)) == 1


def wide_site() -> tuple[Site, list[Queue]]:
    site = Site()
    return site, [site.queue(f"q{number}") for number in range(WIDE + 1)]


@pytest.mark.rule("FAIR-1", "SET-8")
def test_a_post_to_very_many_queues_is_placed_in_pieces_with_its_tag_in_the_same_record() -> None:
    site, queues = wide_site()
    link = TestedLink(site, incoming())
    site.sync()
    site.broker.engine.requests.left = 0
    receipt = link.loan.post(Envelope("amq.fanout", "", durable=True), [b"a"], queues, [b"t1"])
    (placing,) = receipt.placings
    assert [placing.done] == [False]
    assert b"t1" not in link.loan.terminus.arrivals
    site.turn(sync=False)
    assert placing.done
    assert b"t1" in link.loan.terminus.arrivals
    assert not any(queue.ready for queue in queues)
    site.turn()
    assert all(queue.ready for queue in queues)
    (commit,) = site.records(Kind.COMMIT)
    assert [kind for kind, _, _ in decode_commit(commit)[1]] == [Kind.PUBLISH, Kind.ARRIVED]


@pytest.mark.rule("SET-9")
def test_a_post_to_very_many_queues_has_no_effect_if_its_link_is_gone_before_its_record_is_written() -> None:
    site, queues = wide_site()
    link = TestedLink(site, incoming())
    site.broker.engine.requests.left = 0
    link.loan.post(Envelope("amq.fanout", "", durable=True), [b"a"], queues, [b"t1"])
    link.loan.connection_lost()
    site.turn()
    assert not any(queue.ready for queue in queues)
    assert b"t1" not in site.broker.termini.by_key[incoming()].arrivals
