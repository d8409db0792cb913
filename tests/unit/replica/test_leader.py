"""A leader claims, appends and proves, and learns from the log that it is deposed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from escrowmq.replica.entries import (
    Entry,
    FrameChunk,
    Heartbeat,
    LossNotice,
    Resignation,
    SegmentStart,
    SnapshotChunk,
    Stamp,
    encode,
)
from escrowmq.replica.errors import AppendUnknown, Deposed, EntriesLost
from escrowmq.replica.fold import CopyEnd, SnapshotPlace
from escrowmq.replica.leader import ATTEMPTS, CopiedFrame, CopiedPiece, CopiedSnapshot, CopiedStart, Leader
from escrowmq.replica.tail import LogTail
from tests.unit.replica.entries import ONE, chunk, claim, header
from tests.unit.replica.logs import Copy, Log

RIVAL = claim(2, "b", ONE.chain)


def candidate(log: Log, node: str = "a") -> Leader:
    """A node whose random bytes are always those of `entries.claim`, so that ONE is the stamp of the first leader."""
    return Leader(
        log, LogTail(log, Copy()), node, f"amqp://{node}", lambda: node.encode().ljust(16, b"."), chunk_size=4
    )


def leading(log: Log) -> Leader:
    leader = candidate(log)
    assert leader.take_over()
    leader.begin_segment(header(leader._tail.fold.next_lsn))
    return leader


def plain(entries: list[Entry]) -> list[Entry]:
    """The entries without what their writers had read."""
    return [replace(entry, stamp=replace(entry.stamp, after=0)) for entry in entries]


def test_a_claim_counts_when_it_is_read_back() -> None:
    log = Log()
    assert candidate(log).take_over()
    assert log.entries == [claim(1, "a")]


def test_a_long_frame_is_short_in_the_log_and_whole_in_each_copy() -> None:
    log, frame = Log(), bytes(range(256)) * 200
    leader = Leader(log, LogTail(log, own := Copy()), "a", "amqp://a", lambda: bytes(16), chunk_size=20_000)
    assert leader.take_over()
    leader.begin_segment(header(0))
    before = sum(map(len, log.stored))
    leader.append_frame(0, [frame[:100], frame[100:]])
    assert sum(map(len, log.stored)) - before < len(frame) / 10
    tail = LogTail(log, other := Copy())
    tail.read_to_end()
    assert [each.data for each in other.frames] == [each.data for each in own.frames] == [frame]


def test_a_claim_is_greater_than_all_epochs_that_the_node_knows() -> None:
    log = Log()
    leading(log)
    other = candidate(log, "b")
    other._tail.read_to_end()
    other.give_notice(CopyEnd(7, 8))
    assert other.take_over(5)
    assert other.claim.stamp.epoch == 8
    assert candidate(log, "c").take_over(11)
    assert log.entries[-1].stamp.epoch == 12


def test_a_claim_behind_a_rival_claim_does_not_count() -> None:
    log = Log()
    log.before = [claim(1, "b")]
    leader = candidate(log)
    assert not leader.take_over()
    assert not leader.leads


def test_a_node_does_not_claim_if_its_last_read_shows_a_claim_of_another_one() -> None:
    log = Log()
    leading(log)
    late = candidate(log, "b")
    late._tail.read_to_end()
    counted = late._tail.counted
    assert candidate(log, "c").take_over()
    assert not late.take_over(0, counted)
    assert log.entries[-1] == replace(claim(2, "c", ONE.chain), stamp=replace(ONE, epoch=2, after=2))
    assert late.take_over(0, late._tail.counted)


def test_a_claim_without_an_answer_counts_if_the_log_has_it() -> None:
    log = Log()
    log.silent = 1
    assert candidate(log).take_over()


def test_a_claim_that_is_lost_does_not_count() -> None:
    log = Log()
    log.lost = 1
    assert not candidate(log).take_over()


def test_frames_are_appended_in_chunks() -> None:
    log = Log()
    leading(log).append_frame(0, [b"abc", b"defgh"])
    assert plain(log.entries[1:]) == [
        SegmentStart(ONE, 0, header(0), 0, "a", "amqp://a"),
        FrameChunk(ONE, 0, 8, 0, b"abcd"),
        FrameChunk(ONE, 0, 8, 4, b"efgh"),
    ]
    assert [entry.stamp.after for entry in log.entries] == [0, 1, 2, 2]


@pytest.mark.parametrize("act", ["frame", "prove", "segment"])
def test_an_entry_behind_a_rival_claim_deposes_the_leader(act: str) -> None:
    log = Log()
    leader = leading(log)
    log.before = [RIVAL]
    acts: dict[str, Callable[[], None]] = {
        "frame": lambda: leader.append_frame(0, [bytes(8)]),
        "prove": leader.prove,
        "segment": lambda: leader.begin_segment(header(0, 5)),
    }
    with pytest.raises(Deposed, match="amqp://b leads now, since epoch 2"):
        acts[act]()


def test_a_deposed_leader_appends_nothing_more() -> None:
    log = Log()
    leader = leading(log)
    log.before = [RIVAL]
    with pytest.raises(Deposed):
        leader.prove()
    size = len(log.stored)
    with pytest.raises(Deposed):
        leader.append_frame(0, [bytes(8)])
    assert len(log.stored) == size


@pytest.mark.parametrize("fate", ["silent", "lost"])
def test_an_append_without_an_answer_is_repeated_and_counts_once(fate: str) -> None:
    log = Log()
    leader = leading(log)
    setattr(log, fate, 2)
    leader.append_frame(0, [b"12345678"])
    leader.append_frame(8, [b"abcdefgh"])
    copy = Copy()
    LogTail(log, copy).read_to_end()
    assert [frame.data for frame in copy.frames] == [b"12345678", b"abcdefgh"]


def test_an_append_that_is_never_answered_is_given_up() -> None:
    log = Log()
    leader = leading(log)
    log.lost = ATTEMPTS
    with pytest.raises(AppendUnknown):
        leader.append_frame(0, [bytes(8)])


def test_a_rival_is_noticed_although_the_append_is_not_answered() -> None:
    log = Log()
    leader = leading(log)
    log.before, log.silent = [RIVAL], 1
    with pytest.raises(Deposed):
        leader.append_frame(0, [bytes(8)])


def test_a_rival_is_noticed_although_the_append_is_refused() -> None:
    log = Log()
    leader = leading(log)
    log.refused = 2
    with pytest.raises(PermissionError):
        leader.append_frame(0, [bytes(8)])
    log.stored.append(encode(RIVAL))
    with pytest.raises(Deposed):
        leader.append_frame(0, [bytes(8)])


def test_entries_of_others_between_its_own_do_not_disturb_a_leader() -> None:
    log = Log()
    leader = leading(log)
    log.before = [claim(1, "late"), chunk(Stamp(0), 0)]
    leader.append_frame(0, [b"12345678"])
    assert leader.leads


def test_a_log_that_stores_an_append_where_others_were_has_lost_them() -> None:
    log = Log()
    leader = leading(log)
    leader.append_frame(0, [bytes(8)])
    del log.stored[2:]
    with pytest.raises(EntriesLost, match="position 2 on"):
        leader.append_frame(8, [bytes(8)])


def test_a_frame_elsewhere_than_at_the_end_is_refused() -> None:
    leader = leading(Log())
    with pytest.raises(EntriesLost, match="entries of this node before the last one are missing"):
        leader.append_frame(800, [bytes(8)])


def test_a_leader_that_resigns_leads_no_more() -> None:
    log = Log()
    leader = leading(log)
    leader.resign()
    assert not leader.leads
    assert plain(log.entries)[-1] == Resignation(ONE)
    with pytest.raises(Deposed, match="after a resignation"):
        leader.prove()


@pytest.mark.parametrize("successors", [[], [claim(2, "b", ONE.chain, after=2)]])
def test_a_resignation_whose_answer_is_lost_ends_the_leadership(successors: list[Entry]) -> None:
    log = Log()
    leader = leading(log)
    log.silent = 1
    sent = log.send

    def send(entries: Sequence[bytes]) -> Callable[[], list[int]]:
        def answer() -> list[int]:
            try:
                return sent(entries)()
            finally:
                log.stored += map(encode, successors)

        return answer

    log.send = send  # type: ignore[method-assign]
    leader.resign()
    assert not leader.leads


def test_a_leader_that_is_deposed_when_it_resigns_has_nothing_to_end() -> None:
    log = Log()
    leader = leading(log)
    log.before = [RIVAL]
    leader.resign()
    assert not leader.leads


def test_a_proof_is_an_entry_behind_everything_before() -> None:
    log = Log()
    leader = leading(log)
    leader.prove()
    assert plain(log.entries)[-1] == Heartbeat(ONE)


def test_a_claim_where_others_were_shows_that_the_log_has_lost_them() -> None:
    log = Log(claim(1, "b"), Heartbeat(claim(1, "b").stamp))
    leader = candidate(log)
    leader._tail.read_to_end()
    del log.stored[1:]
    with pytest.raises(EntriesLost, match="position 1 on"):
        leader.take_over()


def test_a_node_does_not_claim_if_other_entries_are_where_it_has_read() -> None:
    log = Log(claim(1, "b"))
    leader = candidate(log)
    leader._tail.read_to_end()
    log.stored = Log(claim(1, "c")).stored
    with pytest.raises(EntriesLost, match="position 0 on: another entry is there now"):
        leader.take_over()
    assert len(log.stored) == 1


def test_an_append_without_an_answer_where_the_log_has_lost_entries_is_not_repeated() -> None:
    log = Log()
    leader = leading(log)
    leader.append_frame(0, [bytes(8)])
    del log.stored[3:]
    log.silent = 1
    with pytest.raises(EntriesLost, match="position 3 on: another entry is there now"):
        leader.append_frame(8, [bytes(4)])


def test_what_the_log_has_lost_is_put_back_byte_by_byte() -> None:
    log = Log()
    leader = leading(log)
    leader.append_frame(0, [b"12345678"])
    leader.begin_segment(header(8, 5))
    leader.append_frame(8, [b"abcdefgh"])
    del log.stored[3:]
    other = candidate(log, "b")
    assert other.take_over()
    copy: list[CopiedPiece] = [
        CopiedStart(header(0), 0),
        CopiedFrame(0, b"12345678"),
        CopiedStart(header(8, 5), 1),
        CopiedFrame(8, b"abcdefgh"),
    ]
    assert other.restore(copy) == 2
    found = Copy()
    LogTail(log, found).read_to_end()
    assert [frame.data for frame in found.frames] == [b"12345678", b"abcdefgh"]
    assert found.segments == [header(0), header(8, 5)]
    assert other.restore(copy) == 0


def test_an_empty_log_takes_a_journal_without_its_deleted_segments() -> None:
    log = Log()
    leader = candidate(log)
    assert leader.take_over()
    pieces: list[CopiedPiece] = []
    for lsn in (800, 1600):
        pieces += [CopiedStart(header(lsn), 0), CopiedFrame(lsn, bytes(8))]
    assert leader.restore(pieces) == 2
    leader.begin_segment(header(1608))
    copy = Copy()
    LogTail(log, copy).read_to_end()
    assert copy.segments == [header(800), header(1600), header(1608)]


def test_the_snapshot_follows_a_journal_that_cannot_be_read_without_it() -> None:
    log = Log()
    leader = candidate(log)
    assert leader.take_over()
    pieces: list[CopiedPiece] = [CopiedStart(header(800), 0), CopiedFrame(800, bytes(8))]
    assert leader.restore(pieces, CopiedSnapshot(808, 6, [b"abcd", b"ef"])) == 1
    copy = Copy()
    LogTail(log, copy).read_to_end()
    assert [piece.data for piece in copy.snapshots] == [b"abcd", b"ef"]
    entries = len(log.stored)
    assert leader.restore(pieces, CopiedSnapshot(808, 6, [b"abcd", b"ef"])) == 0
    assert len(log.stored) == entries


def test_a_journal_without_gaps_is_put_back_without_its_snapshot() -> None:
    log = Log()
    leader = candidate(log)
    assert leader.take_over()
    leader.restore([CopiedStart(header(0), 0), CopiedFrame(0, bytes(8))], CopiedSnapshot(8, 6, [b"abcdef"]))
    assert not any(isinstance(entry, SnapshotChunk) for entry in log.entries)


def test_a_new_segment_begins_behind_the_last_frame() -> None:
    leader = leading(Log())
    with pytest.raises(EntriesLost, match="its frames end at LSN 0, and a segment shall begin at 8"):
        leader.begin_segment(header(8))


def test_a_leader_of_which_entries_are_missing_stops_when_another_node_says_so() -> None:
    log = Log()
    leader = leading(log)
    log.before = [LossNotice(ONE, "b", 1, 8)]
    with pytest.raises(EntriesLost, match="b found that entries of this node are missing"):
        leader.append_frame(0, [bytes(8)])


def test_a_notice_says_what_the_copy_has() -> None:
    log = Log()
    leading(log)
    other = candidate(log, "b")
    other._tail.read_to_end()
    other.give_notice(CopyEnd(1, 800))
    assert plain(log.entries)[-1] == LossNotice(ONE, "b", 1, 800)


def test_a_snapshot_is_appended_in_pieces() -> None:
    log = Log()
    leader = leading(log)
    leader.append_frame(0, [bytes(8)])
    leader.put_snapshot(8, 6, [b"abcd", b"ef"])
    assert plain(log.entries)[-2:] == [SnapshotChunk(ONE, 8, 6, 0, b"abcd"), SnapshotChunk(ONE, 8, 6, 4, b"ef")]
    assert leader._tail.fold.snapshot == SnapshotPlace(8, 4)


def test_a_snapshot_with_a_gap_does_not_count() -> None:
    leader = leading(Log())
    with pytest.raises(EntriesLost, match="the snapshot up to LSN 0 is not whole"):
        leader.put_piece(0, 6, 4, b"ef")


def filled() -> tuple[Log, Leader]:
    """A log with segments at 0, 8 and 16, and a snapshot up to 16 before the last one."""
    log = Log()
    leader = leading(log)
    leader.append_frame(0, [bytes(8)])
    leader.begin_segment(header(8))
    leader.append_frame(8, [bytes(8)])
    leader.put_snapshot(16, 2, [b"ab"])
    leader.begin_segment(header(16))
    leader.append_frame(16, [bytes(8)])
    return log, leader


@pytest.mark.parametrize(("oldest", "begin"), [(0, 1), (8, 4), (16, 4)])
def test_the_log_is_trimmed_before_the_oldest_segment_that_is_needed_and_keeps_the_snapshot(
    oldest: int, begin: int
) -> None:
    log, leader = filled()
    assert leader.trim(oldest) == log.first == begin
    copy = Copy()
    LogTail.opened(log, copy).read_to_end()
    assert [frame.lsn for frame in copy.frames] == [lsn for lsn in (0, 8, 16) if lsn >= min(oldest, 8)]
    assert copy.snapshots[0].data == b"ab"
    leader.append_frame(24, [bytes(8)])
    assert leader.trim(oldest) == begin


def test_the_log_is_not_trimmed_before_there_is_a_snapshot() -> None:
    log = Log()
    leader = leading(log)
    leader.append_frame(0, [bytes(8)])
    leader.begin_segment(header(8))
    assert leader.trim(8) == log.first == 0
