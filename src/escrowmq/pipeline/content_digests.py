"""Digests of the contents of many messages at once, by which the audit compares copies of messages.

A content of at most SHORT bytes is divided into words of 32 bits. Each is multiplied by a constant of its place, and
the digest is the upper half of the sum modulo 2 ** 64. Two contents have the same digest with a probability of 2 ** -32
(multilinear hashing: Lemire and Kaser, "Strongly universal string hashing is fast"). Numpy computes it for all contents
of one length together, in a tenth of the time of a CRC-32 for each. A longer content has a CRC-32.
"""

from __future__ import annotations

from functools import cache
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from escrowmq.pipeline.columns import Bytes, Ints, take

Words = npt.NDArray[np.uint64]

SHORT: Final = 1024
"""The longest content in bytes for which words are summed."""
_WORD: Final = 8
"""The last word of a content is cleared in units of this many bytes."""
_FULL: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
_HALF: Final = np.uint64(32)


@cache
def constants() -> Words:
    """Return the constants: one for each word, then one for the size, and one for the seed (SplitMix64)."""
    state = np.arange(1, SHORT // 4 + 3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: Words = state ^ (state >> np.uint64(31))
    return found


def digests(data: Bytes, at: Ints, size: Ints, seed: Ints) -> Ints:
    """Return the digest of each content, a number of 32 bits.

    Args:
        data: the bytes that contain the contents.
        at: the offset of each content.
        size: its length in bytes.
        seed: a number of 32 bits that the digest depends on as well.
    """
    found = np.zeros(len(at), np.int64)
    long = size > SHORT
    for i in np.flatnonzero(long).tolist():
        found[i] = crc32(data.data[int(at[i]) : int(at[i] + size[i])], int(seed[i]))
    short = np.flatnonzero(~long)
    count = (size[short] + _WORD - 1) // _WORD
    if len(short) and int((at[short] + count * _WORD).max()) > len(data):
        data = np.concatenate((data, np.zeros(_WORD, np.uint8)))
    order = np.argsort(count.astype(np.int16), kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(count[order])) + 1):
        if len(group):
            some = short[group]
            found[some] = _sums(data, at[some], size[some], seed[some], int(count[group[0]]))
    return found


def _sums(data: Bytes, at: Ints, size: Ints, seed: Ints, count: int) -> Ints:
    """Return the digests of contents of `count` times _WORD bytes. The last of these may be incomplete."""
    factors = constants()
    whole = size.astype(np.uint64) * factors[-2] + seed.astype(np.uint64) * factors[-1]
    if count:
        words = take(data, at, np.dtype(f"V{_WORD * count}")).view("<u8").reshape(len(at), count)
        words[:, -1] &= _FULL >> ((count * _WORD - size).astype(np.uint64) * np.uint64(8))
        whole += np.einsum("ij,j->i", words.view("<u4"), factors[: 2 * count])
    found: Ints = (whole >> _HALF).astype(np.int64)
    return found
