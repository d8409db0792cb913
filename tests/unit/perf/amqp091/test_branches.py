"""Publishing in branches: the order of requests, and the refusal of any answer except xa-ok."""

from __future__ import annotations

from itertools import repeat

import pytest

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.branches import BranchPublisher
from escrowmq.perf.amqp091.encoding import publish_block
from escrowmq.perf.errors import PerfError
from escrowmq.perf.messages import Variety, messages
from escrowmq.perf.totals import Totals
from escrowmq.perf.workload import ONE_PHASE, TWO_PHASE


def publisher(phases: str, totals: Totals | None = None) -> BranchPublisher:
    made = list(messages(Variety(), 100, 2))
    block = publish_block(made, 3, "", repeat("queue"), persistent=True, frame_max=131072)
    return BranchPublisher(3, block, totals or Totals(), 4, False, 2, phases)


def methods(data: memoryview | None) -> list[int]:
    """Return the methods in some frames, in order."""
    assert data is not None
    found = []
    at = 0
    while at < len(data):
        kind, channel, size = frames.FRAME_HEAD.unpack_from(data, at)
        assert channel == 3
        if kind == frames.METHOD:
            found.append(int.from_bytes(data[at + 7 : at + 11], "big"))
        at += size + frames.FRAME_OVERHEAD
    return found


def test_a_branch_is_committed_in_two_phases() -> None:
    totals = Totals()
    work = publisher(TWO_PHASE, totals)
    publish = [frames.BASIC_PUBLISH] * 2
    assert methods(work.take(0)) == [frames.DTX_START, *publish, frames.DTX_END, frames.DTX_PREPARE]
    assert work.take(1) is None
    assert not work.on_branch_answer(frames.DTX_START_OK, frames.XA_OK, 2)
    assert not work.on_branch_answer(frames.DTX_END_OK, frames.XA_OK, 2)
    assert work.room(2) == 0
    assert work.on_branch_answer(frames.DTX_PREPARE_OK, frames.XA_OK, 3)
    assert work.room(3) == 1
    assert methods(work.take(3)) == [frames.DTX_COMMIT]
    assert (work.room(4), totals.confirmed) == (0, 0)
    assert work.on_branch_answer(frames.DTX_COMMIT_OK, frames.XA_OK, 5)
    assert (work.room(6), totals.confirmed) == (2, 2)
    assert not work.finished


def test_a_branch_is_committed_in_one_phase() -> None:
    work = publisher(ONE_PHASE)
    for _ in range(2):
        assert methods(work.take(0))[-2:] == [frames.DTX_END, frames.DTX_COMMIT]
        assert work.on_branch_answer(frames.DTX_COMMIT_OK, frames.XA_OK, 1)
    assert work.finished


def test_each_branch_has_an_xid_of_its_own() -> None:
    work = publisher(ONE_PHASE)
    taken = set()
    for _ in range(2):
        data = work.take(0)
        assert data is not None
        taken.add(bytes(data[:60]))
        work.on_branch_answer(frames.DTX_COMMIT_OK, frames.XA_OK, 1)
    assert len(taken) == 2


def test_a_rollback_is_an_error() -> None:
    work = publisher(TWO_PHASE)
    work.take(0)
    with pytest.raises(PerfError, match="answered 2"):
        work.on_branch_answer(frames.DTX_PREPARE_OK, 2, 1)
