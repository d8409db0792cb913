"""Which entries count: each kind of entry in each state of the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from escrowmq.journal.format import TYPE_SNAPSHOT
from escrowmq.replica.entries import (
    NO_CHAIN,
    Entry,
    Heartbeat,
    LossNotice,
    NodeReport,
    Resignation,
    SegmentStart,
    SnapshotChunk,
    Stamp,
    TakeOverReason,
)
from escrowmq.replica.fold import (
    MOST_NODES,
    CopyEnd,
    Fold,
    Judgement,
    ReplicatedFrame,
    SeenReport,
    SnapshotPiece,
    SnapshotPlace,
)
from tests.unit.replica.entries import FIRST, ONE, chunk, claim, header, second, start

COUNTS, STALE, DUPLICATE, PREMATURE, FOREIGN, DOUBTFUL, REPORT = Judgement
HALF = bytes(8)
OTHER = Stamp(1, b"another.")


def piece(stamp: Stamp, offset: int, data: bytes = HALF, lsn: int = 16) -> SnapshotChunk:
    return SnapshotChunk(stamp, lsn, 16, offset, data)


BEGUN: Final = (FIRST, start(ONE, 0))
FILLED: Final = (*BEGUN, chunk(ONE, 0))
STATES: dict[str, tuple[Entry, ...]] = {
    "empty": (),
    "claimed": (FIRST,),
    "segment begun": BEGUN,
    "in a frame": (*BEGUN, chunk(ONE, 0, HALF)),
    "after a frame": FILLED,
    "in a snapshot": (*FILLED, piece(ONE, 0)),
    "after a snapshot": (*FILLED, piece(ONE, 0), piece(ONE, 8)),
    "resigned": (*FILLED, Resignation(ONE)),
    "claimed again": (*FILLED, second(16)[0]),
    "in a frame, claimed again": (*BEGUN, chunk(ONE, 0, HALF), second(0)[0]),
}
ENTRIES: dict[str, Callable[[int], Entry]] = {
    "first claim": lambda _: FIRST,
    "rival claim of the first epoch": lambda _: claim(1, "c"),
    "second claim": lambda _: second(0)[0],
    "second claim, by a node that read more frames": lambda _: replace(second(0)[0], lsn=24),
    "second claim, of another history": lambda _: claim(2, "c", OTHER.chain),
    "third claim": lambda end: claim(3, "c", second(end)[1].chain),
    "claim that leaves epochs out": lambda _: claim(5, "c", ONE.chain),
    "heartbeat": lambda _: Heartbeat(ONE),
    "heartbeat of another history": lambda _: Heartbeat(OTHER),
    "heartbeat of a node that read more": lambda _: Heartbeat(replace(ONE, after=100)),
    "resignation": lambda _: Resignation(ONE),
    "notice of a loss": lambda _: LossNotice(ONE, "c", 1, 24),
    "first segment": lambda _: start(ONE, 0),
    "another segment at 0": lambda _: start(ONE, 0, 7),
    "segment at 16": lambda _: start(ONE, 16),
    "whole frame at 0": lambda _: chunk(ONE, 0),
    "second half of the frame at 0": lambda _: chunk(ONE, 0, HALF, 8),
    "frame at 16": lambda _: chunk(ONE, 16),
    "first half of a snapshot": lambda _: piece(ONE, 0),
    "second half of a snapshot": lambda _: piece(ONE, 8),
    "heartbeat of the second epoch": lambda end: Heartbeat(second(end)[1]),
    "second half, by the second leader": lambda end: chunk(second(end)[1], 0, HALF, 8),
    "whole frame, by the second leader": lambda end: chunk(second(end)[1], 0),
    "second half of a snapshot, by the second leader": lambda end: piece(second(end)[1], 8),
}


LETTERS = {"C": COUNTS, "S": STALE, "D": DUPLICATE, "P": PREMATURE, "F": FOREIGN, "?": DOUBTFUL}
TABLE: dict[str, str] = {
    "first claim": "C D D D D D D D S S",
    "rival claim of the first epoch": "C S S S S S S S S S",
    "second claim": "? C C C C C C C D D",
    "second claim, by a node that read more frames": "? ? ? ? ? ? ? ? D D",
    "second claim, of another history": "? ? ? ? ? ? ? ? ? ?",
    "third claim": "? ? ? ? ? ? ? ? C C",
    "claim that leaves epochs out": "? C C C C C C C S S",
    "heartbeat": "? C C C C C C S S S",
    "heartbeat of another history": "? ? ? ? ? ? ? ? ? ?",
    "heartbeat of a node that read more": "? ? ? ? ? ? ? ? ? ?",
    "resignation": "? C C C C C C S S S",
    "notice of a loss": "? C C C C C C C S S",
    "first segment": "? C D D D D D S S S",
    "another segment at 0": "? C C ? D D D S S S",
    "segment at 16": "? ? ? ? C C C S S S",
    "whole frame at 0": "? ? C D D D D S S S",
    "second half of the frame at 0": "? ? P C D D D S S S",
    "frame at 16": "? ? ? ? C C C S S S",
    "first half of a snapshot": "? ? ? ? C D D S S S",
    "second half of a snapshot": "? ? ? ? P C D S S S",
    "heartbeat of the second epoch": "? ? ? ? ? ? ? ? C C",
    "second half, by the second leader": "? ? ? ? ? ? ? ? D P",
    "whole frame, by the second leader": "? ? ? ? ? ? ? ? D C",
    "second half of a snapshot, by the second leader": "? ? ? ? ? ? ? ? P ?",
}
"""The judgement of each entry in each state, in the order of STATES."""


def folded(*entries: Entry) -> Fold:
    fold = Fold()
    for position, entry in enumerate(entries):
        fold.apply(entry, position)
    return fold


def judged(state: str, entry: str) -> Judgement:
    fold = folded(*STATES[state])
    return fold.apply(ENTRIES[entry](fold.next_lsn), len(STATES[state])).judgement


@pytest.mark.parametrize("entry", ENTRIES)
def test_each_entry_is_judged_by_the_state_of_the_log(entry: str) -> None:
    expected = [LETTERS[letter] for letter in TABLE[entry].split()]
    assert [judged(state, entry) for state in STATES] == expected


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("state", STATES)
def test_an_entry_that_does_not_count_leaves_the_state_of_the_log(state: str, entry: str) -> None:
    fold = folded(*STATES[state])
    before = fold.state
    judgement = fold.apply(ENTRIES[entry](fold.next_lsn), len(STATES[state])).judgement
    assert judgement is COUNTS or fold.state == before


def test_a_frame_is_handed_on_when_its_last_chunk_is_there() -> None:
    fold = folded(*BEGUN)
    assert fold.apply(chunk(ONE, 0, b"A" * 8), 2).frame is None
    assert fold.apply(chunk(ONE, 0, b"B" * 8, 8), 3).frame == ReplicatedFrame(1, 0, b"A" * 8 + b"B" * 8)
    assert fold.next_lsn == 16


def test_an_unfinished_frame_dies_with_the_next_claim() -> None:
    fold = folded(*STATES["in a frame, claimed again"], chunk(second(0)[1], 0, b"C" * 8, size=8))
    assert fold.next_lsn == 8


def test_a_leader_that_has_resigned_leads_no_more() -> None:
    fold = folded(*FILLED)
    assert fold.leads(FIRST)
    fold.apply(Resignation(ONE), 3)
    assert not fold.leads(FIRST)


def test_a_leader_leaves_from_its_announcement_to_the_next_claim() -> None:
    entries = (*FILLED, Heartbeat(ONE), Heartbeat(ONE, leaving=True), Heartbeat(ONE), second(16)[0])
    told = len(FILLED) + 1
    assert [folded(*entries[:size]).leaving for size in range(told, len(entries) + 1)] == [False, True, True, False]


@pytest.mark.parametrize(
    "wrong",
    [
        SegmentStart(ONE, 16, bytes(64), 0, "a", ""),
        SegmentStart(ONE, 16, header(16, kind=TYPE_SNAPSHOT), 0, "a", ""),
        SegmentStart(ONE, 16, header(16, journal=b"another journal!"), 0, "a", ""),
        SegmentStart(ONE, 16, header(8), 0, "a", ""),
        chunk(ONE, 16, HALF, 8, 24),
    ],
    ids=["damaged", "snapshot", "another journal", "before the end", "another size"],
)
def test_what_belongs_elsewhere_is_foreign_and_changes_nothing(wrong: Entry) -> None:
    fold = folded(*FILLED, chunk(ONE, 16, HALF))
    if isinstance(wrong, SegmentStart):
        fold = folded(*FILLED)
    before = fold.state
    assert fold.apply(wrong, 4).judgement is FOREIGN
    assert fold.state == before


def test_a_segment_may_begin_behind_a_gap_if_its_leader_says_so() -> None:
    fold = folded(*FILLED, start(ONE, 800, end=16), chunk(ONE, 800))
    assert fold.next_lsn == 816


def test_a_log_with_a_gap_lacks_a_snapshot_until_one_covers_the_gap() -> None:
    assert not folded(*FILLED).lacks_snapshot
    fold = folded(*FILLED, piece(ONE, 0), piece(ONE, 8), start(ONE, 800, end=16), chunk(ONE, 800))
    assert fold.snapshot == SnapshotPlace(16, 3)
    assert fold.lacks_snapshot
    fold.apply(piece(ONE, 0, lsn=816), 7)
    assert fold.lacks_snapshot
    fold.apply(piece(ONE, 8, lsn=816), 8)
    assert not fold.lacks_snapshot


def test_a_log_that_was_trimmed_lacks_a_snapshot_until_it_has_one() -> None:
    assert Fold.begun_at(start(ONE, 16)).lacks_snapshot
    assert not Fold.begun_at(start(ONE, 0)).lacks_snapshot


def test_pieces_of_a_snapshot_are_handed_on_and_the_whole_one_is_known() -> None:
    fold = folded(*FILLED)
    assert fold.apply(piece(ONE, 0, b"A" * 8), 3).snapshot == SnapshotPiece(16, 16, 0, b"A" * 8)
    assert fold.snapshot is None
    last = fold.apply(piece(ONE, 8, b"B" * 8), 4).snapshot
    assert last is not None
    assert last.last
    assert fold.snapshot == SnapshotPlace(16, 3)


def test_a_snapshot_that_was_given_up_is_replaced_by_the_next_one() -> None:
    fold = folded(*FILLED, piece(ONE, 0), chunk(ONE, 16), piece(ONE, 0, lsn=32), piece(ONE, 8, lsn=32))
    assert fold.snapshot == SnapshotPlace(32, 5)
    assert fold.apply(piece(ONE, 8), 7).judgement is DUPLICATE


def test_a_snapshot_that_was_begun_before_the_claim_is_not_continued() -> None:
    fold = folded(*FILLED, piece(ONE, 0), second(16)[0])
    assert fold.apply(piece(second(16)[1], 8), 5).judgement is PREMATURE


def test_a_gap_between_frames_shows_that_entries_are_lost_until_the_next_claim() -> None:
    found = [folded(*BEGUN, *more).hole for more in ((), (chunk(ONE, 16),), (chunk(ONE, 16), second(0)[0]))]
    assert found == [False, True, False]


def test_a_leader_may_return_to_the_last_segment_with_frames() -> None:
    again = start(ONE, 0, end=16)
    fold = folded(*FILLED, start(ONE, 16, 7))
    assert fold.apply(again, 4).judgement is COUNTS
    assert (fold.segment, fold.next_lsn) == (header(0), 16)
    fold = folded(*FILLED, start(ONE, 16, 7), chunk(ONE, 16))
    assert fold.apply(replace(again, end_lsn=32), 5).judgement is FOREIGN


def test_the_notices_since_the_last_claim_are_known() -> None:
    fold = folded(*FILLED, LossNotice(ONE, "b", 1, 24), LossNotice(ONE, "c", 1, 16))
    assert fold.notices == {"b": CopyEnd(1, 24), "c": CopyEnd(1, 16)}
    fold.apply(second(16)[0], 5)
    assert not fold.notices


def test_a_deposed_leader_that_has_read_behind_the_claim_that_deposed_it_is_doubtful() -> None:
    fold = folded(*FILLED, second(16)[0])
    assert fold.apply(Heartbeat(Stamp(1, ONE.chain, 3)), 4).judgement is STALE
    assert fold.apply(Heartbeat(Stamp(1, ONE.chain, 4)), 5).judgement is DOUBTFUL
    assert fold.apply(claim(2, "c", ONE.chain, after=4), 6).judgement is DOUBTFUL


def test_a_reader_may_begin_with_a_segment_that_counts() -> None:
    entries: list[Entry] = [*FILLED, second(16)[0], start(second(16)[1], 16), chunk(second(16)[1], 16)]
    whole = folded(*entries)
    first = entries[4]
    assert isinstance(first, SegmentStart)
    later = Fold.begun_at(first)
    for position, entry in enumerate(entries[4:], 4):
        assert later.apply(entry, position).judgement is COUNTS
    assert later.state == whole.state
    assert later.leader is not None
    assert later.leader.url == "amqp://a"


def test_a_reader_that_began_later_judges_entries_of_deposed_leaders_as_doubtful() -> None:
    later = Fold.begun_at(start(second(16)[1], 16))
    later.apply(start(second(16)[1], 16), 4)
    assert later.apply(chunk(ONE, 16), 5).judgement is DOUBTFUL
    assert later.next_lsn == 16


def test_the_chain_before_the_first_claim_is_empty() -> None:
    assert Fold().chain == NO_CHAIN


class TestReports:
    """Reports of nodes are for operators alone."""

    REPORT = NodeReport(OTHER, "b", "amqp://b", 8, 1000)

    @pytest.mark.parametrize("state", STATES)
    def test_a_report_changes_nothing(self, state: str) -> None:
        fold = folded(*STATES[state])
        before = fold.state
        assert fold.apply(self.REPORT, 50).judgement is REPORT
        assert fold.state == before

    def test_the_last_report_of_a_node_is_known_with_the_end_of_the_journal_at_its_place(self) -> None:
        fold = folded(*BEGUN, self.REPORT, chunk(ONE, 0), replace(self.REPORT, lsn=16))
        assert list(fold.reports) == [("b", "amqp://b")]
        assert fold.reports["b", "amqp://b"] == SeenReport(replace(self.REPORT, lsn=16), 16)
        assert not fold.take_overs

    def test_reports_of_leaders_are_counted(self) -> None:
        own = NodeReport(ONE, "a", "amqp://a", 16, 1000)
        fold = folded(*BEGUN, own, self.REPORT, own, own)
        assert fold.leader_reports - fold.reports["b", "amqp://b"].leader_reports == 2
        assert fold.reports["a", "amqp://a"].leader_reports == 3

    def test_take_overs_are_known_by_epoch(self) -> None:
        report = NodeReport(ONE, "a", "amqp://a", 16, 1000, TakeOverReason.ENDED, 250)
        assert folded(*FILLED, report).take_overs == {1: report}

    def test_the_reports_of_a_limited_number_of_nodes_are_kept(self) -> None:
        fold = folded(*(replace(self.REPORT, node=f"n{number}") for number in range(MOST_NODES + 1)))
        assert len(fold.reports) == MOST_NODES
        assert ("n0", "amqp://b") not in fold.reports
