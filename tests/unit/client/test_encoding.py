"""The broker's own codec reads encoded publishes back unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.client.encoding import HEADS, Encoder, Middle, pieces
from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.frames import decode_header, decode_method, method_frame, next_frame
from escrowmq.wire.amqp091.properties import NO_PROPERTIES, Properties
from escrowmq.wire.amqp091.spec import BasicPublish

FRAME_MAX = 4096
ROOM = FRAME_MAX - 8
Seen = tuple[BasicPublish, bytes, bytes]

bodies_of_any_size = st.lists(
    st.one_of(st.binary(max_size=20), st.sampled_from([b"", bytes(ROOM), bytes(ROOM + 1), bytes(3 * ROOM)])),
    min_size=1,
    max_size=12,
)


def read(data: bytes, channel: int) -> list[Seen]:
    """Decode the publishes in `data`, frame by frame."""
    seen: list[Seen] = []
    at = 0

    def frame(kind: int) -> bytes:
        nonlocal at
        found = next_frame(data, at, FRAME_MAX)
        assert found is not None
        assert found[:2] == (kind, channel)
        at = found[3]
        return found[2]

    while at < len(data):
        method = decode_method(frame(codes.FRAME_METHOD))
        assert isinstance(method, BasicPublish)
        size, props = decode_header(frame(codes.FRAME_HEADER))
        body = b""
        while len(body) < size:
            body += frame(codes.FRAME_BODY)
        seen.append((method, props, body))
    return seen


def test_a_single_publish_is_encoded() -> None:
    encoder = Encoder(7, FRAME_MAX)
    props = Properties(delivery_mode=2, headers={"a": 1}).encode()
    heads = encoder.heads("e", "k", props, True)
    for body in (b"", b"x", bytes(ROOM), bytes(ROOM + 1)):
        assert read(encoder.one(heads, body), 7) == [(BasicPublish("e", "k", True), props, body)]


@given(bodies_of_any_size)
def test_publishes_that_are_alike_equal_single_ones_in_sequence(bodies: list[bytes]) -> None:
    encoder = Encoder(1, FRAME_MAX)
    heads = encoder.heads("e", "k", NO_PROPERTIES, False)
    seen = read(encoder.alike(heads, bodies, list(map(len, bodies))), 1)
    assert seen == [(BasicPublish("e", "k"), NO_PROPERTIES, body) for body in bodies]


@given(st.lists(st.binary(min_size=3, max_size=3), min_size=1))
def test_publishes_of_one_size_equal_single_ones_in_sequence(bodies: list[bytes]) -> None:
    encoder = Encoder(1, FRAME_MAX)
    heads = encoder.heads("", "k", NO_PROPERTIES, False)
    assert [body for _, _, body in read(encoder.alike(heads, bodies, [3] * len(bodies)), 1)] == bodies


@given(bodies_of_any_size)
def test_mixed_publishes_have_their_own_addresses(bodies: list[bytes]) -> None:
    encoder = Encoder(1, FRAME_MAX)
    keys = [f"k{i % 3}" for i in range(len(bodies))]
    heads = [encoder.heads("e", key, NO_PROPERTIES, False) for key in keys]
    seen = read(encoder.mixed(heads, bodies, list(map(len, bodies))), 1)
    assert [(method.routing_key, body) for method, _, body in seen] == list(zip(keys, bodies, strict=True))


def test_a_header_is_one_frame() -> None:
    encoder = Encoder(1, 4096)
    assert encoder.heads("e", "k", bytes(4076), False).middle.header_frame(0).endswith(bytes(4076) + b"\xce")
    with pytest.raises(ValueError, match="properties and headers take 4077 bytes; at most 4076 fit into a frame"):
        encoder.heads("e", "k", bytes(4077), False)


def test_heads_are_cached_with_a_limit() -> None:
    encoder = Encoder(1, 0)
    assert encoder.heads("e", "k", b"", False) is encoder.heads("e", "k", b"", False)
    assert encoder.heads("e", "k", b"", False) is not encoder.heads("e", "k", b"", True)
    for i in range(20_000):
        encoder.heads("e", str(i), b"", False)
        encoder.heads(str(i), "k", i.to_bytes(2, "big"), False)
    assert len(encoder._heads) <= HEADS
    assert len(encoder._middles) <= 256
    assert len(encoder._templates) <= 256
    middle = Middle(1, b"")
    for size in range(1, 10_000):
        assert middle[size] == middle.header_frame(size) + b"\x03\x00\x01" + size.to_bytes(4, "big")
    assert len(middle) <= 4096


@given(st.text(max_size=20), st.text(max_size=90), st.booleans())
def test_a_method_has_the_octets_of_its_encoder(exchange: str, routing_key: str, mandatory: bool) -> None:
    expected = method_frame(3, BasicPublish(exchange, routing_key, mandatory))
    encoder = Encoder(3, 0)
    encoder.heads(exchange, "other", b"", mandatory)
    assert encoder.heads(exchange, routing_key, b"", mandatory).method == expected


def test_a_routing_key_that_is_too_long_is_refused() -> None:
    assert Encoder(1, 0).heads("e", "k" * 255, b"", False).method.endswith(b"k\x00\xce")
    with pytest.raises(ValueError, match="0 <= number <= 255"):
        Encoder(1, 0).heads("e", "k" * 256, b"", False)


@given(st.lists(st.integers(0, 500), min_size=1), st.integers(1, 1000))
def test_pieces_are_whole_and_bounded(sizes: list[int], most: int) -> None:
    found = list(pieces(sizes, most))
    assert [at for start, end in found for at in range(start, end)] == list(range(len(sizes)))
    for start, end in found:
        assert end > start
        assert end - start == 1 or sum(sizes[start:end]) <= most
