"""Digests of many contents at once are those that the definition gives for each."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.pipeline.columns import integers
from escrowmq.pipeline.content_digests import SHORT, constants, digests

CONTENTS = st.lists(
    st.tuples(st.binary(max_size=40) | st.integers(SHORT - 9, SHORT + 9).map(bytes), st.integers(0, (1 << 32) - 1)),
    max_size=12,
)


def defined(content: bytes, seed: int) -> int:
    """Return the digest by its definition."""
    if len(content) > SHORT:
        return crc32(content, seed)
    factors: list[int] = constants().tolist()
    whole = len(content) * factors[-2] + seed * factors[-1]
    for place in range(0, len(content), 4):
        whole += int.from_bytes(content[place : place + 4], "little") * factors[place // 4]
    return whole % (1 << 64) >> 32


def of(contents: list[tuple[bytes, int]], gap: bytes = b"") -> list[int]:
    """Return the digests of contents that lie one after another, with `gap` between them."""
    size = integers([len(content) for content, _ in contents])
    at = np.cumsum(size + len(gap)) - size - len(gap)
    data = np.frombuffer(gap.join(content for content, _ in contents), np.uint8)
    found: list[int] = digests(data, at, size, integers([seed for _, seed in contents])).tolist()
    return found


@given(CONTENTS, st.binary(max_size=3))
def test_digests_are_those_of_the_definition(contents: list[tuple[bytes, int]], gap: bytes) -> None:
    assert of(contents, gap) == [defined(content, seed) for content, seed in contents]


@given(st.binary(min_size=1, max_size=2 * SHORT), st.data())
def test_a_changed_byte_changes_the_digest(content: bytes, draw: st.DataObject) -> None:
    other = bytearray(content)
    other[draw.draw(st.integers(0, len(content) - 1))] ^= draw.draw(st.integers(1, 255))
    one, two = of([(content, 7), (bytes(other), 7)])
    assert one != two


def test_zeros_at_the_end_and_the_seed_change_the_digest() -> None:
    found = of([(b"a", 1), (b"a\0", 1), (b"a" + bytes(8), 1), (b"a", 2), (b"", 1), (b"", 2)])
    assert len(set(found)) == 6
