"""Records of branches are decoded as they were encoded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records import branches as records
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.branches import Item, Prepared, RunItem, SettlementItem
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import Range
from escrowmq.core.records.reservations import Released, encode_released

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
IDS = st.lists(u32, max_size=4)
OPERATIONS = st.lists(
    st.tuples(st.sampled_from([Kind.SETTLE, Kind.PLACED]), st.binary(max_size=20).map(lambda data: [data])), max_size=4
)


def a_branch(owner: str = "app@10.0.0.1") -> Prepared:
    return Prepared(7, 3, 100, 200, 60, b"\0\0\0\1\1\1gb", owner, [], [])


@given(IDS, st.booleans(), st.text(max_size=20))
def test_a_whole_branch_is_decoded_as_it_was_encoded(queues: list[int], mandatory: bool, owner: str) -> None:
    head = records.run_head(queues, mandatory=mandatory)
    block = encode_block(5, Envelope("x", "k"), [b"one", b"two"])
    settlement = SettlementItem(3, Outcome.REJECTED, [Range(4, 2), Range(9, 1)], requeue=False)
    requeue = SettlementItem(4, Outcome.ACCEPTED, [Range(1, 1)], requeue=True)
    items = [
        (Item.RUN, [head, *block]),
        records.encode_settlement(settlement),
        (Item.ADDRESSED_RUN, [head, records.ADDRESS.pack(4096, 12)]),
        records.encode_settlement(requeue),
        (Item.HOLD, [encode_released(3, "group", 10, 10)]),
    ]
    parts, offsets = records.encode_prepare(a_branch(owner), items)
    payload = b"".join(parts)
    for (_, content), offset in zip(items, offsets, strict=True):
        assert payload[offset:].startswith(b"".join(content))
    found = records.decode_prepare(memoryview(payload), 1000)
    assert found[:7] == a_branch(owner)[:7]
    here = 1000 + offsets[0] + len(head)
    assert found.runs == [RunItem(tuple(queues), mandatory, here, 2), RunItem(tuple(queues), mandatory, 4096, 12)]
    assert found.settlements == [settlement, requeue]
    assert found.reservations == [Released(3, "group", 10, 10)]


@given(st.lists(st.tuples(u32, u64), max_size=4), u64, u32)
def test_placed_runs_are_decoded_as_they_were_encoded(targets: list[tuple[int, int]], lsn: int, length: int) -> None:
    found = records.decode_placed(records.encode_placed(targets, lsn, length))
    assert found == (targets, lsn, length)


@given(u64)
def test_numbers_are_decoded_as_they_were_encoded(number: int) -> None:
    assert records.decode_number(records.encode_number(number)) == number


@given(u64, OPERATIONS, st.booleans())
def test_heuristic_decisions_are_decoded_as_they_were_encoded(
    number: int, operations: list[tuple[Kind, list[bytes]]], commit: bool
) -> None:
    parts, offsets = records.encode_heuristic(number, operations, commit=commit)
    payload = b"".join(parts)
    decided, found, rest = records.decode_heuristic(payload)
    assert (decided, found) == (commit, number)
    expected = [(kind, offset, content) for (kind, (content,)), offset in zip(operations, offsets, strict=True)]
    assert list(rest) == expected
    assert all(payload[offset : offset + len(content)] == content for _, offset, content in expected)


@given(st.text(max_size=20), st.integers(-1, 2**62), st.lists(u64, max_size=4), st.lists(st.tuples(u64, OPERATIONS)))
def test_decisions_are_decoded_as_they_were_encoded(
    application: str, epoch: int, losers: list[int], winners: list[tuple[int, list[tuple[Kind, list[bytes]]]]]
) -> None:
    parts, offsets = records.encode_decide(application, epoch, losers, winners)
    payload = b"".join(parts)
    found = records.decode_decide(payload)
    assert found[:3] == (application, epoch, losers)
    assert found.committed == [
        (number, [(kind, place, content) for (kind, (content,)), place in zip(operations, places, strict=True)])
        for (number, operations), places in zip(winners, offsets, strict=True)
    ]
    for _, operations in found.committed:
        assert all(payload[place : place + len(content)] == content for _, place, content in operations)
