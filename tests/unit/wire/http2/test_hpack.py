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
