"""The sizes of AMQP 1.0 bodies, computed column-wise, equal those of the translation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.blocks import encode_block
from escrowmq.pipeline.blocks import look_up
from escrowmq.pipeline.sections import SECTIONS, body_sizes
from escrowmq.wire.amqp10.codec.sections import encode_section
from escrowmq.wire.amqp10.publication import PROTOCOL
from escrowmq.wire.amqp10.translation import to_neutral

ENVELOPE = Envelope("e", "k", protocol=PROTOCOL)

sized = st.sampled_from([0, 1, 240, 260, 70_000])
before = st.tuples(
    st.none() | sized.map(lambda size: encode_section(0x72, {"x-a": "v" * size})),
    st.none() | sized.map(lambda size: encode_section(0x73, ["m" * size])),
    st.none() | sized.map(lambda size: encode_section(0x74, {"k": "v" * size})),
)
body: Any = st.one_of(
    sized.map(lambda size: encode_section(0x75, b"b" * size)),
    sized.map(lambda size: encode_section(0x75, b"b" * size) * 2),
    sized.map(lambda size: encode_section(0x77, "b" * size)),
    st.just(encode_section(0x76, [1, 2])),
    st.just(encode_section(0x77, None)),
    st.just(encode_section(0x77, True)),
    st.just(encode_section(0x77, 2**40)),
    st.just(b""),
)


def content_of(parts: tuple[bytes | None, ...], end: bytes) -> bytes:
    return b"".join(part or b"" for part in parts) + end


def sizes(contents: list[bytes], gap: bytes = b"") -> list[int]:
    lengths = np.array([len(content) for content in contents], np.int64)
    begins = len(gap) + np.cumsum(lengths) - lengths
    found: list[int] = body_sizes(np.frombuffer(gap + b"".join(contents), np.uint8), begins, lengths).tolist()
    return found


@pytest.mark.rule("MSG-4")
@given(st.lists(st.builds(content_of, before, body), min_size=1, max_size=5), st.binary(max_size=3))
def test_sizes_are_those_of_the_translated_bodies(contents: list[bytes], gap: bytes) -> None:
    if not gap + b"".join(contents):
        return
    assert sizes(contents, gap) == [len(to_neutral(ENVELOPE, content).body) for content in contents]


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4))
def test_any_octets_have_a_size(contents: list[bytes]) -> None:
    assert all(0 <= size <= len(content) for size, content in zip(sizes(contents), contents, strict=True))


@pytest.mark.parametrize("content", [b"garbage", b"\x00\x53\x72\xc1\xff", b"\x00\x53\x75", b"\x00\x53"])
def test_malformed_content_counts_as_a_whole(content: bytes) -> None:
    assert sizes([content]) == [len(content)]


def test_a_block_has_the_sizes_of_its_bodies() -> None:
    contents = [encode_section(0x74, {"k": "v"}) + encode_section(0x75, b"body"), encode_section(0x75, b"")]
    data = b"".join(encode_block(77, ENVELOPE, contents))
    block = look_up(lambda lsn, length: data[lsn : lsn + length], 0)
    assert block.bodies["size"].tolist() == [4, 0]


def test_the_number_of_the_form_is_that_of_the_protocol() -> None:
    assert SECTIONS == PROTOCOL
