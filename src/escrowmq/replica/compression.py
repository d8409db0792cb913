"""Compression of the data of entries. An engine sends them over the network to all its nodes and to all standbys, and
stores them on all its nodes.
"""

from __future__ import annotations

from typing import Final

import zstandard

from escrowmq.replica.errors import EntryDamaged

AS_IS: Final = 0
ZSTD: Final = 1
ENCODINGS: Final = frozenset({AS_IS, ZSTD})
LEAST: Final = 4096
"""Shorter data is left as it is: the reply to a single transaction waits for it, and it is cheap anyway."""
_LEVEL: Final = 1
_LEAST_GAIN: Final = 8
"""Data that does not become shorter by one part in so many is left as it is, because reading it is cheaper then."""


def compress(data: bytes) -> tuple[int, bytes]:
    """Return the encoding that suits the data, and the data in it."""
    if len(data) < LEAST:
        return AS_IS, data
    short = zstandard.ZstdCompressor(level=_LEVEL).compress(data)  # one for each call, since threads cannot share it
    return (ZSTD, short) if len(short) <= len(data) - len(data) // _LEAST_GAIN else (AS_IS, data)


def decompress(encoding: int, data: bytes | memoryview, most: int) -> bytes:
    """Return the data that was encoded. Compressed data must be for at most `most` bytes.

    Raises EntryDamaged if it is not intact, or for more; the memory for that is not allocated.
    """
    if encoding == AS_IS:
        return bytes(data)
    try:
        size = zstandard.frame_content_size(data)
        if not 0 < size <= most:
            raise EntryDamaged(f"the compressed data of an entry is for {size} bytes, not for 1 to {most}")
        return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise EntryDamaged(f"the data of an entry cannot be decompressed: {error}") from None
