"""Messages are cut out of DATA wherever it is divided, and bounded."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.rocketmq.grpc.framing import LARGEST, MessageReader, gunzipped, prefixed, timeout_ms
from escrowmq.wire.rocketmq.grpc.status import GrpcFault, GrpcStatus


@given(st.lists(st.binary(max_size=30), max_size=5), st.lists(st.integers(0, 200), max_size=8))
def test_messages_are_read_whatever_the_pieces(found: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(prefixed, found))
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader, got = MessageReader(b""), []
    for start, end in pairwise(places):
        got += reader.feed(data[start:end])
    assert got == found
    assert reader.size == 0


def test_an_incomplete_message_is_kept_until_it_is_cleared() -> None:
    reader = MessageReader(b"identity")
    assert reader.feed(prefixed(b"abc")[:-1]) == []
    assert reader.size == 7
    reader.clear()
    assert reader.size == 0
    assert reader.feed(prefixed(b"x")) == [b"x"]


@pytest.mark.rule("FAIR-3")
def test_a_message_beyond_the_limit_is_refused_by_its_length() -> None:
    with pytest.raises(GrpcFault) as caught:
        MessageReader(b"").feed(struct.pack(">BI", 0, LARGEST + 1))
    assert caught.value.status is GrpcStatus.RESOURCE_EXHAUSTED


def test_a_compressed_message_is_read_if_the_call_says_how() -> None:
    data = gzip.compress(b"hello")
    framed = struct.pack(">BI", 1, len(data)) + data
    assert MessageReader(b"gzip").feed(framed) == [b"hello"]
    with pytest.raises(GrpcFault):
        MessageReader(b"").feed(framed)
    with pytest.raises(GrpcFault) as caught:
        MessageReader(b"zstd")
    assert caught.value.status is GrpcStatus.UNIMPLEMENTED


@pytest.mark.rule("FAIR-3")
def test_a_small_message_that_expands_beyond_the_limit_is_refused() -> None:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = compressor.compress(bytes(LARGEST + 1)) + compressor.flush()
    with pytest.raises(GrpcFault) as caught:
        gunzipped(bomb)
    assert caught.value.status is GrpcStatus.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("data", [b"", b"none", gzip.compress(b"hello", mtime=0)[:-1]])
def test_malformed_compression_is_a_fault(data: bytes) -> None:
    with pytest.raises(GrpcFault):
        gunzipped(data)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(b"", None), (b"1S", 1000), (b"20m", 20), (b"3M", 180_000), (b"1H", 3_600_000), (b"5u", 1), (b"1500000n", 1)],
)
def test_timeouts(value: bytes, expected: int | None) -> None:
    assert timeout_ms(value) == expected


@pytest.mark.parametrize("value", [b"S", b"1", b"1x", b"-1S", b"123456789S", "١S".encode()])
def test_malformed_timeouts_are_faults(value: bytes) -> None:
    with pytest.raises(GrpcFault):
        timeout_ms(value)


@pytest.mark.rule("FAIR-2")
def test_a_message_in_single_octets_is_kept_without_overhead() -> None:
    reader, size = MessageReader(b""), 50_000
    tracemalloc.start()
    for octet in prefixed(bytes(size))[:-1]:
        reader.feed(bytes((octet,)))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reader.size == size + 4
    assert held < 2 * size


def test_many_messages_in_one_piece_are_read_without_copies_of_the_rest() -> None:
    assert MessageReader(b"").feed(prefixed(b"") * 200_000) == [b""] * 200_000
