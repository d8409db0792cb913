"""Points in messages, as `received` names them."""

from __future__ import annotations

import pytest

from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.progress import offset_of, point_at
from escrowmq.wire.amqp10.codec.sections import DATA, Header, encode_header, encode_section
from escrowmq.wire.amqp10.codec.states import Received

HEADER = encode_header(Header(durable=True))
FIRST = encode_section(DATA, b"first")
LAST = encode_section(DATA, b"x" * 300)
MESSAGE = HEADER + FIRST + LAST
SECOND = len(HEADER)
THIRD = SECOND + len(FIRST)


@pytest.mark.rule("SET-4")
@pytest.mark.parametrize(
    ("offset", "point"),
    [
        (0, Received(0, 0)),
        (SECOND - 1, Received(0, SECOND - 1)),
        (SECOND, Received(1, 0)),
        (SECOND + 3, Received(1, 3)),
        (THIRD, Received(2, 0)),
        (len(MESSAGE) - 1, Received(2, len(LAST) - 1)),
        (len(MESSAGE), Received(3, 0)),
    ],
)
def test_a_point_names_a_section_and_an_offset_in_it(offset: int, point: Received) -> None:
    assert point_at(MESSAGE, offset) == point
    assert point_at(MESSAGE[:offset], offset) == point  # a section that is cut off is the last one
    assert offset_of(MESSAGE, point) == offset


@pytest.mark.parametrize("length", range(len(HEADER + FIRST) + 8))
def test_every_point_in_a_part_of_a_message_leads_back_to_its_offset(length: int) -> None:
    for offset in range(length + 1):
        assert offset_of(MESSAGE[:length], point_at(MESSAGE[:length], offset)) == offset


@pytest.mark.parametrize("octets", [b"", b"\xff" * 20, b"\x00\x53\x99\x40" * 5, b"\x00" * 50])
def test_malformed_octets_belong_to_one_section(octets: bytes) -> None:
    assert point_at(HEADER + octets, len(HEADER + octets)) == Received(1, len(octets))


@pytest.mark.parametrize(
    "point", [Received(0, len(MESSAGE) + 1), Received(3, 1), Received(4, 0), Received(2**32 - 1, 0)]
)
def test_a_point_behind_the_end_is_refused(point: Received) -> None:
    with pytest.raises(CodecError):
        offset_of(MESSAGE, point)


@pytest.mark.rule("FAIR-1")
def test_no_more_than_a_thousand_sections_are_counted() -> None:
    payload = encode_section(DATA, b"") * 1500
    point = point_at(payload, len(payload))
    assert point == Received(1000, 0)
    assert offset_of(payload, point) == 5000
