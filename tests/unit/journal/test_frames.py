"""Walking through a file yields its frames, and distinguishes damage from the end."""

from __future__ import annotations

from array import array

import pytest

from escrowmq.journal import format as fmt
from escrowmq.journal import frames as module
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.memory import MemoryStorage
from escrowmq.journal.writer import FileWriter
from tests.unit.journal.journals import IDENTITY, memory

NAME = fmt.segment_name(800)


def segment(sizes: list[int], *, sealed: bool = False, reserve: int = 0) -> MemoryStorage:
    """Return a segment with one frame of one record for each size."""
    storage = memory()
    file = FileWriter(storage, NAME, fmt.FileHeader(fmt.TYPE_SEGMENT, IDENTITY, 800, 1), reserve_limit=reserve)
    file.create()
    for i, size in enumerate(sizes):
        file.append(i, [bytes([i + 1]) * size], array("I", (0, size)), b"\x05")
    if sealed:
        file.seal(3)
    return storage


def test_frames_and_records_are_read_as_they_were_written() -> None:
    storage = memory()
    file = FileWriter(storage, NAME, fmt.FileHeader(fmt.TYPE_SEGMENT, IDENTITY, 800, 1))
    file.create()
    file.append(11, [b"onethree"], array("I", (0, 3, 3, 8)), b"\x01\x02\x03")
    walk = JournalFile(storage, NAME).walk()
    (frame,) = walk
    assert [(lsn, kind, bytes(payload)) for lsn, kind, payload in frame.records()] == [
        (840, 1, b"one"),
        (843, 2, b""),
        (843, 3, b"three"),
    ]
    assert (frame.lsn, frame.payload_lsn, frame.time_us, frame.end_lsn) == (800, 840, 11, walk.lsn)
    assert bytes(frame.payload) == b"onethree"
    assert frame.offsets.tolist() == [0, 3, 3, 8]
    assert walk.why == ""
    assert walk.last is frame


@pytest.mark.parametrize("chunk", [64, 1000, 1 << 20])
def test_the_size_of_windows_makes_no_difference(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    sizes = [1, 50, 3000, 7, 900, 0, 2]
    storage = segment(sizes, reserve=9000)
    monkeypatch.setattr(module, "CHUNK", chunk)
    walk = JournalFile(storage, NAME).walk()
    assert [len(frame.payload) for frame in walk] == sizes
    assert JournalFile(storage, NAME).tail(walk.lsn).size == 0


def test_walk_begins_and_ends_at_the_given_addresses() -> None:
    file = JournalFile(segment([10, 20, 30]), NAME)
    ends = [frame.end_lsn for frame in file.walk()]
    walk = file.walk(ends[0], ends[1])
    assert [len(frame.payload) for frame in walk] == [20]
    assert walk.lsn == ends[1]
    beyond = file.walk(ends[0], ends[1] - 8)
    assert list(beyond) == []
    assert "extends beyond LSN" in beyond.why


def test_a_missing_end_is_reported() -> None:
    walk = JournalFile(segment([10]), NAME).walk(end=5000)
    assert len(list(walk)) == 1
    assert walk.why == "the file ends"


@pytest.mark.parametrize(("at", "why"), [(0, "no frame begins here"), (41, "the frame's checksum does not match")])
def test_damage_stops_the_walk_and_a_later_frame_is_found(at: int, why: str) -> None:
    storage = segment([100, 100, 100])
    second, third = [f.lsn for f in JournalFile(storage, NAME).walk()][1:]
    file = JournalFile(storage, NAME)
    storage.flip(NAME, 8 * (file.offset_of(second) + at))
    walk = file.walk()
    assert len(list(walk)) == 1
    assert (walk.lsn, walk.why) == (second, why)
    assert file.tail(second).later_frame == file.offset_of(third)
    assert file.tail(third).later_frame is None


def test_unchecked_walks_trust_the_body() -> None:
    storage = segment([100])
    storage.flip(NAME, 8 * (fmt.FILE_HEADER_SIZE + 50))
    file = JournalFile(storage, NAME)
    assert len(list(file.walk())) == 0
    assert len(list(file.walk(check=False))) == 1


def test_a_truncated_frame_is_reported() -> None:
    storage = segment([100])
    storage.shorten(NAME, fmt.FILE_HEADER_SIZE + 60)
    file = JournalFile(storage, NAME)
    walk = file.walk()
    assert list(walk) == []
    assert walk.why == "the frame is cut off: 20 of 120 bytes"
    tail = file.tail(walk.lsn)
    assert (tail.offset, tail.size, tail.later_frame) == (fmt.FILE_HEADER_SIZE, 60, None)


@pytest.mark.parametrize("chunk", [41, 64, 1 << 20])
def test_later_frames_are_found_across_windows(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    storage = segment([100, 300, 10], reserve=5000)
    file = JournalFile(storage, NAME)
    _, second, third = [f.lsn for f in file.walk()]
    storage.flip(NAME, 8 * file.offset_of(second))
    monkeypatch.setattr(module, "CHUNK", chunk)
    tail = file.tail(second)
    assert tail.later_frame == file.offset_of(third)
    assert tail.size == file.offset_of(third) + 40 + 16 + 8 + 1 - file.offset_of(second)


def test_a_body_that_looks_like_a_frame_is_not_one() -> None:
    inner = b"".join(fmt.pack_frame(848, 1, [b"x"], array("I", (0, 1)), b"\1", seed=0))
    storage = memory()
    file = FileWriter(storage, NAME, fmt.FileHeader(fmt.TYPE_SEGMENT, IDENTITY, 800, 1))
    file.create()
    file.append(1, [bytes(8) + inner], array("I", (0, 8 + len(inner))), b"\1")
    storage.flip(NAME, 8 * fmt.FILE_HEADER_SIZE)
    assert JournalFile(storage, NAME).tail(800).later_frame is None


def test_footer_and_granules() -> None:
    file = JournalFile(segment([40_000] * 5, sealed=True), NAME)
    footer = file.footer
    assert footer is not None
    assert (footer.frames, footer.records, footer.first_lsn, footer.messages) == (5, 5, 800, 3)
    starts = [frame.lsn for frame in file.walk(end=footer.end_lsn)]
    assert [entry[0] for entry in footer.index] == starts[::2]
    assert file.granule(800) == (starts[0], starts[2])
    assert file.granule(starts[3] + 5) == (starts[2], starts[4])
    assert file.granule(starts[4]) == (starts[4], footer.end_lsn)


def test_unsealed_files_have_no_footer() -> None:
    assert JournalFile(segment([]), NAME).footer is None
    assert JournalFile(segment([100], reserve=5000), NAME).footer is None


def test_a_file_with_a_wrong_name_is_refused() -> None:
    storage = segment([1])
    storage.replace(NAME, fmt.segment_name(808))
    with pytest.raises(JournalDamaged, match="header belongs to another file"):
        JournalFile(storage, fmt.segment_name(808))
