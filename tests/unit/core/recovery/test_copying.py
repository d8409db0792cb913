"""Copies compared with a dictionary of messages, and blocks read in pieces compared with the written block."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.blocks import decode_block, encode_block
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import Reference
from escrowmq.core.recovery import copying
from escrowmq.core.recovery.copying import Address, BlockReader, Copies, LoadedMessages, part_of
from tests.unit.core.site import Site

ENVELOPE = Envelope("x", "k", b"header", durable=True)
PAGES = [4000, 4095, 4096, 9000]


class TestCopies:
    @given(
        st.lists(st.tuples(st.sampled_from(PAGES), st.integers(0, 30), st.integers(1, 6)), max_size=20),
        st.sampled_from(PAGES),
        st.integers(0, 30),
        st.integers(1, 20),
    )
    def test_each_part_was_copied_to_one_place_or_not_at_all(
        self, noted: list[tuple[int, int, int]], lsn: int, start: int, length: int
    ) -> None:
        copies = Copies()
        known: dict[tuple[int, int], Address] = {}
        for k, (block, first, count) in enumerate(noted):
            wanted = range(first, first + count)
            if any((block, number) in known for number in wanted):
                continue  # nothing is copied twice
            copies.note(block, first, count, Address(10_000 + k, 50))
            known.update(((block, number), Address(10_000 + k, 50 + number - first)) for number in wanted)
        parts = list(copies.cut(Reference(100, length, lsn, start)))
        found = [
            (part.first + i, part.lsn, part.start + i, place and Address(place.lsn, place.start + i))
            for part, place in parts
            for i in range(part.length)
        ]
        assert found == [(100 + i, lsn, start + i, known.get((lsn, start + i))) for i in range(length)]
        assert not any(a is None and b is None for (_, a), (_, b) in pairwise(parts))


def block_on_log(site: Site, contents: list[bytes]) -> int:
    site.journal.append(Kind.PAGE, *encode_block(3, ENVELOPE, [b"before"]))
    return site.journal.append(Kind.PAGE, *encode_block(5, ENVELOPE, contents))


class TestReading:
    @pytest.mark.parametrize("synced", [False, True])
    @pytest.mark.parametrize("ahead", [1, 64, copying.READ_AHEAD])
    @given(st.lists(st.binary(max_size=20), min_size=1, max_size=20), st.data())
    def test_pieces_of_any_size_become_the_block(
        self, synced: bool, ahead: int, contents: list[bytes], data: st.DataObject
    ) -> None:
        site = Site()
        lsn = block_on_log(site, contents)
        if synced:
            site.sync()
        number = st.integers(0, len(contents) - 1)
        pieces = [
            (start, data.draw(st.integers(1, len(contents) - start)))
            for start in data.draw(st.lists(number, min_size=1, max_size=4))
        ]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(copying, "READ_AHEAD", ahead)
            content = b"".join(BlockReader(site.journal).open(lsn).copy(pieces))
        wanted = [content for start, count in pieces for content in contents[start : start + count]]
        assert content == b"".join(encode_block(5, ENVELOPE, wanted))

    def test_successive_blocks_are_read(self) -> None:
        site = Site()
        lsns = [site.journal.append(Kind.PAGE, *encode_block(i, ENVELOPE, [b"%d" % i, b"x"])) for i in range(9)]
        reader = BlockReader(site.journal)
        for i in (0, 1, 8, 2, 2):
            block = decode_block(b"".join(reader.open(lsns[i]).copy([(1, 1), (0, 1)])))
            assert (block.time, block.contents) == (i, [b"x", b"%d" % i])

    @given(st.lists(st.integers(0, 9), min_size=1), st.integers(0, 30), st.data())
    def test_as_many_messages_as_fit_are_chosen(self, sizes: list[int], room: int, data: st.DataObject) -> None:
        site = Site()
        reader = BlockReader(site.journal).open(block_on_log(site, [bytes(size) for size in sizes]))
        start = data.draw(st.integers(0, len(sizes) - 1))
        most = data.draw(st.integers(1, len(sizes) - start))
        fitting = [n for n in range(1, most + 1) if sum(sizes[start : start + n]) <= room]
        count = max(fitting, default=1)
        assert reader.fit(start, most, room) == (count, sum(sizes[start : start + count]))


@given(st.integers(0, 20), st.integers(0, 25), st.integers(0, 25))
def test_any_part_of_a_deque_is_returned(size: int, start: int, most: int) -> None:
    assert part_of(deque(range(size)), start, most) == list(range(size))[start : start + most]


def test_messages_in_memory_are_encoded_as_the_same_block() -> None:
    site = Site()
    contents = [b"a", b"", b"ccc", b"dd"]
    pieces = [(1, 2), (0, 1)]
    reader = BlockReader(site.journal).open(block_on_log(site, contents))
    loaded = LoadedMessages(5, ENVELOPE, dict(enumerate(contents)))
    assert b"".join(loaded.copy(pieces)) == b"".join(reader.copy(pieces))
    assert loaded.fit(0, 3, 1) == (3, 0)
