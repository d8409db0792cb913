"""The journal notes which segments it deletes, so that a missing one can be told from a removed one."""

from __future__ import annotations

import contextlib
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.records.kinds import Kind
from escrowmq.journal import format as fmt
from escrowmq.journal import removals
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.journal import Journal
from escrowmq.journal.memory import MemoryStorage
from escrowmq.journal.reader import JournalReader
from escrowmq.journal.removals import UNKNOWN, Hole, decode, encode, merged, unexplained, within
from escrowmq.journal.snapshot import Snapshot
from escrowmq.journal.storage import Storage
from escrowmq.journal.writer import FileWriter
from tests.unit.journal.journals import IDENTITY, fill, flush, memory, reopen, snapshot, start

LINK = b"0123456789ab"
HOLES = [Hole(0, 8, LINK), Hole(16, 64)]


def notes(storage: Storage) -> list[tuple[int, list[Hole]]]:
    """Return the records of removed segments in the log, each with its LSN."""
    reader = JournalReader(storage)
    return [
        (lsn, decode(bytes(payload)))
        for frame in reader.frames()
        for lsn, kind, payload in frame.records()
        if kind == removals.REMOVED
    ]


def link_at(storage: Storage, lsn: int) -> bytes:
    return JournalFile(storage, fmt.segment_name(lsn)).header.link


def filled(storage: MemoryStorage, count: int = 4) -> tuple[Journal, list[int]]:
    """Return a journal with a segment for each of `count` live messages, and their LSNs."""
    journal = start(storage, segment_bytes=300)
    return journal, fill(journal, count)


def deleted(journal: Journal, *lsns: int) -> None:
    """Let messages go, and delete their segments."""
    for lsn in lsns:
        journal.release(lsn, 1)
    snapshot(journal, (9, b"state"))


def restarted(storage: Storage, *lsns: int) -> Journal:
    """Open the journal again, in which these messages live."""
    journal = start(storage, segment_bytes=300)
    for lsn in lsns:
        journal.retain(lsn, 1)
    return journal


def of_version(storage: MemoryStorage, version: int, count: int) -> list[int]:
    """Write a journal of an older version: segments without live messages, and a snapshot. Returns their ends."""
    ends = []
    lsn = 0
    for _ in range(count):
        header = fmt.FileHeader(fmt.TYPE_SEGMENT, IDENTITY, lsn, 7, version=version)
        file = FileWriter(storage, fmt.segment_name(lsn), header)
        file.create()
        file.append(7, [bytes(300)], array("I", (0, 300)), b"\1")
        file.seal(0)
        lsn = file.end_lsn
        ends.append(lsn)
    taken = Snapshot(storage, IDENTITY, lsn, 5, [(9, b"state")])
    taken.write()
    taken.install()
    return ends


def first_of(lsn: int) -> int:
    return lsn - fmt.FRAME_HEADER_SIZE


def test_the_kind_is_that_of_the_records() -> None:
    assert removals.REMOVED == Kind.REMOVED


def test_holes_are_decoded_as_they_were_encoded() -> None:
    assert decode(encode(HOLES)) == HOLES
    assert decode(memoryview(encode([]))) == []


@pytest.mark.parametrize("data", [b"", b"\0" * 3, encode(HOLES)[:-1], encode(HOLES) + b"\0"])
def test_another_length_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="another length than it says"):
        decode(data)


@pytest.mark.parametrize(
    "holes",
    [[Hole(8, 8)], [Hole(8, 4)], [Hole(16, 64), Hole(0, 8)], [Hole(0, 8), Hole(8, 16)]],
)
def test_holes_are_in_order_and_apart(holes: list[Hole]) -> None:
    with pytest.raises(ValueError, match="is empty, or does not come after"):
        decode(encode(holes))


def test_neighbours_become_one_with_the_link_of_the_last() -> None:
    assert merged([Hole(8, 16, b"b" * 12), Hole(0, 8, b"a" * 12), Hole(24, 32)]) == [
        Hole(0, 16, b"b" * 12),
        Hole(24, 32),
    ]


def test_a_hole_that_loses_its_end_loses_its_link() -> None:
    assert within([Hole(0, 64, LINK)], [(0, 8), (56, 80)]) == [Hole(0, 8, UNKNOWN), Hole(56, 64, LINK)]


@given(st.lists(st.integers(0, 40), unique=True, max_size=8), st.lists(st.integers(0, 40), unique=True, max_size=8))
def test_each_missing_address_is_in_a_hole_or_unexplained(some: list[int], others: list[int]) -> None:
    missing = list(zip(sorted(some)[::2], sorted(some)[1::2], strict=False))
    holes = [Hole(*each) for each in zip(sorted(others)[::2], sorted(others)[1::2], strict=False)]
    known = {lsn for hole in holes for lsn in range(hole.first_lsn, hole.end_lsn)}
    gone = {lsn for first, end in missing for lsn in range(first, end)}
    assert {lsn for first, end in unexplained(missing, holes) for lsn in range(first, end)} == gone - known
    assert {lsn for hole in within(holes, missing) for lsn in range(hole.first_lsn, hole.end_lsn)} == gone & known


