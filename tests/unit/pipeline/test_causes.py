"""Causes are judged only by what the log still shows of a message, and of the positions of its queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from escrowmq.core.messages.marks import Marks, Modification
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.marking import encode_marked
from escrowmq.core.records.references import Range
from escrowmq.core.records.settling import encode_settle
from tests.pipeline.direct import Audited, audited, export
from tests.unit.core.site import Site, taken
from tests.unit.pipeline.segments import fill_segments


def found(site: Site, folder: Path) -> Audited:
    """Audit the journal of a broker."""
    site.sync()
    return audited(export(site.storage, folder))


def mark(site: Site) -> None:
    """Let a client return the message of the queue `q`, and mark it."""
    consumer, entries = taken(site, site.vhost.queue("q"))
    site.broker.engine.modify(consumer, entries, Modification(failed=True))
    site.turn()


LIMITED = {"x-queue-type": "quorum", "x-delivery-limit": 9}


@pytest.mark.rule("PIPE-5")
@pytest.mark.parametrize("arguments", [{}, LIMITED], ids=["failures", "returns"])
def test_counts_in_a_deleted_part_of_the_log_are_not_missed(arguments: dict[str, Any], tmp_path: Path) -> None:
    """The log keeps the message and its first count, and the snapshot the last one."""
    site = Site(segment_bytes=1000)
    site.queue("q", arguments)
    site.queue("other")
    site.publish("q", b"1")
    for _ in range(3):
        mark(site)
        fill_segments(site)
    site.snapshot()
    mark(site)
    audit = found(site, tmp_path)
    assert (len(audit.plan.holes), audit.wrong) == (1, [])


@pytest.mark.rule("PIPE-5")
@pytest.mark.parametrize("returns", [1, 2])
def test_a_snapshot_may_omit_a_return_of_messages_that_are_not_in_memory(returns: int, tmp_path: Path) -> None:
    site = Site(resident_limit=0)
    queue = site.queue("q", LIMITED)
    site.publish("q", b"1")
    site.publish("q", b"2")
    for _ in range(returns):
        consumer, entries = taken(site, queue)
        site.broker.engine.requeue(consumer, entries)
        site.turn()
    site.snapshot()
    site.snapshot()
    consumer, entries = taken(site, queue)
    site.broker.engine.requeue(consumer, entries)
    site.turn()
    assert found(site, tmp_path).wrong == []


@pytest.mark.rule("PIPE-8")
def test_a_count_that_grows_by_two_behind_a_deleted_part_of_the_log_is_found(tmp_path: Path) -> None:
    site = Site(segment_bytes=1000)
    queue = site.queue()
    site.queue("other")
    site.publish("q", b"1")
    fill_segments(site)
    mark(site)
    site.snapshot()
    mark(site)
    lsn = site.journal.append(Kind.MARKED, encode_marked(queue.ident, [(1, Marks(4))]))
    audit = found(site, tmp_path)
    assert (len(audit.plan.holes), audit.wrong) == (1, [("miscounted", "q 1", lsn)])


@pytest.mark.rule("PIPE-5")
@pytest.mark.parametrize("later", ["publication", "snapshot"])
def test_lost_messages_may_have_reached_a_limit_although_their_positions_are_used_again(
    later: str, tmp_path: Path
) -> None:
    """Two transient messages let the oldest one be dropped. A restart loses them, and gives a position to another."""
    site = Site()
    site.queue("q", {"x-max-length": 2})
    site.publish("q", b"1")
    site.publish("q", b"2", b"3", durable=False)
    site.turn()
    again = site.restart()
    if later == "snapshot":
        again.snapshot()
    again.publish("q", b"4")
    again.turn()
    assert again.ready(again.vhost.queue("q")) == [(2, b"4", False)]
    assert found(again, tmp_path).wrong == []


@pytest.mark.rule("PIPE-8")
@pytest.mark.parametrize("later", ["publication", "snapshot"])
def test_a_message_that_was_dropped_below_the_limit_is_found(later: str, tmp_path: Path) -> None:
    site = Site()
    queue = site.queue("q", {"x-max-length": 2})
    site.publish("q", b"1", b"2")
    site.turn()
    lsn = site.journal.append(Kind.SETTLE, encode_settle(queue.ident, Outcome.DROPPED, [Range(1, 1)]))
    site.sync()
    site.snapshot() if later == "snapshot" else site.publish("q", b"3")
    assert ("outcome without a cause", "q 1", lsn) in found(site, tmp_path).wrong
