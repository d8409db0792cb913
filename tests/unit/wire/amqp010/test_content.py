"""Stored content: every part, and octets that no endpoint has stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp010.content import TransferContent, extents, unpack

PROPERTIES = b"\x00\x00\x00\x04\x04\x03\x00\x00"
CONTENTS = st.builds(
    TransferContent,
    st.sampled_from([b"", PROPERTIES]),
    st.binary(max_size=9),
    st.none() | st.integers(0, 2**64 - 1),
    st.none() | st.integers(0, 2**64 - 1),
    st.booleans(),
)


@given(CONTENTS)
def test_a_content_is_read_as_it_was_packed(content: TransferContent) -> None:
    packed = content.pack()
    assert unpack(packed) == content
    start, body = extents(packed)
    assert packed[start:body] == (content.properties or bytes(4))
    assert packed[body:] == content.body


def test_a_content_that_ends_early_is_refused() -> None:
    whole = TransferContent(PROPERTIES, b"", 1, 2).pack()
    for end in range(len(whole)):
        with pytest.raises(ValueError, match="content"):
            unpack(whole[:end])


def test_an_unknown_flag_is_refused() -> None:
    with pytest.raises(ValueError, match="no message"):
        unpack(b"\x08" + bytes(20))


@given(st.binary(max_size=60))
def test_any_octets_are_read_or_refused(octets: bytes) -> None:
    try:
        found = unpack(octets)
    except ValueError:
        return
    assert found.pack() == octets
