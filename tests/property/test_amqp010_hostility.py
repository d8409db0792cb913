"""Whatever a client sends, it gets an answer or an error of the specification, and others are served as before."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from escrowmq.wire.amqp010.codec.commands import encode_command, encode_control
from escrowmq.wire.amqp010.codec.errors import CodecError
from escrowmq.wire.amqp010.codec.frames import COMMAND, CONTROL, FRAME_HEAD, HEAD_SIZE, assembly
from escrowmq.wire.amqp010.codec.spec import (
    COMMANDS,
    CONTROLS,
    CreditUnit,
    DtxEnd,
    DtxSelect,
    DtxStart,
    FlowMode,
    MessageAccept,
    MessageAcquire,
    MessageFlow,
    MessageFlush,
    MessageReject,
    MessageRelease,
    MessageSetFlowMode,
    MessageStop,
    MessageSubscribe,
    MessageTransfer,
    SessionCompleted,
    SessionFlush,
    SessionGap,
    TxCommit,
    TxRollback,
    TxSelect,
    Xid,
)
from escrowmq.wire.amqp010.codec.structs import Command
from tests.unit.wire.amqp010.clients import Client, server
from tests.unit.wire.amqp010.codec.strategies import compounds
from tests.unit.wire.amqp010.messaging import octets, publish, queue, subscribe

CHANNELS = st.sampled_from([1, 1, 1, 2, 3])
NUMBERS = st.sampled_from([0, 1, 2, 3, 5, 8, 0x7FFFFFFF, 0xFFFFFFFF])
RANGES = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3).map(tuple)
NAMES = st.sampled_from(["d", "e", ""])
QUEUES = st.sampled_from(["q", "r", "none"])
XIDS = st.builds(Xid, st.just(1), st.sampled_from([b"a", b"b"]), st.just(b""))
FITTING = st.one_of(
    st.builds(MessageSubscribe, QUEUES, NAMES, st.integers(0, 1), st.integers(0, 1)),
    st.builds(MessageFlow, NAMES, st.sampled_from(list(CreditUnit)), NUMBERS),
    st.builds(MessageSetFlowMode, NAMES, st.sampled_from(list(FlowMode))),
    st.builds(MessageFlush, NAMES),
    st.builds(MessageStop, NAMES),
    st.builds(MessageAccept, RANGES),
    st.builds(MessageAcquire, RANGES),
    st.builds(MessageRelease, RANGES, st.booleans()),
    st.builds(MessageReject, RANGES),
    st.builds(TxSelect),
    st.builds(TxCommit),
    st.builds(TxRollback),
    st.builds(DtxSelect),
    st.builds(DtxStart, XIDS, st.booleans()),
    st.builds(DtxEnd, XIDS, st.booleans(), st.booleans()),
    st.builds(SessionCompleted, RANGES, st.booleans()),
    st.builds(SessionFlush, st.booleans(), st.booleans(), st.booleans()),
    st.builds(SessionGap, RANGES),
)
"""Commands and controls that often fit into what a session does."""
ANY = st.one_of([compounds(kind) for kind in (*COMMANDS.values(), *CONTROLS.values())])


def frames(operation: Any, channel: int) -> bytes:
    """Return the frames of an operation; nothing if it has no encoding."""
    kind = COMMAND if isinstance(operation, Command) else CONTROL
    try:
        payload = encode_command(operation) if kind == COMMAND else encode_control(operation)
    except CodecError:
        return b""
    return b"".join(assembly(channel, [(kind, payload)], 4096))


def damaged(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    """Change octets behind the heads of frames, which are known to end the connection."""
    found = bytearray(data)
    for place, octet in changes:
        if len(found) > HEAD_SIZE:
            found[HEAD_SIZE + place % (len(found) - HEAD_SIZE)] = octet
    return bytes(found)


CHANGES = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("fits"), FITTING, CHANNELS, st.just([])),
        st.tuples(st.just("any"), ANY, CHANNELS, st.just([])),
        st.tuples(st.just("damaged"), FITTING, CHANNELS, CHANGES),
        st.tuples(st.just("message"), st.binary(max_size=200), CHANNELS, CHANGES),
        st.tuples(st.just("raw"), st.binary(max_size=60), CHANNELS, st.just([])),
    ),
    max_size=25,
)


@pytest.mark.rule("FAIR-1")
@given(STEPS, st.data())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
def test_hostile_commands_harm_nobody_else(steps: list[Any], data: st.DataObject) -> None:
    made = server(unsettled=8)
    hostile, other = Client(made), Client(made, attaches=False)
    other.attach(1, b"other")
    for name in ("q", "r"):
        queue(made, name)
    queue(made, "own")
    hostile.attach(2)
    hostile.sent[3] = 0  # a channel without a session
    publish(hostile, *[b"%d" % number for number in range(5)])
    whole = b""
    for kind, what, channel, changes in steps:
        if kind == "message":
            whole += damaged(octets(hostile, what, data.draw(QUEUES), mode=0), changes)
        elif kind == "raw":
            whole += FRAME_HEAD.pack(
                15, data.draw(st.sampled_from([COMMAND, CONTROL])), HEAD_SIZE + len(what), 1, channel
            )
            whole += what
        else:
            whole += damaged(frames(what, channel), changes)
    while whole and not hostile.port.endpoint.finished:
        cut = data.draw(st.integers(1, len(whole)))
        hostile.send_bytes(whole[:cut])
        hostile.inbox.clear()
        whole = whole[cut:]
    subscribe(other, "own")
    publish(other, b"served", key="own")
    served = [each.content.body for each in other.inbox if isinstance(each.operation, MessageTransfer) and each.content]
    assert served == [b"served"]
