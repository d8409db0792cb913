"""A call ends once, whoever ends it."""

from __future__ import annotations

import pytest

from escrowmq.wire.http2.stream import Stream
from escrowmq.wire.rocketmq.grpc.calls import Call
from escrowmq.wire.rocketmq.grpc.status import GrpcFault, GrpcStatus
from escrowmq.wire.rocketmq.proto.service_pb2 import HeartbeatResponse, TelemetryCommand
from tests.unit.wire.http2.peer import OPENING, Server, cut, headers


def begun(**fields: str) -> tuple[Server, Call]:
    server = Server()
    server.echo.waits = True
    server.feed(OPENING, headers(1))
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    stream: Stream = server.connection.streams[1]
    return server, Call(server.connection, stream, given, 1000)


def test_a_call_is_answered_once() -> None:
    server, call = begun()
    ended = []
    call.on_end = lambda: ended.append(1)
    call.answer(HeartbeatResponse())
    call.answer(HeartbeatResponse())
    call.fail(GrpcFault(GrpcStatus.INTERNAL, "x"))
    call.finish()
    call.over()
    assert [kind for kind, *_ in cut(server.take())] == [1, 0, 1]
    assert ended == [1]


def test_a_stream_of_responses_begins_with_a_head_and_ends_with_trailers() -> None:
    server, call = begun()
    assert call.writable
    call.send(TelemetryCommand())
    call.send(TelemetryCommand())
    call.finish()
    assert [kind for kind, *_ in cut(server.take())] == [1, 0, 0, 1]
    assert not call.writable


def test_a_call_without_responses_has_only_trailers() -> None:
    server, call = begun()
    call.finish()
    assert [kind for kind, *_ in cut(server.take())] == [1]


def test_a_call_waits_for_the_log() -> None:
    server, call = begun()
    call.send(TelemetryCommand(), 50)
    call.finish()
    assert server.take() == b""
    server.outbox.release(50)
    assert [kind for kind, *_ in cut(server.take())] == [1, 0, 1]


@pytest.mark.rule("REPL-3")
def test_an_answer_from_memory_waits_for_a_proof() -> None:
    server, _ = begun()
    call = Call(server.connection, server.connection.streams[1], [], 1000, lambda after: max(after, 500))
    call.answer(HeartbeatResponse())
    assert server.take() == b""
    server.outbox.release(500)
    assert server.take()


def test_headers_are_texts_and_the_deadline_is_a_time() -> None:
    _, call = begun(grpc_timeout="2S", x_mq_client_id="c")
    assert (call.text(b"x-mq-client-id"), call.text(b"none"), call.due) == ("c", "", 3000)
    assert begun()[1].due is None
