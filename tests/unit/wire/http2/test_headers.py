"""Header blocks: responses that any decoder reads, and requests that are checked."""

from __future__ import annotations

import contextlib

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.http2.frames import ErrorCode, Http2Fault
from escrowmq.wire.http2.headers import STATUS_200, HeaderReader, check_request, check_trailers, encode
from tests.unit.wire.http2.peer import REQUEST

FIELDS = st.lists(st.tuples(st.binary(min_size=1, max_size=200), st.binary(max_size=400)), max_size=8)


@given(FIELDS)
def test_an_encoded_block_is_read_by_another_decoder_without_a_table(fields: list[tuple[bytes, bytes]]) -> None:
    decoder = Decoder()
    for _ in range(2):
        assert [tuple(each) for each in decoder.decode(STATUS_200 + encode(fields), raw=True)] == [
            (b":status", b"200"),
            *fields,
        ]
    assert len(decoder.header_table.dynamic_entries) == 0


@given(st.lists(FIELDS, max_size=4))
def test_blocks_of_another_encoder_are_read_in_order(blocks: list[list[tuple[bytes, bytes]]]) -> None:
    encoder, reader = Encoder(), HeaderReader(100_000)
    for fields in blocks:
        assert reader.decode(encoder.encode(fields)) == fields


def test_a_list_beyond_the_limit_and_a_broken_block_are_faults() -> None:
    with pytest.raises(Http2Fault) as caught:
        HeaderReader(50).decode(encode([(b"a", b"b" * 50)]))
    assert caught.value.code is ErrorCode.ENHANCE_YOUR_CALM
    with pytest.raises(Http2Fault) as caught:
        HeaderReader(50).decode(b"\xff")
    assert caught.value.code is ErrorCode.COMPRESSION_ERROR


@given(st.binary(max_size=100))
def test_any_block_is_read_or_refused(block: bytes) -> None:
    with contextlib.suppress(Http2Fault):
        HeaderReader(1000).decode(block)


def test_a_request_and_trailers_are_accepted() -> None:
    check_request(REQUEST, 1)
    check_trailers([(b"grpc-status", b"0")], 1)


@pytest.mark.parametrize("missing", range(3))
def test_a_request_needs_method_scheme_and_path(missing: int) -> None:
    with pytest.raises(Http2Fault) as caught:
        check_request(REQUEST[:missing] + REQUEST[missing + 1 :], 7)
    assert (caught.value.stream, caught.value.code) == (7, ErrorCode.PROTOCOL_ERROR)
