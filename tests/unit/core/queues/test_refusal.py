"""Messages for queues of which some refuse them."""

from __future__ import annotations

from collections.abc import Sequence

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.refusal import publish_one_by_one
from tests.unit.core.site import Site


def full(site: Site, overflow: str = "reject-publish", **more: object) -> Queue:
    queue = site.queue("full", {"x-max-length": 1, "x-overflow": overflow, **more})
    site.publish("full", b"0")
    return queue


def nothing(i: int, takers: Sequence[Queue]) -> int:
    raise AssertionError(f"message {i} is published to {takers}")


def test_other_queues_receive_a_message_that_one_refuses() -> None:
    site = Site()
    queues = (full(site), site.queue())
    published: list[tuple[int, list[str]]] = []

    def publish(i: int, takers: Sequence[Queue]) -> int:
        published.append((i, [queue.name for queue in takers]))
        return 10 + i

    assert publish_one_by_one(site.broker.engine, Envelope("", "q"), [b"1", b"2"], queues, publish) == (11, (0, 1))
    assert published == [(0, ["q"]), (1, ["q"])]


def test_a_message_that_all_queues_refuse_is_not_published() -> None:
    site = Site()
    queues = (full(site),)
    found = publish_one_by_one(site.broker.engine, Envelope("", "q"), [b"1"], queues, nothing)
    assert found == (0, (0,))


def test_a_refused_message_can_be_a_dead_letter() -> None:
    site = Site()
    site.queue("dead")
    queue = full(site, "reject-publish-dlx", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    envelope = Envelope("", "full", durable=True)
    lsn, refused = publish_one_by_one(site.broker.engine, envelope, [b"1"], (queue,), nothing)
    assert refused == (0,)
    assert lsn == site.journal.end_lsn
    assert site.contents("dead") == [b"1"]
