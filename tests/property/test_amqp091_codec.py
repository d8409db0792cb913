"""Any bytes are accepted or raise SyntaxFault. Any value of the right type is written and read back unchanged."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.wire import sasl
from escrowmq.wire.amqp091 import codes, frames, spec, table
from escrowmq.wire.amqp091.errors import SyntaxFault, reply_text
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import (
    Properties,
    scan,
    with_header,
    with_headers,
    without_expiration,
    without_headers,
)
from escrowmq.wire.amqp091.table import FieldTable, FieldValue, decode_fields, decode_table, encode_table

# ---- strategies ----


def number(make: Callable[[int], Any], bits: int, *, signed: bool) -> st.SearchStrategy[Any]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high).map(make)


def short_strings() -> st.SearchStrategy[str]:
    return st.text(max_size=63) | st.just("x" * 255)


def decimal_of(scale: int, mantissa: int) -> Decimal:
    return Decimal((int(mantissa < 0), tuple(int(digit) for digit in str(abs(mantissa))), -scale))


SCALARS: st.SearchStrategy[FieldValue] = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=20),
    st.binary(max_size=20),
    number(int, 64, signed=True),
    number(int, 32, signed=True),
    number(table.Byte, 8, signed=True),
    number(table.UnsignedByte, 8, signed=False),
    number(table.Short, 16, signed=True),
    number(table.UnsignedShort, 16, signed=False),
    number(table.UnsignedInt, 32, signed=False),
    number(table.Long, 32, signed=True),
    number(table.LongL, 64, signed=True),
    number(table.Timestamp, 64, signed=False),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(table.Float),
    st.builds(decimal_of, st.integers(0, 255), st.integers(-(2**31), 2**31 - 1)),
    st.binary(max_size=10).map(lambda data: table.LongStr(b"\xff" + data)),
)
VALUES: st.SearchStrategy[FieldValue] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(short_strings(), inner, max_size=4),
    max_leaves=10,
)
TABLES: st.SearchStrategy[FieldTable] = st.dictionaries(short_strings(), VALUES, max_size=5)

OF_WIRE_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": number(int, 8, signed=False),
    "short": number(int, 16, signed=False),
    "long": number(int, 32, signed=False),
    "longlong": number(int, 64, signed=False),
    "timestamp": number(int, 64, signed=False),
    "shortstr": short_strings(),
    "longstr": st.binary(max_size=300),
    "table": TABLES,
}


def methods() -> st.SearchStrategy[Method]:
    def build(kind: type[Method]) -> st.SearchStrategy[Method]:
        return st.builds(kind, **{name: OF_WIRE_TYPE[wire] for name, wire in kind.FIELDS})

    return st.sampled_from(list(spec.METHODS.values())).flatmap(build)


def properties() -> st.SearchStrategy[Properties]:
    optional: dict[str, Any] = {name: st.none() | OF_WIRE_TYPE[wire] for name, wire in codes.BASIC_PROPERTIES}
    return st.builds(Properties, **optional)


@st.composite
def damaged(draw: st.DrawFn, well_formed: st.SearchStrategy[bytes]) -> bytes:
    """Valid bytes after changing, cutting, inserting or appending some: closer to real faults than random bytes."""
    octets = bytearray(draw(well_formed))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(octets)))
        kind = draw(st.sampled_from(["set", "cut", "insert", "append"]))
        if kind == "set" and at < len(octets):
            octets[at] = draw(st.integers(0, 255))
        elif kind == "cut":
            del octets[at:]
        elif kind == "insert":
            octets[at:at] = draw(st.binary(max_size=4))
        else:
            octets += draw(st.binary(max_size=4))
    return bytes(octets)


def same(one: object, other: object) -> bool:
    """Return whether the values are equal and of the same types at every level."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack(">d", one) == struct.pack(">d", other)
    return one == other


# ---- round trips ----


@given(methods())
def test_every_method_is_read_back(method: Method) -> None:
    payload = method.encode()
    assert frames.decode_method(payload) == method
    frame = frames.frame(codes.FRAME_METHOD, 1, payload)
    assert frames.next_frame(frame, 0, 0) == (codes.FRAME_METHOD, 1, payload, len(frame))


@given(TABLES)
def test_every_table_is_read_back_with_its_types(value: FieldTable) -> None:
    octets = encode_table(value)
    decoded, end = decode_table(octets, 0)
    assert same(decoded, value)
    assert end == len(octets)
    assert encode_table(decoded) == octets


@given(properties())
def test_all_properties_are_read_back(value: Properties) -> None:
    props = value.encode()
    assert Properties.decode(props) == value
    found = scan(props)
    for name in ("delivery_mode", "priority", "reply_to", "expiration", "user_id", "headers"):
        assert getattr(found, name) == getattr(value, name)


