"""HTTP/2 as a server: against the library h2 as the client, and against frames that no client should send."""

from __future__ import annotations

import struct

import h2.events
import h2.settings
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.http2.frames import PREFACE, ErrorCode, FrameType, frame, reset, settings, window_update
from escrowmq.wire.http2.headers import STATUS_200, encode
from tests.unit.wire.http2.peer import OPENING, REQUEST, TRAILERS, Pair, Server, cut, headers

HEADERS, DATA = FrameType.HEADERS, FrameType.DATA
LONG = struct.Struct(">I")


@pytest.mark.parametrize("size", [0, 1, 16_384, 16_385, 200_000, 3_000_000])
def test_a_body_comes_back_whatever_its_size(size: int) -> None:
    pair = Pair()
    body = bytes(range(256)) * (size // 256 + 1)
    number = pair.request(body[:size])
    for _ in range(400):
        if pair.has_ended(number):
            break
        got = len(pair.body(number))
        pair.client.increment_flow_control_window(60_000)
        pair.client.increment_flow_control_window(60_000, number)
        pair.exchange()
        assert len(pair.body(number)) > got or pair.has_ended(number)
    assert pair.body(number) == body[:size]
    assert pair.has_ended(number)
    assert pair.server.connection.sender.unsent == 0
    assert not pair.server.connection.streams


def test_headers_of_later_requests_use_the_table_of_earlier_ones() -> None:
    pair = Pair()
    numbers = [pair.request(headers=[*REQUEST, (b"x-id", b"%d" % i), (b"x-same", b"v" * 50)]) for i in range(20)]
    for i, number in enumerate(numbers):
        assert (b"x-id", b"%d" % i) in pair.server.echo.headers[number]
        assert (b"x-same", b"v" * 50) in pair.server.echo.headers[number]


def test_a_response_that_waits_for_the_log_holds_no_other_back() -> None:
    pair = Pair()
    pair.server.echo.after = 100
    first = pair.request(b"first")
    pair.server.echo.after = 0
    second = pair.request(b"second")
    assert pair.has_ended(second)
    assert not pair.has_ended(first)
    pair.server.outbox.release(100)
    pair.exchange()
    assert pair.body(first) == b"first"


def test_a_ping_is_answered_while_a_response_waits_for_the_log() -> None:
    pair = Pair()
    pair.server.echo.after = 100
    pair.request(b"first")
    pair.client.ping(b"12345678")
    pair.exchange()
    assert any(isinstance(event, h2.events.PingAckReceived) for event in pair.events)


def test_a_response_before_the_end_of_the_request_resets_the_rest() -> None:
    pair = Pair()
    number = pair.client.get_next_available_stream_id()
    pair.client.send_headers(number, REQUEST)
    pair.exchange()
    connection = pair.server.connection
    connection.finish(connection.streams[number], STATUS_200 + TRAILERS)
    late = frame(DATA, 0, number, b"late")
    pair.exchange()
    assert pair.has_ended(number)
    connection.receive(late)
    assert pair.server.code is None


def test_streams_share_the_window_of_the_connection_in_turn() -> None:
    pair = Pair()
    numbers = [pair.request(b"%d" % i * 40_000) for i in range(4)]
    for _ in range(10):
        pair.client.increment_flow_control_window(20_000)
        pair.exchange()
    assert all(pair.has_ended(number) for number in numbers)
    assert [pair.body(number) for number in numbers] == [b"%d" % i * 40_000 for i in range(4)]


def test_a_window_that_shrinks_below_zero_stops_data_until_it_is_open_again() -> None:
    pair = Pair()
    pair.server.echo.waits = True
    number = pair.request(b"x")
    stream = pair.server.connection.streams[number]
    pair.server.connection.begin(stream, STATUS_200)
    pair.server.connection.send(stream, b"a" * 10_000)
    pair.exchange()
    pair.client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
    pair.exchange()
    pair.server.connection.send(stream, b"b")
    pair.server.connection.finish(stream, TRAILERS)
    pair.exchange()
    assert len(pair.body(number)) == 10_000
    assert stream.send_window == -10_000
    pair.client.increment_flow_control_window(10_001, number)
    pair.exchange()
    assert pair.body(number)[-1:] == b"b"
    assert pair.has_ended(number)


def test_a_cancelled_request_is_told_to_its_handler_and_forgotten() -> None:
    server = Server()
    server.echo.waits = True
    server.feed(OPENING, headers(1), reset(1, ErrorCode.CANCEL))
    assert server.echo.gone == [1]
    assert not server.connection.streams
    server.connection.respond(server.echo.complete[0], STATUS_200, b"late", TRAILERS)
    assert server.take() == b""


def test_the_end_of_the_connection_cancels_every_stream() -> None:
    server = Server()
    server.echo.waits = True
    server.feed(OPENING, headers(1), headers(3))
    server.connection.abandon()
    assert server.echo.gone == [1, 3]


def test_reading_stops_at_a_frame_while_it_is_paused() -> None:
    server = Server()
    server.feed(OPENING)
    server.paused = True
    assert server.feed(headers(1)) == b""
    assert server.connection.has_unread
    server.paused = False
    assert server.feed(b"") != b""


def test_any_division_of_the_bytes_is_read_alike() -> None:
    whole = OPENING + headers(1, 0x4) + frame(DATA, 0, 1, b"ab") + frame(DATA, 1, 1, b"cd") + headers(3)
    expected = Server().feed(whole)
    for at in range(1, len(whole)):
        assert Server().feed(whole[:at], whole[at:]) == expected
    assert Server().feed(*[whole[i : i + 1] for i in range(len(whole))]) == expected


FAULTS = {
    "another preface": (b"GET / HTTP/1.1\r\n\r\n12345678901", ErrorCode.PROTOCOL_ERROR),
    "no settings first": (PREFACE + headers(1), ErrorCode.PROTOCOL_ERROR),
    "an even stream": (OPENING + headers(2), ErrorCode.PROTOCOL_ERROR),
    "stream 0": (OPENING + headers(0), ErrorCode.PROTOCOL_ERROR),
    "data for an idle stream": (OPENING + frame(DATA, 0, 5, b"x"), ErrorCode.PROTOCOL_ERROR),
    "data for stream 0": (OPENING + frame(DATA, 0, 0, b"x"), ErrorCode.PROTOCOL_ERROR),
    "data for an ended stream": (OPENING + headers(1) + frame(DATA, 1, 1, b"x"), ErrorCode.STREAM_CLOSED),
    "headers for an ended stream": (OPENING + headers(1) + headers(1), ErrorCode.STREAM_CLOSED),
    "an earlier stream": (OPENING + headers(5) + headers(3), ErrorCode.STREAM_CLOSED),
    "a reset of an idle stream": (OPENING + reset(1, ErrorCode.CANCEL), ErrorCode.PROTOCOL_ERROR),
    "a window for an idle stream": (OPENING + window_update(1, 5), ErrorCode.PROTOCOL_ERROR),
    "a window of 0": (OPENING + window_update(0, 0), ErrorCode.PROTOCOL_ERROR),
    "a window too large": (OPENING + window_update(0, (1 << 31) - 1), ErrorCode.FLOW_CONTROL_ERROR),
    "an initial window too large": (
        OPENING + frame(FrameType.SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 31)),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "a frame size too small": (
        OPENING + frame(FrameType.SETTINGS, 0, 0, struct.pack(">HI", 5, 100)),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "push enabled twice": (
        OPENING + frame(FrameType.SETTINGS, 0, 0, struct.pack(">HI", 2, 2)),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "settings of 5 octets": (OPENING + frame(FrameType.SETTINGS, 0, 0, b"12345"), ErrorCode.FRAME_SIZE_ERROR),
    "settings of a stream": (OPENING + frame(FrameType.SETTINGS, 0, 1, b""), ErrorCode.PROTOCOL_ERROR),
    "an acknowledgement with a payload": (
        OPENING + frame(FrameType.SETTINGS, 1, 0, b"x" * 6),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "a ping of 7 octets": (OPENING + frame(FrameType.PING, 0, 0, b"1234567"), ErrorCode.FRAME_SIZE_ERROR),
    "a ping of a stream": (OPENING + frame(FrameType.PING, 0, 1, b"12345678"), ErrorCode.PROTOCOL_ERROR),
    "a promise": (OPENING + frame(FrameType.PUSH_PROMISE, 4, 1, LONG.pack(2)), ErrorCode.PROTOCOL_ERROR),
    "a goodbye of a stream": (OPENING + frame(FrameType.GOAWAY, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "a short goodbye": (OPENING + frame(FrameType.GOAWAY, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
    "a continuation of nothing": (OPENING + frame(FrameType.CONTINUATION, 4, 1, b""), ErrorCode.PROTOCOL_ERROR),
    "a frame within a header block": (
        OPENING + headers(1, 0x1) + frame(FrameType.PING, 0, 0, bytes(8)),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "another stream within a header block": (
        OPENING + headers(1, 0x1) + frame(FrameType.CONTINUATION, 4, 3, b""),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "a header block that is none": (
        OPENING + frame(HEADERS, 5, 1, b"\xff\xff\xff\xff\xff\xff"),
        ErrorCode.COMPRESSION_ERROR,
    ),
    "an index beyond the table": (OPENING + frame(HEADERS, 5, 1, b"\xfe"), ErrorCode.COMPRESSION_ERROR),
    "a frame beyond the size": (OPENING + (16_385).to_bytes(3, "big") + bytes(6), ErrorCode.FRAME_SIZE_ERROR),
    "more padding than payload": (OPENING + headers(1, 4) + frame(DATA, 8, 1, b"\x05abc"), ErrorCode.PROTOCOL_ERROR),
    "priority for stream 0": (OPENING + frame(FrameType.PRIORITY, 0, 0, bytes(5)), ErrorCode.PROTOCOL_ERROR),
    "headers that depend on themselves": (
        OPENING + frame(HEADERS, 0x25, 1, LONG.pack(1) + b"\x00"),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "headers without their priority": (OPENING + frame(HEADERS, 0x25, 1, b"1"), ErrorCode.FRAME_SIZE_ERROR),
    "a short reset": (OPENING + headers(1, 4) + frame(FrameType.RST_STREAM, 0, 1, b"1"), ErrorCode.FRAME_SIZE_ERROR),
    "a short window": (OPENING + frame(FrameType.WINDOW_UPDATE, 0, 0, b"1"), ErrorCode.FRAME_SIZE_ERROR),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_connection_sends_goaway(name: str) -> None:
    data, code = FAULTS[name]
    server = Server()
    server.echo.waits = name == "nothing"
    last = cut(server.feed(data))[-1]
    assert last[0] == FrameType.GOAWAY
    assert last[3][4:8] == LONG.pack(code)
    assert server.code is code
    assert server.feed(headers(101)) == b""


STREAM_FAULTS = {
    "trailers that do not end": (
        headers(1, 4) + frame(HEADERS, 4, 1, encode([(b"a", b"b")])),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "a pseudo-header in trailers": (
        headers(1, 4) + frame(HEADERS, 5, 1, encode(REQUEST[:1])),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "no path": (frame(HEADERS, 5, 1, encode(REQUEST[:2])), ErrorCode.PROTOCOL_ERROR),
    "an empty path": (frame(HEADERS, 5, 1, encode([*REQUEST[:2], (b":path", b"")])), ErrorCode.PROTOCOL_ERROR),
    "a path twice": (frame(HEADERS, 5, 1, encode([*REQUEST[:3], REQUEST[2]])), ErrorCode.PROTOCOL_ERROR),
    "a late pseudo-header": (frame(HEADERS, 5, 1, encode([(b"a", b"b"), *REQUEST])), ErrorCode.PROTOCOL_ERROR),
    "an unknown pseudo-header": (frame(HEADERS, 5, 1, encode([(b":x", b"b"), *REQUEST])), ErrorCode.PROTOCOL_ERROR),
    "a name in capitals": (frame(HEADERS, 5, 1, encode([*REQUEST, (b"A", b"b")])), ErrorCode.PROTOCOL_ERROR),
    "connection": (frame(HEADERS, 5, 1, encode([*REQUEST, (b"connection", b"b")])), ErrorCode.PROTOCOL_ERROR),
    "te": (frame(HEADERS, 5, 1, encode([*REQUEST[:3], (b"te", b"gzip")])), ErrorCode.PROTOCOL_ERROR),
    "a window of 0": (headers(1, 4) + window_update(1, 0), ErrorCode.PROTOCOL_ERROR),
    "a window too large": (headers(1, 4) + window_update(1, (1 << 31) - 1), ErrorCode.FLOW_CONTROL_ERROR),
    "a priority of 4 octets": (headers(1, 4) + frame(FrameType.PRIORITY, 0, 1, bytes(4)), ErrorCode.FRAME_SIZE_ERROR),
    "a stream that depends on itself": (
        headers(1, 4) + frame(FrameType.PRIORITY, 0, 1, LONG.pack(1) + b"\x00"),
        ErrorCode.PROTOCOL_ERROR,
    ),
}


@pytest.mark.parametrize("name", STREAM_FAULTS)
def test_a_fault_of_a_stream_resets_it_and_leaves_the_others(name: str) -> None:
    data, code = STREAM_FAULTS[name]
    server = Server()
    got = cut(server.feed(OPENING, data))
    assert (FrameType.RST_STREAM, 0, 1, LONG.pack(code)) in got
    assert server.code is None
    assert (DATA, 0, 3, b"") in cut(server.feed(headers(3)))


def test_a_request_whose_answer_waits_refuses_more_data() -> None:
    server = Server()
    server.echo.waits = True
    got = cut(server.feed(OPENING, headers(1), frame(DATA, 0, 1, b"more")))
    assert got[-1] == (FrameType.RST_STREAM, 0, 1, LONG.pack(ErrorCode.STREAM_CLOSED))


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize(
    "flood",
    [
        [frame(FrameType.PING, 0, 0, bytes(8))],
        [frame(FrameType.PING, 1, 0, bytes(8))],
        [settings({})],
        [frame(FrameType.SETTINGS, 1, 0, b"")],
        [frame(FrameType.PRIORITY, 0, 1, LONG.pack(3) + b"\x00")],
        [frame(DATA, 0, 1, b"")],
        [frame(DATA, 8, 1, b"\x00")],
        [window_update(0, 1)],
        [frame(0xF0, 0, 0, b"")],
        [frame(FrameType.GOAWAY, 0, 0, bytes(8))],
    ],
)
def test_a_flood_of_frames_without_requests_ends_the_connection(flood: list[bytes]) -> None:
    server = Server(patience=300)
    server.feed(OPENING, headers(1, 4))
    for _ in range(301):
        server.feed(*flood)
    assert server.code is ErrorCode.ENHANCE_YOUR_CALM
    assert server.echo.gone == [1]


@pytest.mark.rule("FAIR-3")
def test_rapid_reset_ends_the_connection() -> None:
    server = Server()
    server.echo.waits = True
    server.feed(OPENING)
    opened = 0
    for number in range(1, 100_001, 2):
        server.feed(headers(number, 4), reset(number, ErrorCode.CANCEL))
        opened += 1
        if server.code is not None:
            break
    assert server.code is ErrorCode.ENHANCE_YOUR_CALM
    assert opened < 300


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize(
    "fault", [window_update(1, 0), frame(FrameType.PRIORITY, 0, 1, b""), frame(HEADERS, 4, 1, b"")]
)
def test_provoking_resets_ends_the_connection(fault: bytes) -> None:
    server = Server()
    server.echo.waits = True
    server.feed(OPENING)
    opened = 0
    for number in range(1, 100_001, 2):
        server.feed(headers(number, 4), fault[:5] + LONG.pack(number) + fault[9:])
        opened += 1
        if server.code is not None:
            break
    assert server.code is not None
    assert opened < 300


def test_cancelling_polls_that_were_answered_costs_no_patience() -> None:
    server = Server()
    server.feed(OPENING)
    for number in range(1, 4001, 2):
        server.feed(headers(number), reset(number, ErrorCode.CANCEL))
    assert server.code is None


@pytest.mark.rule("FAIR-3")
def test_a_header_block_without_end_ends_the_connection() -> None:
    server = Server(header_block=1000)
    server.feed(OPENING, frame(HEADERS, 0, 1, bytes(500)))
    server.feed(frame(FrameType.CONTINUATION, 0, 1, bytes(501)))
    assert server.code is ErrorCode.ENHANCE_YOUR_CALM
    empty = Server(patience=100)
    empty.feed(OPENING, frame(HEADERS, 0, 1, b""))
    for _ in range(20):
        empty.feed(frame(FrameType.CONTINUATION, 0, 1, b""))
    assert empty.code is ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.rule("FAIR-3")
def test_a_small_block_that_expands_to_many_headers_ends_the_connection() -> None:
    server = Server()
    long = b"\x40\x01a" + b"\x7f\x81\x1e" + b"v" * 4000  # adds a header of 4,000 octets to the table
    bomb = encode(REQUEST[:3]) + long + b"\xbe" * 1000  # and repeats it by its index
    server.feed(OPENING, frame(HEADERS, 5, 1, bomb))
    assert server.code is ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.rule("FAIR-3")
def test_more_data_than_the_windows_allow_is_refused() -> None:
    server = Server(stream_window=1000)
    got = cut(server.feed(OPENING, headers(1, 4), frame(DATA, 0, 1, bytes(1001))))
    assert (FrameType.RST_STREAM, 0, 1, LONG.pack(ErrorCode.FLOW_CONTROL_ERROR)) in got
    small = Server(connection_window=70_000)
    small.connection._window = 10
    small.feed(OPENING, headers(1, 4), frame(DATA, 0, 1, bytes(11)))
    assert small.code is ErrorCode.FLOW_CONTROL_ERROR


@pytest.mark.rule("FAIR-3")
def test_responses_that_the_client_does_not_let_through_are_bounded() -> None:
    server = Server(unsent=10_000)
    server.feed(OPENING + frame(FrameType.SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
    for number in range(1, 1001, 2):
        server.feed(headers(number, 4), frame(DATA, 1, number, bytes(100)))
    assert server.code is ErrorCode.ENHANCE_YOUR_CALM
    assert server.connection.sender.unsent == 0


@pytest.mark.rule("FAIR-3")
def test_streams_beyond_the_limit_are_refused_and_may_be_tried_again() -> None:
    server = Server(streams=2)
    server.echo.waits = True
    got = cut(server.feed(OPENING, headers(1), headers(3), headers(5)))
    assert got[-1] == (FrameType.RST_STREAM, 0, 5, LONG.pack(ErrorCode.REFUSED_STREAM))
    server.connection.respond(server.echo.complete[0], STATUS_200, b"", TRAILERS)
    server.feed(headers(7))
    assert len(server.echo.complete) == 3


FRAMES = st.builds(frame, st.integers(0, 11), st.integers(0, 255), st.integers(0, 9), st.binary(max_size=40))
GOOD = st.sampled_from(
    [headers(1), headers(3, 4), headers(5), frame(DATA, 1, 3, b"x"), window_update(0, 9), settings({})]
)


@given(st.lists(st.one_of(FRAMES, GOOD, st.binary(max_size=30)), max_size=30))
def test_no_input_raises(chunks: list[bytes]) -> None:
    server = Server()
    server.feed(OPENING, *chunks)
    assert server.connection.fault is None or server.connection.is_closed
    server.connection.abandon()
    assert server.connection.sender.unsent == 0
