"""Which streams are open, idle, closed, or lately reset."""

from __future__ import annotations

import pytest

from escrowmq.wire.http2.frames import ErrorCode, Http2Fault
from escrowmq.wire.http2.limits import Patience
from escrowmq.wire.http2.table import StreamTable


def judged(table: StreamTable, number: int) -> ErrorCode | None:
    """Return the error for a late frame."""
    try:
        table.late(number)
    except Http2Fault as fault:
        return fault.code
    return None


def test_a_number_is_idle_until_a_request_has_used_it_or_a_later_one() -> None:
    table = StreamTable(Patience(10))
    table.highest = 5
    assert [number for number in range(1, 9) if table.is_idle(number)] == [2, 4, 6, 7, 8]


@pytest.mark.parametrize(("number", "code"), [(7, 1), (2, 1), (5, 5), (1, 5), (3, None)])
def test_a_late_frame_is_forgiven_only_after_a_reset_of_ours(number: int, code: int | None) -> None:
    table = StreamTable(Patience(10))
    table.highest = 5
    table.note_reset(3)
    assert judged(table, number) == code


@pytest.mark.rule("FAIR-3")
def test_late_frames_cost_patience_and_old_resets_are_forgotten() -> None:
    table = StreamTable(Patience(2))
    table.highest = 1001
    table.note_reset(1)
    assert [judged(table, 1) for _ in range(3)] == [None, None, ErrorCode.ENHANCE_YOUR_CALM]
    for number in range(3, 1001, 2):
        table.note_reset(number)
    assert judged(table, 1) == ErrorCode.STREAM_CLOSED
