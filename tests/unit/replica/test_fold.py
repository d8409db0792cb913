"""Which entries count: each kind of entry in each state of the log."""

from __future__ import annotations

import pytest

from escrowmq.journal.format import TYPE_SEGMENT, TYPE_SNAPSHOT, FileHeader
from escrowmq.replica.entries import Entry, FrameChunk, Heartbeat, LeaderClaim, Resignation, SegmentStart
from escrowmq.replica.fold import Fold, Judgement, ReplicatedFrame

COUNTS, STALE, DUPLICATE, PREMATURE, FOREIGN = Judgement


def header(lsn: int, created: int = 0, journal: bytes = bytes(16), kind: int = TYPE_SEGMENT) -> bytes:
    return FileHeader(kind, journal, lsn, created).pack()


FIRST, SECOND = LeaderClaim(1, "a", "amqp://a"), LeaderClaim(2, "b", "amqp://b")
BEGUN = (FIRST, SegmentStart(1, header(0)))
FILLED = (*BEGUN, FrameChunk(1, 0, 16, 0, bytes(16)))
STATES: dict[str, tuple[Entry, ...]] = {
    "empty": (),
    "claimed": (FIRST,),
    "segment begun": BEGUN,
    "in a frame": (*BEGUN, FrameChunk(1, 0, 16, 0, bytes(8))),
    "after a frame": FILLED,
    "resigned": (*FILLED, Resignation(1)),
    "claimed again": (*FILLED, SECOND),
    "in a frame, claimed again": (*BEGUN, FrameChunk(1, 0, 16, 0, bytes(8)), SECOND),
}
TABLE: dict[str, dict[str, Judgement]] = {
    "first claim": dict(zip(STATES, [COUNTS, *[DUPLICATE] * 5, STALE, STALE], strict=True)),
    "rival claim of the first epoch": dict(zip(STATES, [COUNTS, *[STALE] * 7], strict=True)),
    "second claim": dict(zip(STATES, [PREMATURE, *[COUNTS] * 5, DUPLICATE, DUPLICATE], strict=True)),
    "heartbeat": dict(zip(STATES, [PREMATURE, *[COUNTS] * 4, STALE, STALE, STALE], strict=True)),
    "resignation": dict(zip(STATES, [PREMATURE, *[COUNTS] * 4, STALE, STALE, STALE], strict=True)),
    "first segment": dict(
        zip(STATES, [PREMATURE, COUNTS, DUPLICATE, DUPLICATE, DUPLICATE, STALE, STALE, STALE], strict=True)
    ),
    "another segment at 0": dict(
        zip(STATES, [PREMATURE, COUNTS, COUNTS, PREMATURE, DUPLICATE, STALE, STALE, STALE], strict=True)
    ),
    "segment at 16": dict(
        zip(STATES, [PREMATURE, PREMATURE, PREMATURE, PREMATURE, COUNTS, STALE, STALE, STALE], strict=True)
    ),
    "whole frame at 0": dict(
        zip(STATES, [PREMATURE, PREMATURE, COUNTS, DUPLICATE, DUPLICATE, STALE, STALE, STALE], strict=True)
    ),
    "second half of the frame at 0": dict(
        zip(STATES, [PREMATURE, PREMATURE, PREMATURE, COUNTS, DUPLICATE, STALE, STALE, STALE], strict=True)
    ),
    "frame at 16": dict(
        zip(STATES, [PREMATURE, PREMATURE, PREMATURE, PREMATURE, COUNTS, STALE, STALE, STALE], strict=True)
    ),
    "heartbeat of the second epoch": dict(zip(STATES, [*[PREMATURE] * 6, COUNTS, COUNTS], strict=True)),
    "second half, by the second leader": dict(zip(STATES, [*[PREMATURE] * 6, DUPLICATE, PREMATURE], strict=True)),
    "whole frame, by the second leader": dict(zip(STATES, [*[PREMATURE] * 6, DUPLICATE, COUNTS], strict=True)),
}
ENTRIES: dict[str, Entry] = {
    "first claim": FIRST,
    "rival claim of the first epoch": LeaderClaim(1, "c", "amqp://c"),
    "second claim": SECOND,
    "heartbeat": Heartbeat(1),
    "resignation": Resignation(1),
    "first segment": SegmentStart(1, header(0)),
    "another segment at 0": SegmentStart(1, header(0, 7)),
    "segment at 16": SegmentStart(1, header(16)),
    "whole frame at 0": FrameChunk(1, 0, 16, 0, bytes(16)),
    "second half of the frame at 0": FrameChunk(1, 0, 16, 8, bytes(8)),
    "frame at 16": FrameChunk(1, 16, 16, 0, bytes(16)),
    "heartbeat of the second epoch": Heartbeat(2),
    "second half, by the second leader": FrameChunk(2, 0, 16, 8, bytes(8)),
    "whole frame, by the second leader": FrameChunk(2, 0, 16, 0, bytes(16)),
}


def folded(*entries: Entry) -> Fold:
    fold = Fold()
    for entry in entries:
        fold.apply(entry)
    return fold


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("entry", TABLE)
def test_each_entry_is_judged_by_the_state_of_the_log(state: str, entry: str) -> None:
    assert folded(*STATES[state]).apply(ENTRIES[entry]).judgement is TABLE[entry][state]


def test_a_frame_is_handed_on_when_its_last_chunk_is_there() -> None:
    fold = folded(*BEGUN)
    assert fold.apply(FrameChunk(1, 0, 16, 0, b"A" * 8)).frame is None
    assert fold.apply(FrameChunk(1, 0, 16, 8, b"B" * 8)).frame == ReplicatedFrame(1, 0, b"A" * 8 + b"B" * 8)
    assert fold.next_lsn == 16


def test_an_unfinished_frame_dies_with_the_next_claim() -> None:
    fold = folded(*STATES["in a frame, claimed again"], FrameChunk(2, 0, 8, 0, b"C" * 8))
    assert fold.next_lsn == 8


def test_a_leader_that_has_resigned_leads_no_more() -> None:
    fold = folded(*FILLED)
    assert fold.leads(FIRST)
    fold.apply(Resignation(1))
    assert not fold.leads(FIRST)


@pytest.mark.parametrize(
    "wrong",
    [
        SegmentStart(1, bytes(64)),
        SegmentStart(1, header(16, kind=TYPE_SNAPSHOT)),
        SegmentStart(1, header(16, journal=b"another journal!")),
        FrameChunk(1, 16, 24, 8, bytes(8)),
    ],
    ids=["damaged", "snapshot", "another journal", "another size"],
)
def test_what_belongs_elsewhere_is_foreign_and_changes_nothing(wrong: Entry) -> None:
    before = (*FILLED, FrameChunk(1, 16, 16, 0, bytes(8))) if isinstance(wrong, FrameChunk) else FILLED
    fold = folded(*before)
    assert fold.apply(wrong).judgement is FOREIGN
    assert (fold.next_lsn, fold.segment) == (16, header(0))
