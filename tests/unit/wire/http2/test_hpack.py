"""The decoder of header blocks, compared with the library hpack."""

from __future__ import annotations

import pytest
from hpack import Decoder, Encoder, HPACKError
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.http2.hpack import HeaderBlockError, HeaderDecoder, HeaderListTooLarge

FIELDS = st.lists(
    st.tuples(
        st.sampled_from((b":path", b"te", b"x-mq-request-id", b"a")) | st.binary(max_size=40), st.binary(max_size=300)
    ),
    max_size=12,
)
LITERAL = b"\x40\x01a\x01b"


@given(st.lists(FIELDS, max_size=8), st.booleans())
def test_every_block_of_a_connection_is_read_as_the_library_reads_it(
    blocks: list[list[tuple[bytes, bytes]]], huffman: bool
) -> None:
    encoder, library, ours = Encoder(), Decoder(1 << 20), HeaderDecoder(1 << 20)
    for fields in blocks:
        block = encoder.encode(fields, huffman=huffman)
        assert ours.decode(block) == [tuple(each) for each in library.decode(block, raw=True)] == fields


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_any_bytes_are_read_as_the_library_reads_them_or_refused(blocks: list[bytes]) -> None:
    library, ours = Decoder(1 << 20), HeaderDecoder(1 << 20)
    for block in blocks:
        try:
            expected = [tuple(each) for each in library.decode(block, raw=True)]
        except (HPACKError, UnicodeDecodeError, OverflowError, IndexError):
            return
        try:
            found = ours.decode(block)
        except HeaderBlockError as error:
            if "more than 32 bits" not in str(error):
                raise
            return
        assert found == expected


def test_old_entries_leave_a_full_table() -> None:
    decoder = HeaderDecoder(1 << 20)
    for _ in range(10):
        decoder.decode(b"\x40\x01a\x7f\x81\x07" + bytes(1024))
    assert decoder.decode(b"\xbe") == [(b"a", bytes(1024))]
    with pytest.raises(HeaderBlockError, match="that the table lacks"):
        decoder.decode(b"\xc2")


def test_a_smaller_table_keeps_fewer_entries() -> None:
    decoder = HeaderDecoder(1 << 20)
    decoder.decode(LITERAL)
    assert decoder.decode(b"\x20" + LITERAL) == [(b"a", b"b")]
    with pytest.raises(HeaderBlockError, match="that the table lacks"):
        decoder.decode(b"\xbe")


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (b"\x80", "entry 0"),
        (b"\x3f\xe2\x1f", "a table of 4097 octets"),
        (LITERAL + b"\x20", "a new size of the table after a field"),
        (b"\xff\xff\xff\xff\xff\xff\x7f", "more than 32 bits"),
        *((LITERAL[:end], "ends within a field") for end in range(1, len(LITERAL))),
    ],
)
def test_a_malformed_block_is_refused(block: bytes, reason: str) -> None:
    with pytest.raises(HeaderBlockError, match=reason):
        HeaderDecoder(1 << 20).decode(block)


def test_a_list_is_as_long_as_its_limit_at_most() -> None:
    assert HeaderDecoder(34).decode(LITERAL) == [(b"a", b"b")]
    with pytest.raises(HeaderListTooLarge):
        HeaderDecoder(33).decode(LITERAL)


def test_indexed_fields_count_each_time() -> None:
    decoder = HeaderDecoder(100)
    decoder.decode(LITERAL)
    with pytest.raises(HeaderListTooLarge):
        decoder.decode(b"\xbe" * 3)


HEADS = st.lists(
    st.sampled_from((b"\x82", b"\x86", b"\x04\x01/", b"\x00\x01n\x01v", b"\x0f\x30\x01v", b"\xbe")), max_size=8
)
CHANGES = st.sampled_from((b"", b"", b"", LITERAL, b"\x40\x01c\x01d", b"\x20", b"\x3f\xe1\x1f"))
TAILS = st.sampled_from((b"\x00\x01x\x01y", b"\x00\x01x\x02yz", b"\x82", b""))


@given(HEADS, st.lists(st.tuples(CHANGES, st.integers(0, 8), TAILS), max_size=12))
def test_blocks_that_begin_alike_are_read_as_the_library_reads_them(
    head: list[bytes], blocks: list[tuple[bytes, int, bytes]]
) -> None:
    library, ours = Decoder(1 << 20), HeaderDecoder(1 << 20)
    for change, kept, tail in blocks:
        size = change if change[:1] in (b"\x20", b"\x3f") else b""
        block = size + b"".join(head[:kept]) + (b"" if size else change) + tail
        try:
            expected = [tuple(each) for each in library.decode(block, raw=True)]
        except HPACKError:
            with pytest.raises(HeaderBlockError):
                ours.decode(block)
            return
        assert ours.decode(block) == expected


def test_the_limit_counts_the_fields_with_which_blocks_begin() -> None:
    block, longer = b"\x00\x01a" + b"\x40" + bytes(64), b"\x00\x01b\x01c"
    decoder = HeaderDecoder(64 + 33 + 20)
    for _ in range(3):
        assert decoder.decode(block) == [(b"a", bytes(64))]
    with pytest.raises(HeaderListTooLarge):
        decoder.decode(block + longer)


def test_a_change_of_the_table_changes_what_blocks_that_begin_alike_mean() -> None:
    decoder = HeaderDecoder(1 << 20)
    decoder.decode(LITERAL)
    for tail in (b"\x82", b"\x84", b"\x86"):
        assert decoder.decode(b"\xbe" + tail)[0] == (b"a", b"b")
    decoder.decode(b"\x40\x01c\x01d")
    assert decoder.decode(b"\xbe\x82")[0] == (b"c", b"d")
