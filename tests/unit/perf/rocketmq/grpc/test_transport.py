"""The client's side of HTTP/2, read by the library hpack and by the frames of the server."""

from __future__ import annotations

import pytest
from hpack import Decoder

from escrowmq.perf.errors import PerfError
from escrowmq.perf.rocketmq.grpc.transport import CallMessage, CallTemplate, GrpcTransport
from escrowmq.perf.rocketmq.properties import FIRST_NUMBER
from escrowmq.wire.http2 import frames
from escrowmq.wire.http2.frames import ErrorCode, Flag, FrameType

DATA = FrameType.DATA


def transport() -> GrpcTransport:
    return GrpcTransport("127.0.0.1:8081", "client")


def test_a_receiver_of_all_blocks_reads_the_same_headers_each_time() -> None:
    sender, decoder = transport(), Decoder()
    found = [dict(decoder.decode(sender.block("SendMessage"), raw=True)) for _ in range(3)]
    assert found[0] == found[1] == found[2]
    assert found[0][b":path"] == b"/apache.rocketmq.v2.MessagingService/SendMessage"
    assert found[0][b"x-mq-client-id"] == b"client"


def test_a_call_has_its_stream_and_its_number_everywhere() -> None:
    template = CallTemplate(b"head", b"id%d" % FIRST_NUMBER, fixed=False)
    data = template.call(9, 42)
    assert data == frames.frame(FrameType.HEADERS, Flag.END_HEADERS, 9, b"head") + frames.frame(
        DATA, Flag.END_STREAM, 9, b"\0\0\0\0\x0cid1000000042"
    )


def test_an_id_that_was_given_by_the_broker_stays_as_it_is() -> None:
    assert b"%d" % FIRST_NUMBER in CallTemplate(b"head", b"%d" % FIRST_NUMBER).call(1, 42)


def test_a_long_request_is_divided_into_frames() -> None:
    data = CallTemplate(b"", bytes(20_000)).call(3, 0)
    assert len(data) == 3 * frames.HEAD_SIZE + 20_005


def test_messages_are_joined_over_frames() -> None:
    whole = b"\0\0\0\0\x05hello"
    data = bytearray(frames.frame(DATA, 0, 1, whole[:3]) + frames.frame(DATA, 0, 1, whole[3:] + whole))
    data += frames.frame(FrameType.HEADERS, Flag.END_STREAM | Flag.END_HEADERS, 1, b"\x88")
    used, found = transport().receive(data, len(data))
    assert used == len(data)
    assert found == [CallMessage(1, b"hello"), CallMessage(1, b"hello"), CallMessage(1, None)]


def test_the_server_is_answered() -> None:
    client = transport()
    client.control.clear()
    data = bytearray(frames.settings({}) + frames.frame(FrameType.PING, 0, 0, b"12345678") + frames.window_update(0, 5))
    window = client.window
    client.receive(data, len(data))
    assert client.control == [
        frames.frame(FrameType.SETTINGS, Flag.ACK, 0, b""),
        frames.frame(FrameType.PING, Flag.ACK, 0, b"12345678"),
    ]
    assert client.window == window + 5


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frames.go_away(0, ErrorCode.NO_ERROR, "bye"), "closed the connection: bye"),
        (frames.reset(1, ErrorCode.CANCEL), "reset a call with error 8"),
    ],
)
def test_an_end_is_an_error(data: bytes, reason: str) -> None:
    with pytest.raises(PerfError, match=reason):
        transport().receive(bytearray(data), len(data))
