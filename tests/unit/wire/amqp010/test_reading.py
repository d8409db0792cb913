"""Reading: messages in any frames, limits, the gate for publishes, and memory of incomplete messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp010 import execution
from escrowmq.wire.amqp010.codec.frames import FRAME_HEAD, PROTOCOL_HEADER
from escrowmq.wire.amqp010.codec.spec import (
    CloseCode,
    ConnectionClose,
    ConnectionStart,
    ErrorCode,
    ExecutionSync,
    MessageTransfer,
    SessionCompleted,
    SessionDetach,
    SessionDetached,
)
from escrowmq.wire.amqp010.ports import Content
from tests.unit.wire.amqp010.clients import Client, server

TRANSFER = MessageTransfer("e")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Content | None]:
    """Return the contents of the transfers that were executed."""
    found: list[Content | None] = []
    monkeypatch.setattr(
        execution, "HANDLERS", {MessageTransfer: lambda _session, _command, content: found.append(content)}
    )
    return found


@pytest.mark.parametrize("step", [1, 7, 100, 100_000])
@pytest.mark.parametrize("frame_max", [20, 4096, 65_535])
def test_a_message_arrives_in_any_frames_and_reads(seen: list[Content | None], frame_max: int, step: int) -> None:
    client = Client()
    client.frame_max = frame_max
    body = bytes(range(256)) * 3
    octets = client.octets(TRANSFER, header=b"header", body=body) + client.octets(TRANSFER, header=b"", body=b"last")
    for at in range(0, len(octets), step):
        client.server.receive(client.port, octets[at : at + step])
        client.server.end_turn()
    assert seen == [Content(b"header", body), Content(b"", b"last")]


@pytest.mark.parametrize(
    ("header", "body", "expected"),
    [
        (None, None, None),
        (b"h", None, Content(b"h", b"")),
        (None, b"b", Content(b"", b"b")),
        (b"", b"", Content(b"", b"")),
    ],
)
def test_segments_may_be_absent(
    seen: list[Content | None], header: bytes | None, body: bytes | None, expected: Content | None
) -> None:
    client = Client()
    client.do(TRANSFER, header=header, body=body)
    assert seen == [expected]


def test_messages_of_two_channels_interleave(seen: list[Content | None]) -> None:
    client = Client()
    client.attach(2)
    client.frame_max = 4096
    one = client.octets(TRANSFER, header=b"1", body=bytes(10_000))
    two = client.octets(TRANSFER, header=b"2", body=b"x", channel=2)
    cut = 0
    for _ in range(3):  # within the body
        cut += FRAME_HEAD.unpack_from(one, cut)[2]
    client.send_bytes(one[:cut] + two[:30])
    client.send_bytes(two[30:] + one[cut:])
    assert sorted(content.header for content in seen if content is not None) == [b"1", b"2"]


def test_a_control_may_come_within_a_message(seen: list[Content | None]) -> None:
    client = Client()
    octets = client.octets(TRANSFER, header=b"h", body=b"b")
    first = FRAME_HEAD.unpack_from(octets)[2]
    client.send_bytes(octets[:first] + client.control_octets(SessionCompleted(())) + octets[first:])
    assert seen == [Content(b"h", b"b")]


@pytest.mark.parametrize(
    ("limits", "header", "body"),
    [({"message_size": 100}, b"", bytes(101)), ({"header_size": 100}, bytes(101), b"")],
)
@pytest.mark.parametrize("frame_max", [40, 4096])
def test_what_is_too_large_is_refused(
    seen: list[Content | None], limits: dict[str, int], header: bytes, body: bytes, frame_max: int
) -> None:
    client = Client(server(**limits))
    client.frame_max = frame_max
    client.refused(TRANSFER, ErrorCode.RESOURCE_LIMIT_EXCEEDED, header=header, body=body)
    assert not seen
    client.attach(1)
    client.do(TRANSFER, header=b"", body=bytes(100) if "message_size" in limits else b"")


def test_a_detach_within_a_message_forgets_it(seen: list[Content | None]) -> None:
    client = Client()
    octets = client.octets(TRANSFER, header=b"h", body=b"b")
    client.send_bytes(octets[:-13])
    client.control(SessionDetach(b"session 1"))
    client.expect(SessionDetached)
    client.attach(1)
    client.do(TRANSFER, body=b"x")
    assert seen == [Content(b"", b"x")]


def test_publishes_wait_while_the_broker_is_blocked(seen: list[Content | None]) -> None:
    client = Client()
    client.port.endpoint.block("memory is short")
    client.do(ExecutionSync())
    client.send_bytes(client.octets(TRANSFER, body=b"x"))
    assert not seen
    assert client.server.waiters
    client.port.endpoint.block("")
    client.send_bytes(b"")
    assert seen == [Content(b"", b"x")]


def test_the_rest_of_a_message_waits_while_the_broker_is_blocked(seen: list[Content | None]) -> None:
    client = Client()
    octets = client.octets(TRANSFER, header=b"h", body=b"b")
    client.send_bytes(octets[:-13])
    client.port.endpoint.block("memory is short")
    client.send_bytes(octets[-13:])
    assert not seen
    client.port.endpoint.block("")
    client.send_bytes(b"")
    assert seen == [Content(b"h", b"b")]


def test_incomplete_messages_count_for_the_user(seen: list[Content | None]) -> None:
    client = Client()
    octets = client.octets(TRANSFER, header=b"h", body=bytes(1 << 20))
    client.send_bytes(octets[: 1 << 19])
    assert client.server.broker.holdings.of_user("guest") > 400_000
    client.send_bytes(octets[1 << 19 :])
    assert not client.server.broker.holdings.of_user("guest")
    assert len(seen) == 1


def test_incomplete_messages_beyond_the_limit_of_the_user_are_refused() -> None:
    client = Client()
    client.server.broker.holdings.user_limit = 300_000
    octets = client.octets(TRANSFER, header=b"h", body=bytes(1 << 20))
    client.send_bytes(octets[: 1 << 19])
    client.raised(ErrorCode.RESOURCE_LIMIT_EXCEEDED, 0)


@pytest.mark.parametrize("opens", [False, True])
def test_a_control_begins_only_on_a_channel_that_may_exist(*, opens: bool) -> None:
    """Otherwise, a connection could begin 65,536 of them, even before its login."""
    client = Client(server(channels=5), opens=opens)
    if not opens:
        client.send_bytes(PROTOCOL_HEADER)
        client.expect(ConnectionStart)
    last = 5 if opens else 0
    client.send_bytes(FRAME_HEAD.pack(14, 0, 12, 0, last))
    assert not client.inbox
    client.send_bytes(FRAME_HEAD.pack(14, 0, 12, 0, last + 1))
    assert client.expect(ConnectionClose).reply_code == CloseCode.FRAMING_ERROR


def test_controls_that_never_end_are_refused() -> None:
    client = Client(server(frame_max=65_535))
    frame = FRAME_HEAD.pack(14, 0, 60_012, 0, 1) + bytes(60_000)
    client.send_bytes(frame)
    for _ in range(2):
        client.send_bytes(FRAME_HEAD.pack(12, 0, 60_012, 0, 1) + bytes(60_000))
    assert client.expect(ConnectionClose).reply_code == CloseCode.FRAMING_ERROR


def test_a_command_before_the_connection_is_open_is_refused() -> None:
    client = Client(opens=False)
    client.log_in()
    client.tune()
    client.sent[1] = 0
    client.command(ExecutionSync())
    assert client.expect(ConnectionClose).reply_code == CloseCode.FRAMING_ERROR


def test_one_read_takes_many_commands_in_several_turns() -> None:
    client = Client()
    client.server.receive(client.port, client.octets(ExecutionSync()) * 500)
    client.server.end_one_turn()
    client.collect()
    first = client.expect(SessionCompleted).commands
    assert first is not None
    assert first[0][1] < 499
    client.send_bytes(b"")
    last = 0
    while client.inbox:
        commands = client.expect(SessionCompleted).commands
        assert commands is not None
        last = commands[0][1]
    assert last == 499


@given(
    frames=st.lists(
        st.tuples(st.integers(0, 15), st.integers(0, 3), st.integers(1, 2), st.binary(max_size=30)), max_size=8
    )
)
def test_any_sequence_of_frames_is_answered_or_refused(frames: list[tuple[int, int, int, bytes]]) -> None:
    client = Client()
    client.attach(2)
    for flags, kind, channel, payload in frames:
        client.send_bytes(FRAME_HEAD.pack(flags, kind, len(payload) + 12, kind != 0, channel) + payload)
    Client(client.server, attaches=False)
