"""Message annotations are added without a change of the bare message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp10.annotations import annotated
from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.encoding import encode
from escrowmq.wire.amqp10.codec.sections import encode_section, split_head
from escrowmq.wire.amqp10.codec.types import Symbol
from tests.unit.wire.amqp10.codec.proton import MESSAGE

CONTENT = MESSAGE[split_head(MESSAGE)[1] :]
BARE = CONTENT[sections.annotations_at(CONTENT)[1] :]


@pytest.mark.parametrize("size", [1, 240, 300])
@pytest.mark.parametrize("own", [{}, {Symbol("x-a"): 1}, {Symbol("x-a"): "v" * 300, Symbol("x-b"): 2}])
def test_annotations_are_added_at_every_size(own: dict[object, object], size: int) -> None:
    content = encode_section(sections.MESSAGE_ANNOTATIONS, own) + BARE
    result = annotated(content, {encode(Symbol("x-new")): encode("n" * size)})
    assert sections.message_annotations(result) == {**own, Symbol("x-new"): "n" * size}
    assert result.endswith(BARE)


def test_a_message_without_annotations_gets_a_section() -> None:
    assert sections.message_annotations(annotated(BARE, {encode(Symbol("x")): encode(1)})) == {"x": 1}


@given(st.binary(max_size=40).map(lambda data: b"\x00\x53\x72" + data) | st.binary(max_size=40))
def test_malformed_annotations_are_left_as_they_are(content: bytes) -> None:
    result = annotated(content, {encode(Symbol("x")): encode(1)})
    assert result == content or b"\xa3\x01x" in result
