"""The broker's own CPU time per message of AMQP 0-10: endpoint, core and journal in one process, without sockets.

python bench/amqp010_path.py [--count 200000] [--only durable] [--profile]

It is `hot_path.py` for AMQP 0-10. The messages have about 100 bytes; varied ones have an id, a time and an application
header of their own. One connection publishes and one consumes in window mode. It completes the deliveries of each
block, and accepts them if they are not settled already.
"""

from __future__ import annotations

import cProfile
import gc
import tempfile
import time
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from uuid import UUID

import click

from bench.hot_path import BLOCK, BODY_SIZE, DISTINCT_BLOCKS, UNIFORM, VARIED, Host
from escrowmq.core.queues.queue import Session
from escrowmq.core.topology.declaration import Declaration
from escrowmq.perf.messages import LoadMessage, Variety, messages
from escrowmq.wire.amqp010.codec.commands import encode_command, encode_control, encode_header
from escrowmq.wire.amqp010.codec.frames import BODY, COMMAND, CONTROL, HEADER, PROTOCOL_HEADER, Segment, assembly
from escrowmq.wire.amqp010.codec.spec import (
    AcceptMode,
    AcquireMode,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    CreditUnit,
    DeliveryMode,
    DeliveryProperties,
    MessageAccept,
    MessageFlow,
    MessageProperties,
    MessageSubscribe,
    MessageTransfer,
    SessionAttach,
    SessionCommandPoint,
    SessionCompleted,
)
from escrowmq.wire.amqp010.codec.structs import Command, Control
from escrowmq.wire.amqp010.connection import Connection
from escrowmq.wire.amqp010.credit import INFINITE
from escrowmq.wire.endpoint import Peer

FRAME_MAX = 65_535
CHANNEL = 1
WINDOW = 2 * BLOCK


@dataclass(frozen=True)
class Load010:
    """A way of publishing and consuming. `accepts` is the accept-mode of the consumer."""

    name: str
    accepts: AcceptMode = AcceptMode.EXPLICIT
    durable: bool = False
    variety: Variety = UNIFORM


LOADS = (
    Load010("settled, transient", AcceptMode.NONE),
    Load010("settled, transient, varied", AcceptMode.NONE, variety=VARIED),
    Load010("accepted, durable", durable=True),
    Load010("accepted, durable, varied", durable=True, variety=VARIED),
)


def control(each: Control, channel: int = CHANNEL) -> bytes:
    """Return the frames of a control."""
    return b"".join(assembly(channel, [(CONTROL, encode_control(each))], FRAME_MAX))


def command(each: Command) -> bytes:
    """Return the frames of a command without content."""
    return b"".join(assembly(CHANNEL, [(COMMAND, encode_command(each))], FRAME_MAX))


def connect(host: Host, name: bytes) -> Connection:
    """Return a connection with a session."""
    connection = Connection(host, Peer("127.0.0.1", 1, loopback=True))
    connection.receive(
        PROTOCOL_HEADER
        + control(ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US"), 0)
        + control(ConnectionTuneOk(100, FRAME_MAX, 0), 0)
        + control(ConnectionOpen("/"), 0)
        + control(SessionAttach(name))
        + control(SessionCommandPoint(0, 0))
    )
    host.turn()
    return connection


def transfer(load: Load010, message: LoadMessage) -> bytes:
    """Return the frames of a message to the queue `q`."""
    delivery = DeliveryProperties(
        priority=4,
        delivery_mode=DeliveryMode.PERSISTENT if load.durable else DeliveryMode.NON_PERSISTENT,
        timestamp=message.timestamp,
        exchange="",
        routing_key="q",
    )
    own = MessageProperties(
        content_length=len(message.body),
        message_id=None if message.message_id is None else UUID(message.message_id).bytes,
        correlation_id=None if message.correlation_id is None else message.correlation_id.encode(),
        content_type="application/octet-stream",
        application_headers=None if message.headers is None else dict(message.headers),
    )
    segments: list[Segment] = [
        (COMMAND, encode_command(MessageTransfer("", AcceptMode.NONE, AcquireMode.PRE_ACQUIRED))),
        (HEADER, encode_header([delivery, own])),
        (BODY, message.body),
    ]
    return b"".join(assembly(CHANNEL, segments, FRAME_MAX))


def measure(load: Load010, count: int, profiler: cProfile.Profile | None) -> float:
    """Return the CPU time per message, in microseconds."""
    with tempfile.TemporaryDirectory(prefix="escrowmq-amqp010-path-") as folder:
        host = Host(Path(folder))
        directory = host.broker.directory
        queue = directory.declare_queue(directory.vhost("/"), "q", Declaration(durable=load.durable), Session("bench"))
        publisher, consumer = connect(host, b"p"), connect(host, b"c")
        subscription = MessageSubscribe("q", "d", load.accepts, AcquireMode.PRE_ACQUIRED)
        consumer.receive(command(subscription) + command(MessageFlow("d", CreditUnit.BYTE, INFINITE)))
        consumer.receive(command(MessageFlow("d", CreditUnit.MESSAGE, WINDOW)))
        host.turn()
        distinct = 1 if load.variety.uniform else min(count // BLOCK, DISTINCT_BLOCKS)
        frames = [transfer(load, each) for each in messages(load.variety, BODY_SIZE, distinct * BLOCK)]
        published = cycle([b"".join(frames[at : at + BLOCK]) for at in range(0, len(frames), BLOCK)])
        blocks = [(next(published), answers(load, first)) for first in range(0, count, BLOCK)]
        gc.collect()
        if profiler is not None:
            profiler.enable()
        started = time.process_time()
        for transfers, completed in blocks:
            publisher.receive(transfers)
            host.turn()
            consumer.receive(completed)
            host.turn()
        spent = time.process_time() - started
        if profiler is not None:
            profiler.disable()
        left = queue.ready + queue.unsettled
        host.close()
        if left:
            raise RuntimeError(f"{load.name}: {left} messages were not delivered and settled")
        return spent / count * 1e6


def answers(load: Load010, first: int) -> bytes:
    """Return the completion of a block of deliveries, and their acceptance."""
    ranges = ((first, first + BLOCK - 1),)
    accepted = command(MessageAccept(ranges)) if load.accepts is AcceptMode.EXPLICIT else b""
    return control(SessionCompleted(ranges)) + accepted


@click.command()
@click.option("--count", default=200_000, show_default=True, help="The number of messages of each load.")
@click.option("--only", default="", help="Measure only the loads whose name contains this.")
@click.option("--profile", is_flag=True, help="Print a profile. Profiling makes everything slower.")
def main(count: int, only: str, *, profile: bool) -> None:
    """Print the CPU time per message, in microseconds, for several loads."""
    for load in LOADS:
        if only not in load.name:
            continue
        profiler = cProfile.Profile() if profile else None
        click.echo(f"{load.name:42}{measure(load, count, profiler):6.2f} us")
        if profiler is not None:
            profiler.print_stats("tottime")


if __name__ == "__main__":
    main()
