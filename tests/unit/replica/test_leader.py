"""A leader claims, appends and proves, and learns from the log that it is deposed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.replica.entries import FrameChunk, Heartbeat, LeaderClaim, Resignation, SegmentStart
from escrowmq.replica.errors import AppendUnknown, Deposed, EntriesLost
from escrowmq.replica.leader import ATTEMPTS, Leader
from escrowmq.replica.tail import LogTail
from tests.unit.replica.logs import Copy, Log
from tests.unit.replica.test_fold import header

RIVAL = LeaderClaim(2, "b", "amqp://b")


def candidate(log: Log) -> Leader:
    return Leader(log, LogTail(log, Copy()), "a", "amqp://a", chunk_size=4)


def leading(log: Log) -> Leader:
    leader = candidate(log)
    assert leader.take_over()
    leader.begin_segment(header(leader._tail.fold.next_lsn))
    return leader


def test_a_claim_counts_when_it_is_read_back() -> None:
    log = Log()
    assert candidate(log).take_over()
    assert log.entries == [LeaderClaim(1, "a", "amqp://a")]


def test_a_claim_behind_a_rival_claim_does_not_count() -> None:
    log = Log()
    log.before = [LeaderClaim(1, "b", "amqp://b")]
    leader = candidate(log)
    assert not leader.take_over()
    assert not leader.leads


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
    assert log.entries[1:] == [
        SegmentStart(1, header(0)),
        FrameChunk(1, 0, 8, 0, b"abcd"),
        FrameChunk(1, 0, 8, 4, b"efgh"),
    ]


@pytest.mark.parametrize("act", ["frame", "prove", "resign", "segment"])
def test_an_entry_behind_a_rival_claim_deposes_the_leader(act: str) -> None:
    log = Log()
    leader = leading(log)
    log.before = [RIVAL]
    acts: dict[str, Callable[[], None]] = {
        "frame": lambda: leader.append_frame(0, [bytes(8)]),
        "prove": leader.prove,
        "resign": leader.resign,
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


def test_entries_of_others_between_its_own_do_not_disturb_a_leader() -> None:
    log = Log()
    leader = leading(log)
    log.before = [LeaderClaim(1, "late", ""), FrameChunk(0, 0, 8, 0, bytes(8))]
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
    with pytest.raises(EntriesLost, match="its frames end at LSN 0, not at 808"):
        leader.append_frame(800, [bytes(8)])


def test_a_leader_that_resigns_leads_no_more() -> None:
    log = Log()
    leader = leading(log)
    leader.resign()
    assert not leader.leads
    assert log.entries[-1] == Resignation(1)
    with pytest.raises(Deposed, match="after a resignation"):
        leader.prove()


def test_a_proof_is_an_entry_behind_everything_before() -> None:
    log = Log()
    leader = leading(log)
    leader.prove()
    assert log.entries[-1] == Heartbeat(1)
