"""Branches in doubt whose messages cannot be read when the broker starts: they wait, and everything else runs."""

from __future__ import annotations

import pytest

from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.availability import RETRY_MS
from escrowmq.core.queues.outcome import Disposition
from tests.unit.core.xa_site import OK, X, XaSite

pytestmark = pytest.mark.rule("DTX-8", "DUR-4")

SIZE = 1400  # the sector in the middle of a message has nothing else
BODIES = [b"%02d" % i * (SIZE // 2) for i in range(4)]
NEW = b"nn" * (SIZE // 2)
DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "to"}


def damage(site: XaSite, body: bytes) -> None:
    """Make the sectors with the middle of a message unreadable."""
    for name in site.storage.names():
        data, at = site.storage.read(name, 0, site.storage.size(name)), -1
        while (at := data.find(body, at + 1)) >= 0:
            site.storage.faults.unreadable.setdefault(name, set()).add((at + SIZE // 2) // 512)


def in_doubt(body: bytes, disposition: Disposition = Disposition.ACCEPTED) -> XaSite:
    """Return a site with a branch in doubt, of which `body` cannot be read. It publishes a message, and has settled the
    first two messages of a queue.
    """
    site = XaSite()
    site.broker.directory.delete_queue(site.q)
    site.queue("q", DEAD)
    site.queue("apart")
    site.publish("q", *BODIES)
    site.turn()
    site.prepared(settle=2, publish=(NEW,), disposition=disposition)
    for _ in range(40):  # the segment with the branch is far behind the snapshot
        site.publish("apart", b"x" * 200)
        site.turn()
        site.broker.engine.get(site.vhost.queue("apart"), auto_settle=True)
    site.broker.directory.purge(site.vhost.queue("apart"))
    site.publish("apart", b"apart")
    site.turn()
    site.snapshot()
    damage(site, body)
    return site.restart()


def refused(site: XaSite) -> str:
    with pytest.raises(BrokerError) as caught:
        site.coordinator.commit(X, one_phase=False)
    assert caught.value.condition is Condition.UNAVAILABLE
    assert site.branches.recover() == [X]
    return caught.value.text


def healed(site: XaSite) -> None:
    site.storage.faults.unreadable.clear()
    site.after(RETRY_MS + 1)
    assert not site.broker.engine.unavailable.reasons


def settled(disposition: Disposition) -> tuple[list[bytes], list[bytes]]:
    """Return the messages of both queues after the commit."""
    if disposition is Disposition.MODIFIED:
        return BODIES, [NEW]
    return BODIES[2:], [NEW, *BODIES[:2]] if disposition is Disposition.REJECTED else [NEW]


PARTS = pytest.mark.parametrize(("body", "queue"), [(BODIES[0], "q"), (BODIES[1], "q"), (NEW, "to")])


@PARTS
@pytest.mark.parametrize("disposition", [Disposition.ACCEPTED, Disposition.REJECTED, Disposition.MODIFIED])
def test_it_commits_as_soon_as_its_messages_can_be_read(body: bytes, queue: str, disposition: Disposition) -> None:
    site = in_doubt(body, disposition)
    assert {found.name for found in site.broker.engine.unavailable.reasons} == {queue}
    assert str(X) in next(iter(site.broker.engine.unavailable.reasons.values()))
    assert site.contents("apart") == [b"apart"], "everything else runs"
    refused(site)
    (view,) = site.branches.views()
    assert sum(tally.messages for tally in view.settled) == 2
    assert sum(tally.messages for tally in view.published) == 1
    healed(site)
    assert site.coordinator.commit(X, one_phase=False).status is OK
    site.turn()
    assert (site.contents("q"), site.contents("to")) == settled(disposition)
    assert site.q.unsettled == 0
    assert site.live() == 1 + sum(map(len, settled(disposition)))


@PARTS
def test_it_need_not_wait_for_the_next_attempt(body: bytes, queue: str) -> None:
    site = in_doubt(body)
    site.storage.faults.unreadable.clear()
    assert site.coordinator.commit(X, one_phase=False).status is OK
    site.after(RETRY_MS + 1)
    assert not site.broker.engine.unavailable.reasons
    assert (site.contents("q"), site.contents("to")) == settled(Disposition.ACCEPTED)


@PARTS
def test_it_can_be_rolled_back_meanwhile(body: bytes, queue: str) -> None:
    site = in_doubt(body)
    assert site.coordinator.rollback(X).status is OK
    site.turn()
    assert site.q.unsettled == 0
    healed(site)
    assert [content for _, content, _ in site.ready(site.q)] == BODIES
    assert [redelivered for _, _, redelivered in site.ready(site.q)] == [True, True, False, False]
    assert site.contents("to") == []
    assert site.live() == 1 + len(BODIES)


@PARTS
def test_a_snapshot_meanwhile_loses_nothing(body: bytes, queue: str) -> None:
    site = in_doubt(body, Disposition.REJECTED)
    site.snapshot()
    site = site.restart()
    refused(site)
    site.snapshot()
    site.storage.faults.unreadable.clear()
    site = site.restart()
    assert site.coordinator.commit(X, one_phase=False).status is OK
    site.turn()
    assert (site.contents("q"), site.contents("to")) == settled(Disposition.REJECTED)


@PARTS
def test_its_queues_can_be_deleted_meanwhile(body: bytes, queue: str) -> None:
    site = in_doubt(body)
    site.broker.directory.delete_queue(site.vhost.queue(queue))
    site.storage.faults.unreadable.clear()
    site.after(RETRY_MS + 1)
    assert site.coordinator.commit(X, one_phase=False).status is XaStatus.OK
    site.turn()
    left = [1, len(site.contents("q") if queue == "to" else site.contents("to"))]
    assert site.live() == sum(left)
    assert not site.broker.engine.unavailable.reasons
