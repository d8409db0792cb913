"""Frames of classic remoting."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.rocketmq.remoting.frames import (
    BINARY,
    HEAD,
    JSON,
    LARGEST_FRAME,
    MOST_FIELDS,
    Command,
    RemotingError,
    decode,
    encode,
    frame_size,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
I32 = st.integers(-(2**31), 2**31 - 1)


@given(
    st.sampled_from((JSON, BINARY)),
    st.integers(0, 32767),
    st.dictionaries(TEXTS, TEXTS, max_size=5),
    st.binary(max_size=20),
    I32,
    I32,
    st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=9),
)
def test_a_command_comes_back_as_it_was(
    form: int, code: int, fields: dict[str, str], body: bytes, opaque: int, flag: int, remark: str | None
) -> None:
    command = Command(code, fields, body, opaque, flag, remark, "GO", 479, form)
    frame = encode(command)
    assert frame_size(frame[:HEAD]) == len(frame)
    found = decode(frame)
    found.form = form
    assert found == command


def json_frame(header: object) -> bytes:
    data = json.dumps(header).encode()
    return (4 + len(data)).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data


def test_numbers_and_truth_values_become_text() -> None:
    frame = json_frame({"code": 1, "extFields": {"a": 1, "b": True, "c": 1.5, "d": None, "e": [1], "f": "x"}})
    assert decode(frame).fields == {"a": "1", "b": "true", "c": "1.5", "f": "x"}


def test_missing_fields_are_empty() -> None:
    command = decode(json_frame({"code": 34, "extFields": None}))
    assert (command.code, command.fields, command.opaque, command.language) == (34, {}, 0, "OTHER")


def test_flags_tell_responses_and_one_way_requests() -> None:
    assert Command(0, flag=1).is_response
    assert Command(0, flag=2).is_one_way
    assert not Command(0).is_one_way


@pytest.mark.parametrize(
    "header",
    [
        [],
        {"code": "1"},
        {"code": 1 << 31},
        {"code": True},
        {"opaque": 1.5},
        {"extFields": []},
        {"extFields": {str(number): "" for number in range(MOST_FIELDS + 1)}},
    ],
)
def test_a_malformed_header_is_refused(header: object) -> None:
    with pytest.raises(RemotingError):
        decode(json_frame(header))


@pytest.mark.parametrize(
    "head",
    [
        (LARGEST_FRAME + 1).to_bytes(4, "big") + bytes(4),
        bytes((0, 0, 0, 8, 2, 0, 0, 0)),
        bytes((0, 0, 0, 8, 0, 0, 0, 5)),
        bytes(8),
        bytes((0, 16, 0, 0, 0, 5, 0, 0)),
        b"GET / HT",
    ],
)
def test_a_malformed_length_is_refused(head: bytes) -> None:
    with pytest.raises(RemotingError):
        frame_size(head)


@given(st.sampled_from((JSON, BINARY)), st.binary(max_size=60))
def test_any_header_is_read_or_refused(form: int, header: bytes) -> None:
    frame = (4 + len(header)).to_bytes(4, "big") + bytes((form,)) + len(header).to_bytes(3, "big") + header
    with contextlib.suppress(RemotingError):
        decode(frame)


@given(st.binary(max_size=80), st.integers(0, 79), st.binary(min_size=1, max_size=1))
def test_a_changed_binary_header_is_read_or_refused(body: bytes, at: int, octet: bytes) -> None:
    frame = bytearray(encode(Command(10, {"a": "b", "topic": "t"}, body, 3, 0, "r", form=BINARY)))
    frame[HEAD + at % (len(frame) - HEAD)] = octet[0]
    with contextlib.suppress(RemotingError):
        decode(bytes(frame))


def test_deep_json_is_refused() -> None:
    data = b"[" * 100_000
    frame = (4 + len(data)).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data
    with pytest.raises(RemotingError):
        decode(frame)


def test_halves_of_surrogate_pairs_in_fields_are_replaced() -> None:
    header = b'{"code":310,"extFields":{"i\\udc00":"TAGS\\ud800"}}'
    frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    assert decode(frame).fields == {"i?": "TAGS?"}
