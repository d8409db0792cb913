"""What is written into the journal comes back as it was."""

from __future__ import annotations

import itertools
from array import array
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.fields import canonical_table
from escrowmq.core.message import Envelope
from escrowmq.core.outcome import Outcome
from escrowmq.core.records import (
    BLOCK,
    Kind,
    Move,
    QueueState,
    Range,
    Timestamp,
    decode_block,
    decode_change,
    decode_commit,
    decode_delivered,
    decode_moves,
    decode_publish,
    decode_queue_state,
    decode_readdressed,
    decode_returned,
    decode_settle,
    encode_block,
    encode_change,
    encode_commit,
    encode_delivered,
    encode_moves,
    encode_queue_state,
    encode_readdressed,
    encode_returned,
    encode_settle,
    encode_targets,
    merged,
    ranges_of,
)

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
bodies = st.lists(st.binary(max_size=20), min_size=1, max_size=20)
ENVELOPE = Envelope("x", "k", b"header", durable=True)


def test_kinds_are_part_of_the_journals_format() -> None:
    assert {kind.name: int(kind) for kind in Kind if kind < 16} == {
        "PUBLISH": 1,
        "SETTLE": 2,
        "COMMIT": 3,
        "RELOCATE": 4,
        "RETURNED": 5,
        "QUEUE_STATE": 6,
        "PAGE": 7,
        "DELIVERED": 8,
        "READDRESSED": 9,
        "PREPARE": 10,
        "PLACED": 11,
        "ROLLBACK": 12,
        "HEURISTIC": 13,
        "FORGET": 14,
        "DECIDE": 15,
    }


class TestBlocks:
    @given(bodies, st.binary(max_size=5), u64, st.data())
    def test_any_part_can_be_read(self, bodies: list[bytes], before: bytes, time: int, data: st.DataObject) -> None:
        first = data.draw(st.integers(0, len(bodies)))
        count = data.draw(st.none() | st.integers(0, len(bodies) - first))
        raw = before + b"".join(encode_block(time, ENVELOPE, bodies)) + b"what follows"
        block = decode_block(memoryview(raw), len(before), first, count)
        assert block.time == time
        assert block.envelope.encode() == ENVELOPE.encode()
        assert block.bodies == bodies[first : None if count is None else first + count]

    @given(bodies)
    def test_its_length_is_known_from_its_beginning(self, bodies: list[bytes]) -> None:
        raw = b"".join(encode_block(1, ENVELOPE, bodies))
        length, _, count, head = BLOCK.unpack_from(raw)
        assert (4 + length, count, head) == (len(raw), len(bodies), len(ENVELOPE.encode()))

    def test_empty_bodies_are_bodies(self) -> None:
        assert decode_block(b"".join(encode_block(1, ENVELOPE, [b"", b""]))).bodies == [b"", b""]
        assert decode_block(b"".join(encode_block(1, ENVELOPE, [b""]))).bodies == [b""]


@given(st.lists(st.tuples(u32, u64), min_size=1, max_size=5), bodies)
def test_publish(targets: list[tuple[int, int]], bodies: list[bytes]) -> None:
    head = encode_targets(targets)
    publish = decode_publish(memoryview(head + b"".join(encode_block(5, ENVELOPE, bodies))))
    assert publish.targets == targets
    assert publish.length == len(bodies)
    assert publish.block == len(head)


@given(u32, st.sampled_from(Outcome), st.lists(st.builds(Range, u64, u32), max_size=5))
def test_settle(queue: int, outcome: Outcome, ranges: list[Range]) -> None:
    assert decode_settle(memoryview(encode_settle(queue, outcome, ranges))) == (queue, outcome, ranges)


class TestRanges:
    @given(st.lists(st.integers(0, 60), unique=True))
    def test_of_positions(self, positions: list[int]) -> None:
        ranges = ranges_of(positions)
        assert [p for r in ranges for p in range(r.first, r.first + r.length)] == sorted(positions)
        assert all(a.first + a.length < b.first for a, b in itertools.pairwise(ranges))

    @given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 10))))
    def test_merged(self, given_: list[tuple[int, int]]) -> None:
        ranges = merged(given_)
        wanted = {p for first, count in given_ for p in range(first, first + count)}
        assert [p for r in ranges for p in range(r.first, r.first + r.length)] == sorted(wanted)
        assert all(a.first + a.length < b.first for a, b in itertools.pairwise(ranges))


