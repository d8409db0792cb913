"""The state of half messages in a snapshot."""

from __future__ import annotations

from escrowmq.core.half.ledger import HalfLedger
from escrowmq.core.half.rows import SIZE
from escrowmq.core.half.state import HalfState
from escrowmq.core.half.state_records import CHUNKS, CapturedHalf
from escrowmq.core.records.half import OriginFields, decode_half_states
from escrowmq.core.records.kinds import Kind

KEY = OriginFields("t", "g", "u", "c", 3)


def test_a_captured_state_is_that_of_the_capture() -> None:
    ledger = HalfLedger()
    ledger.add(1, "a", 10, 20, ledger.origins.of(KEY))
    captured = CapturedHalf(9, ledger)
    ledger.set(1, HalfState.COMMITTED, 30, 2)
    ledger.add(2, "b", 10, 20, ledger.origins.of(KEY))
    origins, rows = (decode_half_states(b"".join(parts)) for _, parts in captured.records())
    assert origins.origins == [(1, KEY)]
    assert rows.rows == [(1, "a", 10, 20, 1, 0, HalfState.PENDING)]


def test_many_half_messages_are_divided_into_several_records() -> None:
    ledger = HalfLedger()
    origin = ledger.origins.of(KEY)
    for number in range(SIZE * CHUNKS + 1):
        ledger.add(number + 1, str(number), 10, 20, origin)
    records = list(CapturedHalf(9, ledger).records())
    assert [kind for kind, _ in records] == [Kind.HALF_STATE] * 3
    assert sum(len(decode_half_states(b"".join(parts)).rows) for _, parts in records) == SIZE * CHUNKS + 1
