"""Frames of several sessions of one connection in any order: each session is served as if it were alone."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from escrowmq.wire.amqp010.codec.commands import encode_header
from escrowmq.wire.amqp010.codec.frames import FRAME_HEAD
from escrowmq.wire.amqp010.codec.spec import (
    DeliveryProperties,
    DtxCommit,
    DtxEnd,
    DtxPrepare,
    DtxSelect,
    DtxStart,
    ExecutionResult,
    MessageTransfer,
    QueueDeclare,
    SessionCompleted,
    TxCommit,
    TxRollback,
    TxSelect,
    XaResult,
    XaStatus,
    Xid,
)
from escrowmq.wire.amqp010.codec.structs import Command
from tests.unit.wire.amqp010.clients import Client
from tests.unit.wire.amqp091.clients import bodies

CHANNELS = (1, 2, 3)
HEADS = {channel: encode_header([DeliveryProperties(routing_key=f"q{channel}")]) for channel in CHANNELS}
SIZES = st.lists(st.integers(0, 90), min_size=1, max_size=4)


def scripts(channel: int) -> st.SearchStrategy[tuple[list[tuple[Any, bytes | None]], list[bytes]]]:
    """The commands of a session with their bodies, and the messages that they leave in its queue."""

    def script(kind: str, sizes: list[int]) -> tuple[list[tuple[Any, bytes | None]], list[bytes]]:
        sent = [b"%d" % number + bytes(size) for number, size in enumerate(sizes)]
        xid = Xid(1, b"g", b"%d" % channel)
        transfers: list[tuple[Any, bytes | None]] = [(MessageTransfer("", 1, 0), body) for body in sent]
        around: dict[str, tuple[list[Command], list[Command]]] = {
            "plain": ([], []),
            "commit": ([TxSelect()], [TxCommit()]),
            "rollback": ([TxSelect()], [TxRollback()]),
            "two phases": ([DtxSelect(), DtxStart(xid)], [DtxEnd(xid), DtxPrepare(xid), DtxCommit(xid)]),
        }
        before, after = around[kind]
        commands = [*((each, None) for each in before), *transfers, *((each, None) for each in after)]
        return commands, [] if kind == "rollback" else sent

    return st.builds(script, st.sampled_from(("plain", "commit", "rollback", "two phases")), SIZES)


def frames(octets: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(octets):
        size = FRAME_HEAD.unpack_from(octets, at)[2]
        found.append(octets[at : at + size])
        at += size
    return found


@settings(max_examples=100, deadline=None)
@given(st.tuples(*map(scripts, CHANNELS)), st.randoms(use_true_random=False), st.integers(1, 400))
def test_sessions_do_not_disturb_each_other(scripts: Any, order: Any, read: int) -> None:
    client = Client(attaches=False)
    for channel in CHANNELS:
        client.attach(channel)
        client.do(QueueDeclare(f"q{channel}"), channel=channel)
    client.frame_max = 40
    waiting: dict[int, list[bytes]] = {}
    for channel, (commands, _) in zip(CHANNELS, scripts, strict=True):
        octets = [
            client.octets(each, channel=channel, header=None if body is None else HEADS[channel], body=body)
            for each, body in commands
        ]
        waiting[channel] = frames(b"".join(octets))
    stream = b""
    while waiting:
        channel = order.choice(sorted(waiting))
        stream += waiting[channel].pop(0)
        if not waiting[channel]:
            del waiting[channel]
    for at in range(0, len(stream), read):
        client.send_bytes(stream[at : at + read])
    client.send_bytes(b"")
    complete: dict[int, set[int]] = {channel: set() for channel in CHANNELS}
    for channel, operation, _ in client.inbox:
        assert isinstance(operation, SessionCompleted | ExecutionResult), operation
        if isinstance(operation, ExecutionResult):
            assert operation.value == XaResult(XaStatus.XA_OK)
        else:
            complete[channel] |= {one for first, last in operation.commands or () for one in range(first, last + 1)}
    for channel, (commands, left) in zip(CHANNELS, scripts, strict=True):
        assert complete[channel] == set(range(1, 1 + len(commands)))
        assert bodies(client.server, f"q{channel}") == left
