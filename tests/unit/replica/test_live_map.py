"""An empty node copies the segments that live, and nothing else of what is older than the snapshot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from escrowmq.journal import format as fmt
from escrowmq.journal.journal import Journal
from escrowmq.replica.entries import FrameChunk, LiveMap, NodeReport, Stamp, decode, encode
from escrowmq.replica.errors import EntriesLost
from escrowmq.replica.leader import Leader
from escrowmq.replica.live_map import _newest_map, begun_by_map
from escrowmq.replica.log import StoredEntry
from tests.unit.journal.journals import fill, flush, snapshot
from tests.unit.replica.entries import ONE
from tests.unit.replica.logs import Log
from tests.unit.replica.test_copy import Node, contents, opened


class CountingLog(Log):
    """A log that counts the bytes that are read, and returns at most so many entries at once."""

    taken = 0
    most = 1000

    def read(self, position: int, most: int) -> list[StoredEntry]:
        """Return entries."""
        found = super().read(position, min(most, self.most))
        self.taken += sum(len(each.data) for each in found)
        return found


def living(node: Node) -> set[int]:
    parsed = (fmt.parse_name(name) for name in node.disk.names())
    return {lsn for kind, lsn in filter(None, parsed) if kind == fmt.TYPE_SEGMENT}


def pinned(frames: int = 600, keep: int = 200) -> tuple[CountingLog, Node, Journal]:
    """A log of which the first frame and each 200th live, behind a snapshot, a map, and two more frames."""
    log = CountingLog()
    leader = Node(log, "a")
    journal = leader.lead()
    for number, lsn in enumerate(fill(journal, frames)):
        if number % keep:
            journal.release(lsn, 1)
    snapshot(journal)
    lsn = leader.copy.snapshot_lsn
    data = leader.disk.read(fmt.snapshot_name(lsn), 0, 1 << 20)
    leader.leader.put_snapshot(lsn, len(data), [data])
    leader.leader.trim(0)
    leader.leader.put_map(living(leader))
    leader.leader.report_place(1000)
    fill(journal, 2)
    flush(journal)
    return log, leader, journal


def begun(log: Log, node: Node) -> bool:
    tail = begun_by_map(log, node.copy)
    if tail is None:
        return False
    node.tail = tail
    node.leader = Leader(log, tail, "b", "amqp://b", lambda: bytes(16))
    node.follow()
    return True


def test_an_empty_node_copies_what_lives_alone_and_has_the_files_of_the_leader() -> None:
    log, leader, _ = pinned()
    whole = sum(len(data) for data in log.stored)
    log.taken = 0
    node = Node(log, "b")
    assert begun(log, node)
    assert node.tail.fold.map
    assert contents(node.disk) == contents(leader.disk)
    assert node.copy.lacking_part() is None
    assert log.taken < whole / 4
    opened(node.disk)


def test_the_newest_map_is_found_although_the_engine_returns_few_entries_at_once() -> None:
    log, leader, journal = pinned()
    older = leader.tail.fold.map
    fill(journal, 20)
    flush(journal)
    leader.leader.put_map(living(leader))
    assert leader.tail.fold.map > older
    fill(journal, 20)
    flush(journal)
    log.most = 2
    assert _newest_map(log) == leader.tail.fold.map


def test_such_a_node_leads_and_makes_the_next_map() -> None:
    log, leader, _ = pinned()
    node = Node(log, "b")
    assert begun(log, node)
    assert node.leader.take_over()
    entry = decode(log.stored[node.tail.fold.map - log.first])
    node.leader.put_map(living(node))
    again = decode(log.stored[-1])
    assert isinstance(entry, LiveMap)
    assert isinstance(again, LiveMap)
    assert [each[:4] for each in again.segments] == [each[:4] for each in entry.segments]
    assert leader.tail.fold.map


def test_without_a_map_there_is_no_shorter_way() -> None:
    log = Log()
    node = Node(log, "a")
    fill(node.lead(), 3)
    assert begun_by_map(log, Node(log, "b").copy) is None
    node.leader.put_map(living(node))  # there is no snapshot
    assert not node.tail.fold.map


def test_a_map_that_would_lack_a_segment_is_not_made() -> None:
    log, leader, _ = pinned()
    leader.leader.put_map(living(leader))
    count = log.end()
    leader.tail.segments.pop(0)
    leader.leader.put_map(living(leader))
    assert log.end() == count


def test_a_map_of_a_deposed_leader_does_not_count() -> None:
    log, leader, _ = pinned()
    position = leader.tail.fold.map
    stale = decode(log.stored[position - log.first])
    assert isinstance(stale, LiveMap)
    log.stored[position - log.first] = encode(replace(stale, stamp=Stamp(0, bytes(8), 1)))
    log.stored.append(encode(NodeReport(ONE, "c", "", 0, 0, map=position)))
    node = Node(log, "b")
    assert begun(log, node)
    assert not node.tail.fold.map  # so that the node reads the whole log


def test_a_segment_that_is_not_where_the_map_says_is_refused() -> None:
    log, leader, _ = pinned()
    position = leader.tail.fold.map
    entry = decode(log.stored[position - log.first])
    assert isinstance(entry, LiveMap)
    first, *others = entry.segments
    wrong = replace(entry, segments=(first._replace(position=first.position + 1), *others))
    log.stored[position - log.first] = encode(wrong)
    with pytest.raises(EntriesLost):
        begun_by_map(log, Node(log, "b").copy)


def test_a_segment_of_which_a_frame_is_missing_is_refused() -> None:
    log, leader, _ = pinned()
    entry = decode(log.stored[leader.tail.fold.map - log.first])
    assert isinstance(entry, LiveMap)
    at = entry.segments[0].position + 1 - log.first
    assert isinstance(decode(log.stored[at]), FrameChunk)
    log.stored[at] = encode(NodeReport(ONE, "c", "", 0, 0))
    with pytest.raises(EntriesLost):
        begun_by_map(log, Node(log, "b").copy)


def test_a_map_that_the_log_has_trimmed_is_not_used() -> None:
    log, leader, _ = pinned()
    position = leader.tail.fold.map
    log.trim(position + 1)
    log.stored.append(encode(NodeReport(ONE, "c", "", 0, 0, map=position)))
    assert begun_by_map(log, Node(log, "b").copy) is None
