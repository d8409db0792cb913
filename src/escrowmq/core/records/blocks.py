"""Blocks: message content in records. A block has one envelope, then lengths, then contents.

A block is part of a record and is addressed by its own LSN. All numbers are little-endian. Decoders do not check the
bytes again, because the journal's checksum vouches for them.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from escrowmq.core.messages.envelope import Envelope

BLOCK: Final = struct.Struct("<IQII")  # length of the rest of the block, time in ms, count, envelope length
_U32: Final = struct.Struct("<I")
_JOINED: Final = 1 << 16  # bytes of contents up to which joining them is cheaper than a part for each


class Block(NamedTuple):
    """A decoded block."""

    time: int
    envelope: Envelope
    contents: list[bytes]


def encode_block(time: int, envelope: Envelope, contents: Sequence[bytes]) -> list[bytes]:
    """Return the parts of a block, ready to be joined."""
    head = envelope.encode()
    count = len(contents)
    if count == 1:
        content = contents[0]
        return [BLOCK.pack(20 + len(head) + len(content), time, 1, len(head)), head, _U32.pack(len(content)), content]
    lengths = array("I", map(len, contents))
    total = sum(lengths)
    fixed = BLOCK.pack(16 + len(head) + 4 * count + total, time, count, len(head))
    if total <= _JOINED:
        return [fixed, head, lengths.tobytes(), b"".join(contents)]
    return [fixed, head, lengths.tobytes(), *contents]


def decode_block(
    data: bytes | memoryview,
    at: int = 0,
    first: int = 0,
    count: int | None = None,
    decode: Callable[[bytes], Envelope] = Envelope.decode,
) -> Block:
    """Decode the block at offset `at`; with `first` and `count`, only these of its contents.

    `decode` turns the encoded envelope into an envelope.
    """
    length, time, total, head = BLOCK.unpack_from(data, at)
    at += BLOCK.size
    envelope = decode(bytes(data[at : at + head]))
    at += head
    if total == 1:
        wanted = first == 0 and count != 0
        return Block(time, envelope, [bytes(data[at + 4 : at + length - 16 - head])] if wanted else [])
    lengths = array("I", bytes(data[at : at + 4 * total]))
    at += 4 * total + sum(lengths[:first])
    stop = total if count is None else first + count
    whole = data if isinstance(data, bytes) else bytes(data)
    bounds = pairwise(accumulate(lengths[first:stop], initial=at))
    return Block(time, envelope, [whole[begin:end] for begin, end in bounds])
