"""The broker's own CPU time per message of AMQP 1.0: endpoint, core and journal in one process, without sockets.

python bench/amqp10_path.py [--count 200000] [--only durable] [--profile]

It is `hot_path.py` for AMQP 1.0. The messages have about 100 bytes; varied ones have ids, a time and an application
property of their own. One connection publishes and one consumes, each fed blocks of a thousand frames, encoded
beforehand.
"""

from __future__ import annotations

import cProfile
import gc
import tempfile
import time
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import click

from bench.hot_path import BLOCK, BODY_SIZE, DISTINCT_BLOCKS, UNIFORM, VARIED, Host
from escrowmq.perf.messages import Variety, messages
from escrowmq.wire.amqp10.codec import hot, states
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.frames import PROTOCOL_HEADER, SASL, SASL_HEADER, frame
from escrowmq.wire.amqp10.codec.performatives import (
    FIRST,
    RECEIVER,
    SECOND,
    SENDER,
    SETTLED_MODE,
    UNSETTLED_MODE,
    Attach,
    Begin,
    Disposition,
    Flow,
    Open,
    Performative,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.sasl import SaslInit
from escrowmq.wire.amqp10.codec.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    PROPERTIES,
    VALUE,
    Header,
    encode_header,
    encode_section,
)
from escrowmq.wire.amqp10.codec.states import Accepted, TransactionalState
from escrowmq.wire.amqp10.codec.termini import Coordinator, Declare, Discharge, Source, Target
from escrowmq.wire.amqp10.codec.types import Symbol, Timestamp
from escrowmq.wire.amqp10.connection import Connection
from escrowmq.wire.endpoint import Peer

WINDOW = 1 << 30
_VALUE = b"\x00\x53" + bytes((VALUE,))


@dataclass(frozen=True)
class Load10:
    """A way of publishing and consuming. `mode` is the receiver's settle mode, on both links; None is presettled."""

    name: str
    mode: int | None = None
    durable: bool = False
    variety: Variety = UNIFORM
    tx: int = 0
    """Posts of a transaction, whose discharge is awaited; 0 means no transactions."""


LOADS = (
    Load10("presettled, transient"),
    Load10("presettled, transient, varied", variety=VARIED),
    Load10("first, transient, varied", FIRST, variety=VARIED),
    Load10("first, durable", FIRST, durable=True),
    Load10("first, durable, varied", FIRST, durable=True, variety=VARIED),
    Load10("second, durable termini, varied", SECOND, durable=True, variety=VARIED),
    Load10("first, durable, tx of 100", FIRST, durable=True, tx=100),
    Load10("first, durable, tx of 100, varied", FIRST, durable=True, variety=VARIED, tx=100),
)


def connect(host: Host, container: str) -> Connection:
    """Return a connection with session 0."""
    connection = Connection(host, Peer("127.0.0.1", 1, loopback=True))
    init = frame(0, encode_performative(SaslInit(Symbol("PLAIN"), b"\0guest\0guest")), type=SASL)
    connection.receive(SASL_HEADER + init + PROTOCOL_HEADER)
    begin = Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW)
    send(host, connection, Open(container), begin)
    return connection


def send(host: Host, connection: Connection, *performatives: Performative) -> None:
    """Pass a client's bytes to the connection, in a turn of their own."""
    connection.receive(b"".join(frame(0, encode_performative(each)) for each in performatives))
    host.turn()


def attach(host: Host, load: Load10, publisher: Connection, consumer: Connection) -> None:
    """Attach both links to the queue `q`."""
    kept: dict[str, Any] = {"durable": 2, "expiry_policy": "never"} if load.mode == SECOND else {}
    mode: dict[str, Any] = {
        "snd_settle_mode": SETTLED_MODE if load.mode is None else UNSETTLED_MODE,
        "rcv_settle_mode": load.mode or 0,
    }
    target = Target("q", **kept)
    source = Source("q", **kept)
    send(host, publisher, Attach("p", 0, SENDER, source=Source(), target=target, initial_delivery_count=0, **mode))
    send(host, consumer, Attach("c", 0, RECEIVER, source=source, target=Target(), **mode))
    if load.tx:
        send(host, publisher, Attach("t", 1, SENDER, source=Source(), target=Coordinator(), initial_delivery_count=0))


def block(load: Load10, first: int, payloads: list[bytes]) -> bytes:
    """Return the transfers of a block."""
    settled = load.mode is None
    return b"".join(
        frame(0, hot.encode_transfer(0, number, number.to_bytes(8, "big"), settled), payload)
        for number, payload in enumerate(payloads, first)
    )


