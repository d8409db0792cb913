"""Shapes of transfers, compared with decoding each transfer."""

from __future__ import annotations

import random
from typing import Any

import pytest

from escrowmq.wire.amqp10.codec import hot
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.frames import frame
from escrowmq.wire.amqp10.codec.performatives import Transfer, decode_performative
from escrowmq.wire.amqp10.codec.sections import APPLICATION_PROPERTIES, DATA, MESSAGE_ANNOTATIONS, encode_section
from escrowmq.wire.amqp10.codec.sections import PROPERTIES as PROPERTIES_SECTION
from escrowmq.wire.amqp10.codec.types import Symbol, Timestamp, UInt, ULong, Uuid
from escrowmq.wire.amqp10.shape import AlikeTransfers, TransferShape

FIRST = 70_000
HEADER = b"\x00\x53\x70\xc0\x02\x01\x41"
MOST = 4096


def properties(*fields: Any) -> bytes:
    return encode_section(PROPERTIES_SECTION, list(fields))


def sent(number: int, *sections: bytes, body: bytes = b"body", header: bytes = HEADER) -> bytes:
    performative = hot.encode_transfer(0, number, number.to_bytes(8, "big"), settled=False)
    return frame(0, performative, header + b"".join(sections) + encode_section(DATA, body))


def shape_of(data: bytes, header: bytes = HEADER) -> TransferShape:
    """Learn the shape of the first transfer in `data`."""
    tag_at = data.index(b"\xa0\x08")
    payload = data.index(header, tag_at)
    return TransferShape(data, 0, tag_at, tag_at + 10, payload + len(header), int.from_bytes(data[:4], "big"))


def read(frames: list[bytes], **options: Any) -> AlikeTransfers:
    """Read the transfers in `frames` by the shape of the first one."""
    data = b"".join(frames)
    return shape_of(data).read(data, 0, FIRST, options.get("most", MOST), tagged=options.get("tagged", True))


def varied(number: int) -> bytes:
    chance = random.Random(number)
    fields = (chance.randbytes(9).hex(), None, "to", "subject", None, Uuid(chance.randbytes(16)), None, None, None)
    texts = encode_section(APPLICATION_PROPERTIES, {"name": "x" * chance.randrange(90)})
    found = properties(*fields, Timestamp(10**12 + number), "group", UInt(2**31 + number))
    return sent(number, found, texts, body=chance.randbytes(chance.randrange(90)))


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 72, 73, 600])
def test_transfers_with_values_of_their_own_are_read_whole(count: int) -> None:
    frames = [varied(FIRST + i) for i in range(count)]
    found = read(frames)
    assert found.contents == [each[each.index(HEADER) + len(HEADER) :] for each in frames]
    assert found.tags == [(FIRST + i).to_bytes(8, "big") for i in range(count)]
    assert found.end == sum(map(len, frames))
    assert found.plain


def test_settled_transfers_are_read_without_their_tags() -> None:
    found = read([varied(FIRST + i) for i in range(20)], tagged=False)
    assert (len(found.contents), found.tags) == (20, [])


@pytest.mark.parametrize("place", range(len(varied(FIRST + 5))))
def test_a_damaged_transfer_ends_the_run_or_is_read_as_it_is(place: int) -> None:
    frames = [varied(FIRST + i) for i in range(12)]
    frames[5] = frames[5][:place] + bytes((frames[5][place] ^ 0x15,)) + frames[5][place + 1 :]
    data = b"".join(frames)
    found = read(frames)
    assert len(found.contents) >= 5
    at = 0
    for number, (content, tag) in enumerate(zip(found.contents, found.tags, strict=True), FIRST):
        end = at + int.from_bytes(data[at : at + 4], "big")
        transfer, payload = decode_performative(data, at + 8, end)
        assert isinstance(transfer, Transfer)
        assert (transfer.delivery_id, transfer.delivery_tag) == (number, tag)
        assert data[payload:end].endswith(content)
        at = end
    assert found.end == at


