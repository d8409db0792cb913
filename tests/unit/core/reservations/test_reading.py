"""Reading in columns: messages are the same for any layout of blocks."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import TRANSIENT, Reference
from escrowmq.core.reservations import reading as hold_reading
from escrowmq.core.reservations.reading import Batch, BatchReader
from tests.unit.core.site import Site

runs = st.lists(
    st.tuples(st.lists(st.binary(max_size=30), min_size=1, max_size=6), st.sampled_from("abc"), st.integers(0, 3)),
    min_size=1,
    max_size=8,
)


def contents(batch: Batch) -> list[bytes]:
    data, ends = b"".join(batch.contents), list(accumulate(batch.lengths, initial=0))
    return [data[begin:end] for begin, end in pairwise(ends)]


def written(site: Site, blocks: list[tuple[list[bytes], str, int]]) -> list[tuple[int, int, int, int, int]]:
    """Return rows of messages with the positions 1, 2, 3…, synced or not."""
    rows, position = [], 1
    for content, key, number in blocks:
        envelope = Envelope("x", key, b"header", durable=True)
        lsn = site.journal.append(Kind.PAGE, b"head", *encode_block(number, envelope, content)) + 4
        rows.append((position, len(content), lsn, TRANSIENT if number == 2 else 0, number % 2))
        position += len(content)
        if number == 3:
            site.sync()
    return rows


@settings(max_examples=200)
@given(runs, st.integers(1, 100), st.integers(24, 200), st.integers(1, 30))
def test_a_range_is_read_in_batches(
    blocks: list[tuple[list[bytes], str, int]], most_bytes: int, ahead: int, step: int
) -> None:
    site = Site(segment_bytes=300)
    rows = written(site, blocks)
    expected = [
        (position, body, key, number * 1, number % 2 > 0)
        for (bodies, key, number), row in zip(blocks, rows, strict=True)
        for position, body in enumerate(bodies, row[0])
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hold_reading, "READ_AHEAD", ahead)
        patch.setattr(hold_reading, "MOST_MESSAGES", 5)
        reader = BatchReader(site.journal)
        found = []
        number = 1
        while number <= len(expected):
            rest = [
                (first + skip, length - skip, lsn, start + skip, deliveries)
                for first, length, lsn, start, deliveries in rows
                for skip in [max(number - first, 0)]
                if skip < length
            ]
            batch = reader.read(number, rest, min(number + step, len(expected) + 1), most_bytes)
            assert batch.first == number < batch.next == number + len(batch)
            assert len(batch) <= min(step, 5)
            assert len(batch) == 1 or sum(batch.lengths) <= most_bytes
            begin = 0
            for run in batch.runs:
                for i in range(begin, run.end):
                    what = batch.positions[i], contents(batch)[i], run.envelope.routing_key, run.time, run.redelivered
                    found.append(what)
                begin = run.end
            number = batch.next
    assert found == expected


def test_a_range_without_messages_ends_where_it_begins() -> None:
    reader = BatchReader(Site().journal)
    batch = reader.read(9, [], 7, 100)
    assert (batch.first, batch.next, len(batch), batch.runs) == (7, 7, 0, [])


def test_envelopes_are_shared_in_a_bounded_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold_reading, "_ENVELOPES", 2)
    site = Site()
    rows = written(site, [([b"1"], "a", 0), ([b"2"], "b", 0), ([b"3"], "a", 0), ([b"4"], "c", 0)])
    batch = BatchReader(site.journal).read(1, rows, 9, 100)
    assert [run.envelope.routing_key for run in batch.runs] == ["a", "b", "a", "c"]
    assert batch.runs[0].envelope is batch.runs[2].envelope


def test_sizes_and_envelopes_are_found_without_the_bodies() -> None:
    site = Site()
    ((first, length, lsn, start, _),) = written(site, [([b"1", b"22", b"333"], "a", 0)])
    reader = BatchReader(site.journal)
    assert reader.size_of(Reference(first, length, lsn, start)) == 6
    assert reader.size_of(Reference(first + 1, 2, lsn, start + 1 + TRANSIENT)) == 5
    assert reader.envelope_of(lsn).routing_key == "a"
