"""Records that store half messages are decoded by their shape to the same values as one by one."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.commits import encode_commit
from escrowmq.core.records.half import HalfStored, OriginFields, decode_origin, encode_half_stored
from escrowmq.core.records.half_commits import MOST_LENGTHS, MOST_SHAPES, HalfCommit, HalfCommits
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import decode_publish, encode_targets
from escrowmq.core.records.settling import encode_settle

ORIGIN = OriginFields("orders", "shop", "alice", "127.0.0.1:1", 7)


def record(
    number: int = 1, *, ident: str = "m1", content: bytes = b"body", tag: str = "a", origin: OriginFields = ORIGIN
) -> bytes:
    block = encode_block(1000 + number, Envelope("orders", tag, durable=True), [content])
    stored = HalfStored(3, number, 2000 + number, 3000 + number, ident, origin)
    operations = [
        (Kind.PUBLISH, [encode_targets([(3, number)]), *block]),
        (Kind.HALF_STORED, [encode_half_stored(stored)]),
    ]
    return b"".join(encode_commit(0, operations)[0])


def check(found: HalfCommit | None, number: int, ident: str, origin: OriginFields = ORIGIN) -> None:
    assert found is not None
    assert found[:1] + found[2:6] == (3, number, 2000 + number, 3000 + number, ident)
    assert decode_origin(found.origin) == origin


@pytest.mark.parametrize("wrap", [bytes, memoryview])
def test_the_second_record_of_a_shape_is_decoded(wrap: type[bytes | memoryview]) -> None:
    shapes = HalfCommits()
    assert shapes.decode(wrap(record(1, ident="m1"))) is None
    second = record(2, ident="é", content=b"BODY")
    found = shapes.decode(wrap(second))
    check(found, 2, "é")
    assert found is not None
    publish = second[17:]
    assert second[found.block :] == publish[decode_publish(publish).block :]


@pytest.mark.parametrize(
    "other",
    [
        record(2, tag="b"),
        record(2, origin=ORIGIN._replace(topic="Orders")),
        record(2, origin=ORIGIN._replace(target=8)),
        record(2, ident="m", content=b"body+"),
        record(2, origin=ORIGIN._replace(user="alic", label="127.0.0.1:10")),
    ],
    ids=["envelope", "topic", "destination", "lengths", "lengths of texts"],
)
def test_a_record_of_another_shape_is_learned_beside_the_first(other: bytes) -> None:
    shapes = HalfCommits()
    assert len(other) == len(record())
    assert shapes.decode(record()) is None
    assert shapes.decode(other) is None
    assert shapes.decode(other) is not None
    check(shapes.decode(record(5)), 5, "m1")


def test_a_number_that_is_not_the_position_is_not_decoded() -> None:
    shapes = HalfCommits()
    shapes.decode(record(1))
    changed = bytearray(record(2))
    changed[25] = 9
    assert shapes.decode(bytes(changed)) is None
    assert shapes.decode(bytes(changed)) is None


def test_other_commits_are_not_decoded() -> None:
    shapes = HalfCommits()
    settle = (Kind.SETTLE, [encode_settle(3, Outcome.EXPIRED, [(1, 1)])])
    publish = (Kind.PUBLISH, [encode_targets([(3, 1)]), *encode_block(1, Envelope("", "q"), [b"x"])])
    two = (Kind.PUBLISH, [encode_targets([(3, 1)]), *encode_block(1, Envelope("", "q"), [b"x", b"y"])])
    stored = (Kind.HALF_STORED, [encode_half_stored(HalfStored(3, 1, 1, 1, "m", ORIGIN))])
    for branch, operations in ((0, [publish, settle]), (0, [settle]), (1, [publish, stored]), (0, [two, stored])):
        data = b"".join(encode_commit(branch, operations)[0])
        assert [shapes.decode(data), shapes.decode(data)] == [None, None]


def test_the_number_of_shapes_is_bounded() -> None:
    shapes = HalfCommits()
    for i in range(2 * MOST_SHAPES):
        shapes.decode(record(1, tag=chr(97 + i)))
    assert len(shapes._shapes[len(record())]) == MOST_SHAPES
    for i in range(MOST_LENGTHS + 10):
        shapes.decode(record(1, content=bytes(i)))
    assert len(shapes._shapes) <= MOST_LENGTHS
    check(shapes.decode(record(2, content=bytes(MOST_LENGTHS + 9))), 2, "m1")
