"""Headers that are read by a pattern give the same commands as the decoder."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.rocketmq.remoting import shapes
from escrowmq.wire.rocketmq.remoting.frames import Command, RemotingError, decode, encode
from escrowmq.wire.rocketmq.remoting.shapes import ALIKE, MOST_MISSES, HeaderShapes

VALUES = st.text(max_size=12) | st.sampled_from(
    ("a\x01b\x02", "\x01", '"', "\\", "\\u0001", "\\\\u0001", "é", "\u3000", "\x1f", "\n", "\ud800", "1", "")
)
OPAQUES = st.integers(-2, 3) | st.integers(-(2**33), 2**33)


def frame(header: str, body: bytes = b"") -> bytes:
    data = header.encode("utf-8", "surrogatepass")
    return struct.pack(">II", 4 + len(data) + len(body), len(data)) + data + body


def header(fields: dict[str, str], opaque: int, *, last: bool, ascii_only: bool) -> str:
    members: dict[str, object] = {"code": 310, "flag": 0, "language": "JAVA", "version": 479}
    members |= {"opaque": opaque, "extFields": fields} if last else {"extFields": fields, "opaque": opaque}
    return json.dumps(members, separators=(",", ":"), ensure_ascii=ascii_only)


def learned(*, last: bool) -> HeaderShapes:
    """Return shapes that have seen many headers with the fields a and b."""
    found = HeaderShapes()
    for opaque in range(ALIKE):
        found.decode(frame(header({"a": "x", "b": "y"}, opaque, last=last, ascii_only=True)))
    return found


def outcome(shapes: HeaderShapes | None, data: bytes) -> Command | str:
    try:
        return decode(data) if shapes is None else shapes.decode(data)
    except RemotingError as error:
        return str(error)


@given(VALUES, VALUES, OPAQUES, st.booleans(), st.booleans(), st.binary(max_size=9))
def test_values_are_those_of_the_decoder(
    a: str, b: str, opaque: int, last: bool, ascii_only: bool, body: bytes
) -> None:
    data = frame(header({"a": a, "b": b}, opaque, last=last, ascii_only=ascii_only), body)
    assert outcome(learned(last=last), data) == outcome(None, data)


@given(st.integers(0, 200), st.sampled_from((b"\x01", b"\x02")) | st.binary(min_size=1, max_size=3), st.booleans())
def test_damaged_headers_are_read_as_by_the_decoder(at: int, noise: bytes, last: bool) -> None:
    whole = header({"a": "qwertyuiop", "b": "e"}, 7, last=last, ascii_only=True).encode()
    at %= len(whole)
    damaged = whole[:at] + noise + whole[at + len(noise) :]
    data = struct.pack(">II", 4 + len(damaged), len(damaged)) + damaged
    assert outcome(learned(last=last), data) == outcome(None, data)


@pytest.mark.parametrize("opaque", [0, 99, 1 << 30, (1 << 31) - 1])
def test_the_decoder_is_not_called_for_headers_like_earlier_ones(monkeypatch: pytest.MonkeyPatch, opaque: int) -> None:
    found = learned(last=False)
    monkeypatch.setattr(shapes, "decode", None)
    data = frame(header({"a": "1\x012\x02", "b": "1"}, opaque, last=False, ascii_only=True), b"body")
    command = found.decode(data)
    assert command == decode(data)
    assert (command.fields, command.body) == ({"a": "1\x012\x02", "b": "1"}, b"body")


def test_other_headers_give_up_the_pattern_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    found = HeaderShapes()
    made: list[bytes] = []
    real = shapes._make

    def make(kind: shapes._Kind, header: bytes, command: Command) -> None:
        made.append(header)
        real(kind, header, command)

    monkeypatch.setattr(shapes, "_make", make)
    for number in range(10 * MOST_MISSES):
        for opaque in range(ALIKE + 1):
            found.decode(frame(header({"a": "x", f"b{number}": "y"}, opaque, last=False, ascii_only=True)))
    assert 0 < len(made) <= MOST_MISSES + 1


def test_binary_headers_are_left_to_the_decoder() -> None:
    data = encode(Command(310, {"a": "b"}, b"body", 5, form=1))
    assert HeaderShapes().decode(data) == decode(data)
