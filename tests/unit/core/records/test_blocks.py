"""Blocks are decoded as they were encoded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.blocks import BLOCK, decode_block, encode_block

u64 = st.integers(0, 2**64 - 1)


contents = st.lists(st.binary(max_size=20), min_size=1, max_size=20)


ENVELOPE = Envelope("x", "k", b"header", durable=True)


class TestBlocks:
    @given(contents, st.binary(max_size=5), u64, st.data())
    def test_any_part_can_be_read(self, contents: list[bytes], before: bytes, time: int, data: st.DataObject) -> None:
        first = data.draw(st.integers(0, len(contents)))
        count = data.draw(st.none() | st.integers(0, len(contents) - first))
        raw = before + b"".join(encode_block(time, ENVELOPE, contents)) + b"what follows"
        block = decode_block(memoryview(raw), len(before), first, count)
        assert block.time == time
        assert block.envelope.encode() == ENVELOPE.encode()
        assert block.contents == contents[first : None if count is None else first + count]

    @given(contents)
    def test_the_length_is_in_the_head(self, contents: list[bytes]) -> None:
        raw = b"".join(encode_block(1, ENVELOPE, contents))
        length, _, count, head = BLOCK.unpack_from(raw)
        assert (4 + length, count, head) == (len(raw), len(contents), len(ENVELOPE.encode()))

    def test_empty_contents_are_read(self) -> None:
        assert decode_block(b"".join(encode_block(1, ENVELOPE, [b"", b""]))).contents == [b"", b""]
        assert decode_block(b"".join(encode_block(1, ENVELOPE, [b""]))).contents == [b""]
