"""Shapes of message properties: they accept no properties that are malformed, and none with a user-id."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp010 import shape
from escrowmq.wire.amqp010.codec.errors import CodecError
from escrowmq.wire.amqp010.codec.spec import MessageProperties, ReplyTo
from escrowmq.wire.amqp010.codec.types import CharUtf32, Int32
from escrowmq.wire.amqp010.shape import PropertiesShapes
from tests.unit.wire.amqp010.codec.strategies import compounds


def properties(number: int, **more: Any) -> bytes:
    return MessageProperties(
        content_length=number,
        message_id=number.to_bytes(16, "big"),
        correlation_id=b"%04d" % number,
        reply_to=ReplyTo("", "answers"),
        content_type="text/plain",
        app_id=b"\xff%03d" % (number % 1000),
        application_headers={"n": number, "i": Int32(number), "text": f"order {number:04}", "b": b"\xff", "t": True}
        | more,
    ).write()


def test_alike_properties_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = PropertiesShapes()
    assert shapes.user_of(properties(1)) is None
    with monkeypatch.context() as patched:
        patched.setattr(MessageProperties, "decode", None)
        for number in range(2, 50):
            assert shapes.user_of(properties(number)) is None
        with pytest.raises(TypeError):
            shapes.user_of(properties(3, text="of another size"))
    assert shapes.user_of(properties(3, other=5)) is None


@pytest.mark.rule("SEC-1")
def test_a_user_id_is_always_found() -> None:
    shapes = PropertiesShapes()
    for _ in range(3):
        assert shapes.user_of(MessageProperties(user_id=b"me").write()) == b"me"
        assert shapes.user_of(MessageProperties(app_id=b"me").write()) is None


@given(compounds(MessageProperties), st.data())
def test_what_has_a_shape_is_well_formed(found: MessageProperties, data: st.DataObject) -> None:
    octets = bytearray(found.write())
    shapes = PropertiesShapes()
    assert shapes.user_of(bytes(octets)) == found.user_id
    for _ in range(data.draw(st.integers(1, 4))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    try:
        expected = MessageProperties.read(bytes(octets), 0, len(octets))[0].user_id
    except CodecError:
        with pytest.raises(CodecError):
            shapes.user_of(bytes(octets))
    else:
        assert shapes.user_of(bytes(octets)) == expected


def test_texts_that_are_not_ascii_are_decoded() -> None:
    shapes = PropertiesShapes()
    good = MessageProperties(application_headers={"t": "\u00e4"}).write()
    bad = good.replace("\u00e4".encode(), b"\xff\xff")
    for _ in range(2):
        assert shapes.user_of(good) is None
        with pytest.raises(CodecError):
            shapes.user_of(bad)


@pytest.mark.parametrize("odd", [{"c": CharUtf32("c")}, {"m": {"n": 1}}, {"long": "x" * 2000}])
def test_odd_properties_have_no_shape(odd: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    shapes, octets = PropertiesShapes(), MessageProperties(application_headers=odd).write()
    assert shapes.user_of(octets) is None
    monkeypatch.setattr(MessageProperties, "decode", None)
    with pytest.raises(TypeError):
        shapes.user_of(octets)


def test_few_shapes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape, "MOST", 4)
    shapes = PropertiesShapes()
    for size in range(20):
        shapes.user_of(MessageProperties(content_type="x" * size).write())
    assert len(shapes.by_size) <= 4