@given(properties(), short_strings(), VALUES)
def test_rewriting_changes_only_what_it_names(value: Properties, name: str, new: FieldValue) -> None:
    props = value.encode()
    found = scan(props)

    changed = with_header(props, found, name, new)
    headers = {key: old for key, old in (value.headers or {}).items() if key != name} | {name: new}
    assert changed == rewritten(value, headers=headers)
    assert without_headers(changed, scan(changed), {name}) == rewritten(
        value, headers={key: old for key, old in headers.items() if key != name}
    )
    shorter = without_expiration(props, found)
    assert shorter == rewritten(value, expiration=None)
    assert with_headers(shorter, found, {"x": new}) == rewritten(value, expiration=None, headers={"x": new})
    assert with_headers(props, found, value.headers) == props


def rewritten(value: Properties, **changes: Any) -> bytes:
    fields = {name: getattr(value, name) for name, _ in codes.BASIC_PROPERTIES}
    return Properties(**(fields | changes)).encode()


@given(st.binary(max_size=20_000), st.integers(9, 5000))
def test_split_bodies_add_up_and_keep_to_frame_max(body: bytes, frame_max: int) -> None:
    octets, at, found = frames.body_frames(1, body, frame_max), 0, b""
    while at < len(octets):
        frame = frames.next_frame(octets, at, frame_max)
        assert frame is not None
        found += frame[2]
        at = frame[3]
    assert found == body


@given(st.sampled_from(sorted(codes.REPLY_NAMES)), st.text())
def test_reply_texts_always_fit(code: int, text: str) -> None:
    assert spec.ConnectionClose(code, reply_text(code, text)).encode()


# ---- any bytes ----


def outcome(read: Callable[[bytes], object], octets: bytes) -> object:
    """Return the result of `read`, or the SyntaxFault that it raises. Any other exception fails the test."""
    try:
        result = read(octets)
    except SyntaxFault as fault:
        result = fault
    if isinstance(result, SyntaxFault):
        assert result.code in codes.HARD_ERRORS
        assert reply_text(result.code, result.text)
    return result


@pytest.mark.parametrize("kind", spec.METHODS.values(), ids=lambda kind: kind.NAME)
def test_any_arguments_are_a_method_or_a_fault(kind: type[Method]) -> None:
    # Fewer examples than usual, because there are as many for each method.
    @settings(max_examples=settings().max_examples // 3)
    @given(st.binary(max_size=60) | damaged(methods_of(kind)))
    def check(arguments: bytes) -> None:
        found = outcome(lambda octets: kind.decode(octets, 0), arguments)
        if isinstance(found, Method):
            assert kind.decode(found.encode()).encode() == found.encode()

    check()


def methods_of(kind: type[Method]) -> st.SearchStrategy[bytes]:
    built = st.builds(kind, **{name: OF_WIRE_TYPE[wire] for name, wire in kind.FIELDS})
    return built.map(lambda method: method.encode()[4:])


@given(st.binary(max_size=100) | damaged(methods().map(lambda method: method.encode())))
def test_any_method_payload_is_a_method_or_a_fault(payload: bytes) -> None:
    outcome(frames.decode_method, payload)


@given(st.binary(max_size=200) | damaged(TABLES.map(encode_table)))
def test_any_octets_are_a_table_or_a_fault(octets: bytes) -> None:
    found = outcome(lambda buf: decode_table(buf, 0), octets)
    if isinstance(found, tuple):
        decoded, end = found
        assert 4 <= end <= len(octets)
        assert encode_table(decode_table(encode_table(decoded), 0)[0]) == encode_table(decoded)
        assert {name for name, _, _ in table.entries(octets, 4, end)} == set(decoded)
    outcome(decode_fields, octets)


@given(st.binary(max_size=100) | damaged(properties().map(Properties.encode)))
def test_scan_and_decode_accept_the_same_octets(props: bytes) -> None:
    decoded, found = outcome(Properties.decode, props), outcome(scan, props)
    assert isinstance(decoded, SyntaxFault) == isinstance(found, SyntaxFault)
    if isinstance(decoded, Properties):
        scanned = scan(props)
        # Accepted properties can be rewritten later, when a fault could no longer be reported to the client.
        for changed in (
            with_header(props, scanned, "x", 1),
            with_headers(props, scanned, None),
            without_headers(props, scanned, set(scanned.headers or ())),
            without_expiration(props, scanned),
        ):
            Properties.decode(changed)


@given(st.binary(max_size=100), st.integers(0, 100))
def test_any_octets_are_frames_or_a_fault(octets: bytes, frame_max: int) -> None:
    def read(buf: bytes) -> int:
        at = 0
        while (frame := frames.next_frame(buf, at, frame_max)) is not None:
            assert frame[3] > at
            at = frame[3]
            if frame[0] == codes.FRAME_HEADER:
                outcome(frames.decode_header, frame[2])
        return at

    outcome(read, octets)


@given(st.sampled_from([*sasl.MECHANISMS, "OTHER"]), st.binary(max_size=60))
def test_any_sasl_response_is_credentials_or_an_error(mechanism: str, response: bytes) -> None:
    def read(octets: bytes) -> object:
        try:
            return sasl.parse(mechanism, octets, decode_fields)
        except sasl.SaslError:
            return None

    found = outcome(read, response)
    assert found is None or isinstance(found, SyntaxFault | sasl.Credentials)