@given(u64, st.lists(st.tuples(st.sampled_from(Kind), st.lists(st.binary(max_size=9), max_size=3)), max_size=5))
def test_commit(branch: int, operations: list[tuple[Kind, list[bytes]]]) -> None:
    parts, offsets = encode_commit(branch, operations)
    record = b"".join(parts)
    read, found = decode_commit(memoryview(record))
    read_operations = list(found)
    assert read == branch
    assert [(kind, bytes(payload)) for kind, _, payload in read_operations] == [
        (kind, b"".join(payload)) for kind, payload in operations
    ]
    assert [offset for _, offset, _ in read_operations] == offsets
    for offset, (_, payload) in zip(offsets, operations, strict=True):
        assert record[offset:].startswith(b"".join(payload))


moves = st.integers(0, 5).flatmap(
    lambda n: st.builds(
        Move,
        u32,
        st.lists(u64, min_size=n, max_size=n).map(lambda values: array("Q", values)),
        st.lists(u32, min_size=n, max_size=n).map(lambda values: array("I", values)),
    )
)


@given(st.lists(moves, max_size=4))
def test_moves(moves: list[Move]) -> None:
    head = encode_moves(moves)
    assert decode_moves(memoryview(head + b"block")) == (moves, len(head))


@given(st.lists(moves, max_size=4), u64)
def test_readdressed(moves: list[Move], lsn: int) -> None:
    assert decode_readdressed(memoryview(encode_readdressed(moves, lsn))) == (moves, lsn)


@given(u32, u64, u64, st.lists(st.tuples(u64, u64, u32, u32)), st.lists(st.tuples(u64, u32)))
def test_queue_state(
    queue: int, position: int, below: int, rows: list[tuple[int, int, int, int]], deliveries: list[tuple[int, int]]
) -> None:
    firsts, lsns, counts, indexes = ([row[i] for row in rows] for i in range(4))
    state = QueueState(
        queue,
        position,
        below,
        array("Q", firsts),
        array("Q", lsns),
        array("I", counts),
        array("I", indexes),
        deliveries,
    )
    assert decode_queue_state(memoryview(b"".join(encode_queue_state(state)))) == state


@given(u32, st.lists(st.tuples(u64, u32)), u64)
def test_deliveries(queue: int, counts: list[tuple[int, int]], below: int) -> None:
    assert decode_returned(memoryview(encode_returned(queue, counts))) == (queue, counts)
    assert decode_delivered(memoryview(encode_delivered(queue, below))) == (queue, below)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.sampled_from(["$bytes", "$text", "$table"]), inner, max_size=2)
    ),
    max_leaves=8,
)


class TestChanges:
    @given(st.dictionaries(st.text(max_size=3) | st.sampled_from(["$bytes", "$text", "$table"]), values, max_size=3))
    def test_any_table_comes_back(self, table: dict[str, Any]) -> None:
        assert decode_change(encode_change(arguments=table, name="q")) == {"arguments": table, "name": "q"}

    @pytest.mark.parametrize("table", [{"$bytes": "zz"}, {"$bytes": 1}, {"$text": []}, {"$table": {"$table": 1}}])
    def test_a_client_cannot_send_what_stands_for_something_else(self, table: dict[str, Any]) -> None:
        assert decode_change(encode_change(arguments={"x": table})) == {"arguments": {"x": table}}

    def test_times_and_decimals_stay_what_they_are(self) -> None:
        """A binding of a headers exchange goes by the type too."""
        table = {"t": Timestamp(7), "d": Decimal("1.50"), "i": 7, "inner": [Timestamp(8)]}
        read = decode_change(encode_change(arguments=table))["arguments"]
        assert canonical_table(read) == canonical_table(table)
        assert canonical_table(read) != canonical_table({**table, "t": 7})

    def test_text_that_is_no_unicode(self) -> None:
        assert decode_change(encode_change(name="\udc80")) == {"name": "\udc80"}

    def test_it_can_be_read_with_any_tool(self) -> None:
        assert (
            encode_change(name="ü", arguments={"x": b"\x01"})
            == '{"name":"ü","arguments":{"x":{"$bytes":"01"}}}'.encode()
        )


def test_a_run_may_go_to_more_queues_than_two_bytes_can_count() -> None:
    targets = [(ident, 1) for ident in range(70_000)]
    head = encode_targets(targets)
    found = decode_publish(head + b"".join(encode_block(1, Envelope("", "q"), [b"x"])))
    assert [tuple(target) for target in found.targets] == targets
