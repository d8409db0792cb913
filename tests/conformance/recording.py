"""Play recordings: what real clients of AMQP 1.0 sent, and the broker's answers.

    # proton: outcomesOfDeliveries
    A> 414d515003010000
    A< header 414d515003010000
    A< SaslMechanisms(sasl_server_mechanisms=('PLAIN',))
    A> 0000…
    = QUEUE_DECLARED PUBLISH DELIVERED SETTLE

A `>` line has the octets of one frame, or of a protocol header, that a client sent; each is one turn of the server. The
`<` lines are the frames that the server sends in that turn, without fields that have their default. The letter names
the connection. The last line lists the records that the journal has afterwards.

A recording is made with `python -m tests.conformance.record CLIENT`. If the broker answers differently on purpose,
`python -m tests.conformance.record --answers` writes new answers to the frames of all recordings.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final

from escrowmq import __version__
from escrowmq.core.records.kinds import Kind
from escrowmq.journal.journal import Journal
from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp10.codec.frames import FrameReader
from escrowmq.wire.amqp10.codec.performatives import decode_performative
from escrowmq.wire.amqp10.codec.sasl import SaslOutcome
from escrowmq.wire.amqp10.connection import Connection
from tests.harness.server import Options, Port, SimServer

FOLDER: Final = Path(__file__).parent / "recordings"
_HEADER_SIZE: Final = 8


def play(lines: Iterator[str] | list[str]) -> list[str]:
    """Return a recording with the answers that the broker gives to its `>` lines."""
    storage = MemoryStorage(random.Random(1))
    server = SimServer(storage, Options(users=("guest",)), seed=1)
    first = server.journal.end_lsn
    connections: dict[str, _Connection] = {}
    played = []
    for line in lines:
        who, way, rest = line[:1], line[1:2], line[3:]
        if line.startswith("#"):
            played.append(line)
        elif way == ">":
            played.append(line)
            connection = connections.setdefault(who, _Connection(server))
            played += [f"{who}< {answer}" for answer in connection.turn(bytes.fromhex(rest))]
    server.close()
    played.append("= " + " ".join(records(storage, first)))
    return played


def records(storage: MemoryStorage, first: int) -> list[str]:
    """Return the names of the journal's records from an LSN on."""
    journal = Journal.open(storage, segment_bytes=1 << 20, journal_id=b"simulated-server")
    return [Kind(kind).name for lsn, kind, *_ in journal.replay() if lsn >= first]


class _Connection:
    """The server's side of one connection."""

    def __init__(self, server: SimServer) -> None:
        self._server = server
        self._port: Port[Connection] = server.open(Connection, "recording")
        self._reader = FrameReader(1 << 31)
        self._headers = 0

    def turn(self, data: bytes) -> Iterator[str]:
        """Give octets to the server, and yield its answers."""
        if self._closed():
            return
        self._server.receive(self._port, data)
        self._server.end_turn()
        self._server.run_disk()
        self._reader.feed(bytes(self._port.sent))
        self._port.sent = bytearray()
        yield from self._frames()
        if self._closed():
            yield "closed"

    def _closed(self) -> bool:
        return self._port.closed

    def _frames(self) -> Iterator[str]:
        while True:
            if self._headers == 0:
                if (header := self._reader.take(_HEADER_SIZE)) is None:
                    return
                self._headers = 1
                yield f"header {header.hex()}"
            if (frame := self._reader.next()) is None:
                return
            _, channel, chunk, at, end = frame
            if at == end:
                yield "empty"
                continue
            performative, payload = decode_performative(chunk, at, end)
            yield text(channel, performative, chunk[payload:end])
            if isinstance(performative, SaslOutcome):
                self._headers = 0


def text(channel: int, performative: Any, payload: bytes) -> str:
    """Return a frame as a line: the channel unless it is 0, and the fields that do not have their default."""
    given = [
        f"{field.name}={_value(value)}"
        for field in fields(performative)
        if (value := getattr(performative, field.name)) != field.default or field.default is MISSING
    ]
    line = f"{type(performative).__name__}({', '.join(given)})"
    line = line.replace(f"'{__version__}'", "VERSION")
    return f"{f'{channel} ' if channel else ''}{line}{f' {payload.hex()}' if payload else ''}"


def _value(value: object) -> str:
    return value.hex() or "empty" if isinstance(value, bytes) else repr(value)
