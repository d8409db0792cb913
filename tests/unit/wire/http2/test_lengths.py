"""A request's body has the length that its content-length announces."""

from __future__ import annotations

import pytest

from escrowmq.wire.http2.frames import ErrorCode, FrameType, Http2Fault, frame
from escrowmq.wire.http2.headers import encode
from escrowmq.wire.http2.lengths import announced_length
from tests.unit.wire.http2.peer import OPENING, REQUEST, Server, cut


def given(*values: bytes) -> list[tuple[bytes, bytes]]:
    return [*REQUEST, *((b"content-length", value) for value in values)]


def test_a_length_is_read_and_may_be_repeated_or_missing() -> None:
    assert announced_length(given(), 1) is None
    assert announced_length(given(b"12"), 1) == 12
    assert announced_length(given(b"12", b"12"), 1) == 12


@pytest.mark.parametrize("values", [(b"",), (b"-1",), (b"1x",), (b"1", b"2"), (b"9" * 19,), ("١".encode(),)])
def test_a_malformed_length_is_refused(values: tuple[bytes, ...]) -> None:
    with pytest.raises(Http2Fault) as raised:
        announced_length(given(*values), 7)
    assert (raised.value.code, raised.value.stream) == (ErrorCode.PROTOCOL_ERROR, 7)


@pytest.mark.parametrize(
    ("announced", "pieces", "is_reset"),
    [
        (b"4", [b"abcd"], False),
        (b"4", [b"ab", b"cd"], False),
        (b"0", [], False),
        (b"4", [b"abc"], True),
        (b"4", [b"ab", b"cde"], True),
        (b"4", [], True),
    ],
)
def test_a_body_of_another_length_resets_the_stream(announced: bytes, pieces: list[bytes], is_reset: bool) -> None:
    server = Server()
    flags = 0x4 if pieces else 0x5
    data = [frame(FrameType.HEADERS, flags, 1, encode(given(announced)))]
    data += [frame(FrameType.DATA, int(i == len(pieces) - 1), 1, piece) for i, piece in enumerate(pieces)]
    sent = cut(server.feed(OPENING, *data))
    resets = [int.from_bytes(payload, "big") for kind, _, _, payload in sent if kind == FrameType.RST_STREAM]
    assert resets == ([ErrorCode.PROTOCOL_ERROR] if is_reset else [])
    assert server.code is None
    assert bool(server.echo.complete) != is_reset