@pytest.mark.parametrize("cut", range(0, 500, 7))
def test_an_incomplete_transfer_is_left(cut: int) -> None:
    frames = [varied(FIRST + i) for i in range(10)]
    data = b"".join(frames)[: len(frames[0]) + cut]
    found = shape_of(data).read(data, 0, FIRST, MOST, tagged=True)
    whole = [n for n in range(10) if sum(map(len, frames[: n + 1])) <= len(data)]
    assert found.end == sum(map(len, frames[: len(whole)]))
    assert len(found.contents) == len(found.tags) == len(whole)


@pytest.mark.parametrize("number", [FIRST + 4, FIRST + 6, 2**32 - 1])
def test_a_number_out_of_turn_ends_the_run(number: int) -> None:
    frames = [varied(FIRST + i) for i in range(10)]
    frames[5] = sent(number, body=b"x")
    assert len(read(frames).contents) == 5


def test_the_number_after_the_last_one_ends_the_run() -> None:
    frames = [sent((2**32 - 3 + i) % 2**32, body=b"some content") for i in range(9)]
    data = b"".join(frames)
    assert len(shape_of(data).read(data, 0, 2**32 - 3, MOST, tagged=True).contents) == 3
    assert shape_of(data).read(data, 0, 2**32, MOST, tagged=True).contents == []


def test_a_transfer_above_the_largest_frame_ends_the_run() -> None:
    frames = [sent(FIRST + i, body=b"x" * (500 if i == 3 else 20)) for i in range(6)]
    assert len(read(frames, most=400).contents) == 3


PLAIN = [
    b"",
    properties("id"),
    properties(ULong(2**40), None, "to"),
    properties(None, None, None, None, None, "x" * 30, None, None, None, Timestamp(1), None, UInt(5)),
    encode_section(APPLICATION_PROPERTIES, {"a": 1}),
]
OTHERS = [
    properties(),
    properties("id", b"guest"),
    properties(None, None, None, None, None, None, None, None, Timestamp(1)),
    properties("x" * 300),
    encode_section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-delivery-delay"): 5}),
    b"\x00\x53\x73\xc0\x20\x01\x40",
    b"\x00\x53\x73\xc0\x04\x02\x40\x40\x40",
    b"\x00\x53\x73\xc0\x02\x02\x40",
    b"\x00\x53\x73\xc0\x03\x01\xa1\x09",
]


@pytest.mark.parametrize("section", [*PLAIN, *OTHERS])
def test_messages_are_plain_if_their_properties_say_so(section: bytes) -> None:
    found = read([sent(FIRST + i, section) for i in range(20)])
    assert (len(found.contents), found.plain) == (20, section in PLAIN)


@pytest.mark.parametrize("section", [*PLAIN[2:], *OTHERS[1:3]])
@pytest.mark.parametrize("place", [1, 10])
def test_one_message_with_other_properties_makes_the_run_one_that_is_not_plain(section: bytes, place: int) -> None:
    frames = [sent(FIRST + i, properties("id of a message", None, None)) for i in range(20)]
    frames[place] = sent(FIRST + place, section, body=b"a body that is as long as the properties")
    found = read(frames)
    assert not found.plain or len(found.contents) == place


@pytest.mark.parametrize("place", range(120))
def test_a_shape_is_learned_from_any_bytes(place: int) -> None:
    data = varied(FIRST)
    content = data.index(HEADER) + len(HEADER)
    if content + place >= len(data):
        return
    damaged = bytearray(data + varied(FIRST + 1))
    damaged[content + place] ^= 0xFF
    try:
        decode_performative(bytes(damaged), 8)
    except CodecError:
        return
    found = shape_of(bytes(damaged)).read(bytes(damaged), 0, FIRST, MOST, tagged=True)
    assert found.end <= len(damaged)
