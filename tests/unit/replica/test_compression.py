"""Compression of the data of entries: data that is read back, and bytes that are refused."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.replica.compression import AS_IS, LEAST, ZSTD, compress, decompress
from escrowmq.replica.errors import EntryDamaged

_MOST = 900_000


@given(st.binary(max_size=300), st.integers(1, 200))
def test_data_is_read_back(part: bytes, times: int) -> None:
    data = part * times
    encoding, packed = compress(data)
    assert decompress(encoding, memoryview(packed), _MOST) == data
    assert len(packed) <= len(data)


def test_similar_messages_become_shorter() -> None:
    data = b"".join(b'{"order": %d, "customer": "c-%d", "state": "paid"}' % (i, i * 7919 % 1000) for i in range(1000))
    encoding, packed = compress(data)
    assert encoding == ZSTD
    assert len(packed) < len(data) / 3


@pytest.mark.parametrize("data", [b"a" * (LEAST - 1), random.Random(1).randbytes(100_000)])
def test_short_data_and_data_without_any_pattern_are_left_as_they_are(data: bytes) -> None:
    assert compress(data) == (AS_IS, data)


def test_data_for_more_than_an_entry_is_refused_before_it_takes_memory() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 30))
    with pytest.raises(EntryDamaged, match="1073741824 bytes"):
        decompress(ZSTD, bomb, _MOST)


def test_data_that_does_not_say_its_size_is_refused() -> None:
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(b"a" * LEAST)
    with pytest.raises(EntryDamaged):
        decompress(ZSTD, unsized, _MOST)


def test_bytes_behind_the_data_are_refused() -> None:
    _, packed = compress(b"a" * LEAST)
    with pytest.raises(EntryDamaged):
        decompress(ZSTD, packed + b"x", _MOST)


@given(st.data())
def test_changed_data_is_read_or_refused(data: st.DataObject) -> None:
    _, packed = compress(b"0123456789abcdef" * 300)
    changed = bytearray(packed)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    changed = changed[: data.draw(st.integers(0, len(changed)))]
    try:
        assert len(decompress(ZSTD, bytes(changed), _MOST)) <= _MOST
    except EntryDamaged:
        return


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        decompress(ZSTD, b"\x28\xb5\x2f\xfd" + data, _MOST)
    except EntryDamaged:
        return


def test_threads_compress_at_the_same_time() -> None:
    all_data = [bytes([i]) * 200_000 + bytes(range(256)) * 50 for i in range(40)]
    with ThreadPoolExecutor(8) as threads:
        packed = list(threads.map(compress, all_data))
        assert list(threads.map(lambda each: decompress(each[0], each[1], _MOST), packed)) == all_data