class Transactions:
    """The blocks of a publisher that declares a transaction together with the discharge of the one before it."""

    def __init__(self, host: Host, publisher: Connection, size: int) -> None:
        self._size = size
        self._last = host.broker.transactions.next_number()  # transactions get the next numbers
        self._number = 0
        publisher.receive(self._command(Declare()))
        host.turn()

    def block(self, payloads: list[bytes]) -> list[bytes]:
        """Return the bytes of each transaction of a block."""
        return [self._transaction(payloads[at : at + self._size]) for at in range(0, len(payloads), self._size)]

    def _transaction(self, payloads: list[bytes]) -> bytes:
        self._last += 1
        ident = self._last.to_bytes(8, "big")
        state = encode_composite(TransactionalState(txn_id=ident))
        posts = b"".join(self._transfer(0, payload, state) for payload in payloads)
        return posts + self._command(Discharge(txn_id=ident, fail=False)) + self._command(Declare())

    def _command(self, command: Declare | Discharge) -> bytes:
        return self._transfer(1, _VALUE + encode_composite(command))

    def _transfer(self, handle: int, payload: bytes, state: bytes = b"") -> bytes:
        number = self._number
        self._number += 1
        return frame(0, hot.encode_transfer(handle, number, number.to_bytes(4, "big"), False, False, state), payload)


def payloads_of(load: Load10, blocks: int) -> list[list[bytes]]:
    """Return the messages of all blocks that differ."""
    header = encode_header(Header(durable=load.durable))
    made = []
    for each in messages(load.variety, BODY_SIZE, blocks * BLOCK):
        sections = header
        if each.message_id is not None:
            created = None if each.timestamp is None else Timestamp(each.timestamp * 1000)
            fields = [each.message_id, None, None, None, None, each.correlation_id, None, None, None, created]
            sections += encode_section(PROPERTIES, fields)
        if each.headers is not None:
            sections += encode_section(APPLICATION_PROPERTIES, dict(each.headers))
        made.append(sections + encode_section(DATA, each.body))
    return [made[at : at + BLOCK] for at in range(0, len(made), BLOCK)]


def flow(before: int) -> bytes:
    """Return the consumer's flow after `before` deliveries."""
    each = Flow(
        next_incoming_id=before & 0xFFFFFFFF,
        incoming_window=WINDOW,
        next_outgoing_id=0,
        outgoing_window=WINDOW,
        handle=0,
        delivery_count=before,
        link_credit=5 * BLOCK,
    )
    return frame(0, encode_performative(each))


def answers(load: Load10, before: int) -> tuple[bytes, bytes]:
    """Return the dispositions of the consumer and of the publisher for the block after `before` messages."""
    if load.mode is None:
        return b"", b""
    last = before + BLOCK - 1
    settled = load.mode == FIRST
    received = frame(0, hot.encode_disposition(RECEIVER, before, last, settled, states.ACCEPTED))
    done = Disposition(role=SENDER, first=before, last=last, settled=True, state=Accepted())
    return received, b"" if settled else frame(0, encode_performative(done))


def measure(load: Load10, count: int, profiler: cProfile.Profile | None) -> float:
    """Return the CPU time per message, in microseconds."""
    with tempfile.TemporaryDirectory(prefix="escrowmq-amqp10-path-") as folder:
        host = Host(Path(folder))
        publisher, consumer = connect(host, "p"), connect(host, "c")
        attach(host, load, publisher, consumer)
        distinct = cycle(payloads_of(load, 1 if load.variety.uniform else min(count // BLOCK, DISTINCT_BLOCKS)))
        starts = range(0, count, BLOCK)
        transactions = Transactions(host, publisher, load.tx) if load.tx else None
        blocks = [
            (
                [block(load, n, next(distinct))] if transactions is None else transactions.block(next(distinct)),
                flow(n),
                *answers(load, n),
            )
            for n in starts
        ]
        gc.collect()
        if profiler is not None:
            profiler.enable()
        started = time.process_time()
        for published, credit, received, settled in blocks:
            consumer.receive(credit)
            for part in published:
                publisher.receive(part)
                host.turn()
            consumer.receive(received)
            host.turn()
            publisher.receive(settled)
        spent = time.process_time() - started
        if profiler is not None:
            profiler.disable()
        host.turn()
        queue = host.broker.directory.vhost("/").queue("q")
        left = queue.ready + queue.unsettled
        host.journal.close()
        if left:
            raise RuntimeError(f"{load.name}: {left} messages were not delivered and settled")
        return spent / count * 1e6


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
