"""Sections of messages: their extents, the header, and the values in them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.encoding import CodecError
from escrowmq.wire.amqp10.codec.sections import Data, Header, Layout, Properties, Sequence, encode_section
from escrowmq.wire.amqp10.codec.types import Described, Symbol, ULong, Uuid
from tests.unit.wire.amqp10.codec.proton import MESSAGE, PLAIN

HEADER = bytes.fromhex("005370c00c0541500770000009c4415202")
ANNOTATIONS = encode_section(sections.MESSAGE_ANNOTATIONS, {Symbol("x-opt-a"): 1})
PROPERTIES = bytes.fromhex("005373c00501a1026d31")
APPLICATION = encode_section(sections.APPLICATION_PROPERTIES, {"k": "v"})
BODY = encode_section(sections.DATA, b"body")
FOOTER = encode_section(sections.FOOTER, {})


def test_the_head_of_a_message_of_proton_is_split_off() -> None:
    header, at = sections.split_head(MESSAGE)
    assert sections.decode_header(header) == Header(True, 7, 2500, True, 2)
    assert MESSAGE[at : at + 3] == b"\x00\x53\x72"


def test_a_message_of_proton_is_read_whole() -> None:
    content = MESSAGE[sections.split_head(MESSAGE)[1] :]
    assert sections.message_annotations(content) == {Symbol("x-opt-q"): 4}
    assert sections.properties(content) == Properties(
        "m-1", b"u", "to", "s", "r", Uuid(bytes(16)), "text/plain", "utf-8", 2000, 1000, "g", 3, "rg"
    )
    assert sections.application_properties(content) == {"a": 1, "b": "c"}
    assert sections.body(content) == Described(ULong(sections.VALUE), {"k": [1, 2.5]})


def test_a_plain_message_of_proton() -> None:
    header, at = sections.split_head(PLAIN)
    assert (header.hex(), at) == ("00537045", 4)
    assert sections.decode_header(header) == Header()
    assert sections.properties(PLAIN[at:]) == Properties()
    assert sections.body(PLAIN[at:]) == Data([b"hello"])


@pytest.mark.parametrize("header", [b"", HEADER, bytes.fromhex("00a310") + b"amqp:header:list\x45"])
@pytest.mark.parametrize("annotations", [b"", encode_section(sections.DELIVERY_ANNOTATIONS, {Symbol("x"): 1})])
@pytest.mark.parametrize("content", [BODY, ANNOTATIONS + BODY, b"", b"\x01garbage", bytes.fromhex("00a30b")])
def test_the_content_begins_after_header_and_delivery_annotations(
    header: bytes, annotations: bytes, content: bytes
) -> None:
    if content == bytes.fromhex("00a30b"):
        with pytest.raises(CodecError):
            sections.split_head(header + annotations + content)
        return
    assert sections.split_head(header + annotations + content) == (header, len(header + annotations))


@pytest.mark.parametrize("payload", [HEADER[:9], HEADER[:3], HEADER + HEADER, b"\x00\x53\x71", b"\x00\x53\x6f\x45"])
def test_a_malformed_head_is_an_error(payload: bytes) -> None:
    with pytest.raises(CodecError):
        sections.split_head(payload)


def test_the_layout_has_the_extent_of_every_section() -> None:
    parts = [ANNOTATIONS, PROPERTIES, APPLICATION, BODY + BODY, FOOTER]
    found = sections.layout(b"".join(parts))
    content = b"".join(parts)
    assert [content[slice(*extent)] for extent in found if extent is not None] == parts
    assert sections.layout(b"") == Layout(None, None, None, None, None)


@pytest.mark.parametrize(
    "content",
    [
        HEADER + BODY,
        BODY + ANNOTATIONS,
        PROPERTIES + PROPERTIES,
        FOOTER + BODY,
        BODY + encode_section(sections.SEQUENCE, []),
        encode_section(sections.VALUE, 1) * 2,
        BODY[:-1],
        b"x",
        b"\x00\x53\x79\x40",
    ],
)
def test_a_wrong_order_of_sections_is_an_error(content: bytes) -> None:
    with pytest.raises(CodecError):
        sections.layout(content)


def test_bodies_of_several_sections() -> None:
    assert sections.body(BODY + BODY) == Data([b"body", b"body"])
    assert sections.body(encode_section(sections.SEQUENCE, [1]) * 2) == Sequence([[1], [1]])
    assert sections.body(ANNOTATIONS) is None
    assert sections.body(encode_section(sections.VALUE, "v")) == Described(ULong(sections.VALUE), "v")


@pytest.mark.parametrize(
    "content", [encode_section(sections.DATA, "text"), encode_section(sections.SEQUENCE, b"no"), b"\x00\x53\x75"]
)
def test_a_body_of_the_wrong_type_is_an_error(content: bytes) -> None:
    with pytest.raises(CodecError):
        sections.body(content)


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (sections.application_properties, encode_section(0x74, [])),
        (sections.message_annotations, encode_section(0x72, None)),
    ],
)
def test_a_map_section_that_is_no_map_is_an_error(read: Callable[[bytes], object], content: bytes) -> None:
    with pytest.raises(CodecError, match="must be a map"):
        read(content)


@pytest.mark.parametrize(
    ("header", "octets"),
    [
        (Header(), ""),
        (Header(durable=True), "005370c0020141"),
        (Header(priority=0), "005370c00402405000"),
        (Header(True, 9, 1000, True, 3), "005370c00c0541500970000003e8415203"),
    ],
)
def test_headers_have_their_smallest_form(header: Header, octets: str) -> None:
    assert sections.encode_header(header).hex() == octets
    assert sections.decode_header(sections.encode_header(header)) == header


@pytest.mark.parametrize("section", [b"\x00\x53\x70\x45\x45", BODY, b"\x00\x53\x70\x40"])
def test_a_malformed_header_is_an_error(section: bytes) -> None:
    with pytest.raises(CodecError):
        sections.decode_header(section)


@given(st.binary(max_size=80) | st.lists(st.sampled_from([HEADER, ANNOTATIONS, BODY, b"\x00\x53"])).map(b"".join))
def test_any_octets_have_a_layout_or_are_an_error(data: bytes) -> None:
    try:
        _, at = sections.split_head(data)
        assert at <= len(data)
        sections.layout(data, at)
        sections.body(data[at:])
    except CodecError:
        pass


@pytest.mark.parametrize("before", [b"", ANNOTATIONS])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([], (None, None)),
        ([None, None, "to"], ("to", None)),
        (["id", b"user", "to", "subject", "reply"], ("to", "subject")),
        ([{"any": "type"}, None, None, "subject"], (None, "subject")),
    ],
)
def test_to_and_subject_are_read_without_the_other_properties(
    before: bytes, fields: list[object], expected: tuple[str | None, str | None]
) -> None:
    assert sections.address_of(before + encode_section(sections.PROPERTIES, fields) + BODY) == expected


@pytest.mark.parametrize("content", [b"", BODY, ANNOTATIONS, APPLICATION + BODY])
def test_a_message_without_properties_has_neither_to_nor_subject(content: bytes) -> None:
    assert sections.address_of(content) == (None, None)


@pytest.mark.parametrize("value", [[None, None, 5], [None, None, None, b"x"], b"x"])
def test_a_subject_of_the_wrong_type_is_an_error(value: object) -> None:
    with pytest.raises(CodecError):
        sections.address_of(encode_section(sections.PROPERTIES, value))


@pytest.mark.parametrize(
    "fields", [[], [None], ["id"], ["id", None, "to"], [Uuid(bytes(16)), None], [ULong(2**40), None]]
)
@pytest.mark.parametrize("before", [b"", ANNOTATIONS])
def test_a_message_without_a_user_claims_none(before: bytes, fields: list[object]) -> None:
    content = b"xx" + before + encode_section(sections.PROPERTIES, fields) + BODY
    assert not sections.claims_user(content, 2, len(content))
    assert not sections.claims_user(before + BODY, 0, len(before + BODY))


@given(st.binary(max_size=30).map(lambda data: b"\x00\x53\x73" + data) | st.binary(max_size=30))
def test_no_user_is_overlooked(data: bytes) -> None:
    if not sections.claims_user(data, 0, len(data)):
        with contextlib.suppress(CodecError):
            assert sections.properties(data).user_id is None


@pytest.mark.parametrize("name", ["x-opt-a", "x-cc"])
@pytest.mark.parametrize("size", [1, 300])
def test_a_name_is_looked_for_in_the_annotations_only(name: str, size: int) -> None:
    annotations = encode_section(sections.MESSAGE_ANNOTATIONS, {Symbol("x-opt-a"): "v" * size})
    content = annotations + encode_section(sections.DATA, b"x-cc")
    assert sections.annotates(content, name) == (name == "x-opt-a")


def test_the_sizes_of_sections_are_checked_without_decoding_them() -> None:
    data = b"\x00\x53\x75\xa0\x01x"
    head = sections.encode_section(sections.APPLICATION_PROPERTIES, {"a": "b"})
    sections.check_sizes(head + data, len(head))
    sections.check_sizes(data * sections.MOST_SECTIONS, 0)
    for content, most in ((head + data, len(head) - 1), (data * (sections.MOST_SECTIONS + 1), 10), (head[:-1], 100)):
        with pytest.raises(CodecError):
            sections.check_sizes(content, most)