def test_a_segment_is_deleted_after_the_record_about_it_is_on_disk() -> None:
    storage = memory()
    journal, lsns = filled(storage)
    journal.release(lsns[0], 1)
    taken = journal.begin_snapshot([(9, b"state")], 9)
    taken.write()
    journal.snapshot_done(taken)
    flush(journal)
    work = journal.housekeeping()
    assert work is not None
    work()
    assert journal.housekeeping() is None
    noted = journal.removal_lsn
    assert noted == journal.end_lsn > journal.synced_lsn
    assert fmt.segment_name(0) in storage.names()
    assert journal.housekeeping() is None
    assert notes(storage) == []
    flush(journal)
    work = journal.housekeeping()
    assert work is not None
    end = first_of(lsns[1])
    assert [holes for _, holes in notes(storage)] == [[Hole(0, end, link_at(storage, end))]]
    work()
    assert fmt.segment_name(0) not in storage.names()


def test_without_permission_to_delete_nothing_is_noted() -> None:
    storage = memory()
    journal, lsns = filled(storage)
    snapshot(journal, (9, b"state"))
    journal.release(lsns[0], 1)
    assert journal.housekeeping(delete=False) is None
    assert journal.end_lsn == journal.synced_lsn
    assert journal.removal_lsn is None


def test_each_record_has_all_holes() -> None:
    storage = memory()
    journal, lsns = filled(storage, 5)
    deleted(journal, lsns[0])
    deleted(journal, lsns[2])
    deleted(journal, lsns[1])
    first, second = notes(storage)[0][1], notes(storage)[1][1]
    assert [hole[:2] for hole in second] == [(0, first_of(lsns[1])), (first_of(lsns[2]), first_of(lsns[3]))]
    assert second[:1] == first
    assert any(first[0].link)
    assert notes(storage)[2][1] == [second[1]._replace(first_lsn=0)]


def test_the_holes_are_known_after_a_restart_from_a_snapshot() -> None:
    storage = memory()
    journal, lsns = filled(storage, 5)
    deleted(journal, lsns[0])
    (before,) = notes(storage)
    snapshot(journal, (9, b"after the record"))
    journal.close()
    journal = restarted(storage, *lsns[1:])
    assert journal.recovery.notes == []
    assert (journal.recovery.snapshot_records, journal.recovery.log_records) == (1, 0)
    deleted(journal, lsns[2])
    assert notes(storage)[-1][1][0] == before[1][0]


def test_a_segment_that_was_noted_and_not_deleted_is_no_hole() -> None:
    """The process ends between the record and the deletion."""
    storage = memory()
    journal, lsns = filled(storage, 5)
    deleted(journal, lsns[0])
    snapshot(journal, (9, b"state"))
    journal.release(lsns[2], 1)
    assert journal.housekeeping() is None
    flush(journal)
    third = Hole(first_of(lsns[2]), first_of(lsns[3]), link_at(storage, first_of(lsns[3])))
    assert notes(storage)[-1][1][1:] == [third]
    journal.close()
    journal = restarted(storage, lsns[1], *lsns[3:])
    assert journal.recovery.notes == []
    assert journal.housekeeping() is None
    flush(journal)
    assert notes(storage)[-1][1][1:] == [third]


def test_a_deletion_that_fails_leaves_the_log_as_it_was_noted() -> None:
    storage = memory()
    journal, lsns = filled(storage, 5)
    snapshot(journal, (9, b"state"))
    for lsn in lsns[:3]:
        journal.release(lsn, 1)
    assert journal.housekeeping() is None
    flush(journal)
    work = journal.housekeeping()
    assert work is not None
    storage.faults.dies_in = 2
    with contextlib.suppress(OSError):
        work()
    storage.faults.dies_in = None
    left = [int(name[:16], 16) for name in storage.names() if name.endswith(".log")]
    assert left[0] < first_of(lsns[3])
    assert restarted(storage, *lsns[3:]).recovery.notes == []


def test_a_removed_segment_is_reported_and_never_noted() -> None:
    storage = memory()
    journal, lsns = filled(storage, 5)
    deleted(journal, lsns[0])
    snapshot(journal, (9, b"state"))
    journal.close()
    storage.delete(fmt.segment_name(first_of(lsns[2])))
    first, end = first_of(lsns[2]), first_of(lsns[3])
    journal = restarted(storage, lsns[1], *lsns[3:])
    assert journal.recovery.notes == [
        f"the log from LSN {first:#x} to {end:#x} is missing, and no record says that the broker has deleted it"
    ]
    deleted(journal, lsns[1])
    holes = notes(storage)[-1][1]
    assert holes[0][:2] == (0, first)
    assert list(unexplained([(first, end)], holes)) == [(first, end)]


def test_holes_of_an_older_version_are_noted_at_the_first_start() -> None:
    storage = memory()
    ends = of_version(storage, 5, 3)
    storage.delete(fmt.segment_name(0))
    journal = start(storage)
    assert journal.recovery.notes == []
    flush(journal)
    assert [holes for _, holes in notes(storage)] == [[Hole(0, ends[0], UNKNOWN)]]
    journal.close()
    storage.delete(fmt.segment_name(ends[0]))
    journal = start(storage)
    assert journal.end_lsn == journal.synced_lsn
    assert len(journal.recovery.notes) == 1


def test_a_log_without_holes_begins_without_a_record() -> None:
    storage = memory()
    of_version(storage, 5, 2)
    journal = start(storage)
    assert journal.end_lsn == journal.synced_lsn


def test_a_record_that_cannot_be_read_is_damage() -> None:
    storage = memory()
    journal = start(storage)
    journal.append(removals.REMOVED, b"\1")
    flush(journal)
    with pytest.raises(JournalDamaged, match="another length than it says"):
        reopen(storage)
