"""A million deliveries of an exactly-once link that nobody has settled, held over restarts of the broker."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.brokers import Broker
from bench.measure import MeasureError, Measurement
from bench.scenario import BACKLOG, MB, Figure, Scenario, Settings, fill
from escrowmq.perf.amqp10.connection import WINDOW, LinkConnection, raise_if_closed
from escrowmq.perf.amqp10.encoding import sections_of
from escrowmq.perf.amqp10.reading import TransferWalk
from escrowmq.perf.errors import PerfError
from escrowmq.perf.messages import Variety, messages
from escrowmq.perf.url import parse_url
from escrowmq.wire.addresses import queue_address
from escrowmq.wire.amqp10.codec import frames, hot
from escrowmq.wire.amqp10.codec.performatives import (
    RECEIVER,
    SECOND,
    SENDER,
    UNSETTLED_MODE,
    Attach,
    Disposition,
    Flow,
)
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.codec.types import Symbol

_TIMEOUT = 60.0
_HEARTBEAT = 10.0
_BLOCK = 500
_KEPT: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never")}
_LINK: dict[str, Any] = {"handle": 0, "snd_settle_mode": UNSETTLED_MODE, "rcv_settle_mode": SECOND, "unsettled": {}}


class HeldDeliveries(Scenario):
    """Unsettled deliveries in one direction: memory, and restart times after a clean stop and after kill -9."""

    fresh = True
    peers = ()
    alternations = 1

    def __init__(self, name: str, title: str, hold: Callable[[Broker, int], None]) -> None:
        """`hold` makes a number of deliveries, and leaves them unsettled."""
        super().__init__(
            name,
            (
                Figure(f"{name}.memory", f"memory, {title}", "MB", below=400),
                Figure(f"{name}.restart", "— restart until ready", "s", below=5),
                Figure(f"{name}.restart-killed", "— after kill -9", "s", below=5),
                Figure(f"{name}.memory-restarted", "— memory after these restarts", "MB", below=400),
                Figure(f"{name}.memory-peak", "— peak during them", "MB"),
            ),
        )
        self._hold = hold

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        try:
            self._hold(broker, int(1_000_000 * settings.scale))
        except PerfError as error:
            raise MeasureError(str(error)) from None
        broker.settle()
        held = broker.resident_bytes()
        broker.stop()
        broker.start()
        restarted_in, peak = broker.started_in, broker.peak_resident_bytes()
        broker.kill()
        broker.start()
        killed_in = broker.started_in
        broker.settle()
        resident, peak = broker.resident_bytes(), max(peak, broker.peak_resident_bytes())
        figures = (held / MB, restarted_in, killed_in, resident / MB, peak / MB)
        return Measurement({each.name: value for each, value in zip(self.figures, figures, strict=True)})


def received(broker: Broker, count: int) -> None:
    """Receive `count` varied messages, settle none of them, and lose the connection."""
    fill(broker, count, load="varied-backlog")
    connection = LinkConnection(parse_url(broker.url), "bench-held", _TIMEOUT)
    source = Source(address=queue_address(BACKLOG), **_KEPT)
    connection.attach(Attach("held", role=RECEIVER, source=source, target=Target(address="bench"), **_LINK))
    walk = TransferWalk(raise_if_closed, lambda _: None, every=False)
    connection.send(
        Flow(
            next_incoming_id=0,
            incoming_window=WINDOW,
            next_outgoing_id=0,
            outgoing_window=WINDOW,
            handle=0,
            delivery_count=0,
            link_credit=count,
        )
    )
    _Reader(connection, walk).until(lambda: walk.count == count)
    connection.socket.close()


def published(broker: Broker, count: int) -> None:
    """Publish `count` varied messages, settle none of them after the broker's answer, and lose the connection."""
    fill(broker, 1)  # this declares the queue
    connection = LinkConnection(parse_url(broker.url), "bench-held", _TIMEOUT)
    target = Target(address=queue_address(BACKLOG), **_KEPT)
    source = Source(address="bench")
    connection.attach(Attach("held", role=SENDER, source=source, target=target, initial_delivery_count=0, **_LINK))
    last = credit = accepted = 0

    def on_frame(performative: Any) -> None:
        nonlocal credit, accepted
        raise_if_closed(performative)
        if isinstance(performative, Disposition):
            accepted = 1 + int(performative.first if performative.last is None else performative.last)
        elif isinstance(performative, Flow) and performative.link_credit is not None:
            credit = int(performative.delivery_count or 0) + int(performative.link_credit)

    for early in connection.early:
        on_frame(early)
    reader = _Reader(connection, TransferWalk(on_frame, lambda _: None, every=False))
    for last, block in _transfers(count):
        reader.until(lambda last=last: credit >= last)  # type: ignore[misc]
        connection.socket.sendall(block)
    reader.until(lambda: accepted >= count)
    connection.socket.close()


def _transfers(count: int) -> Iterator[tuple[int, bytes]]:
    """Yield the transfers of `count` varied messages in blocks, each with the number of messages up to its end."""
    variety = Variety(spread=40, message_ids=True, correlation_ids=True, timestamps=True, headers=True)
    payloads = [sections_of(each, durable=True)[0] for each in messages(variety, 100, min(count, 20_000))]
    for first in range(0, count, _BLOCK):
        yield (
            min(first + _BLOCK, count),
            b"".join(
                frames.frame(0, hot.encode_transfer(0, number, number.to_bytes(16, "big"), settled=False), payload)
                for number, payload in enumerate(payloads[first % len(payloads) :][: min(_BLOCK, count - first)], first)
            ),
        )


class _Reader:
    """Reads what the broker sends, until a condition holds."""

    def __init__(self, connection: LinkConnection, walk: TransferWalk) -> None:
        self._socket: socket.socket = connection.socket
        self._walk = walk
        self._buffer = bytearray(1 << 20)
        self._filled = 0
        self._take(connection.rest)

    def until(self, done: Callable[[], bool]) -> None:
        """Read until `done`. Raises MeasureError if nothing arrives, or if the broker closes the connection."""
        alive_at = time.monotonic()
        while not done():
            if time.monotonic() - alive_at > _HEARTBEAT:
                self._socket.sendall(frames.EMPTY_FRAME)
                alive_at = time.monotonic()
            try:
                data = self._socket.recv(1 << 18)
            except TimeoutError:
                raise MeasureError(f"the broker sent nothing for {_TIMEOUT:g} s") from None
            if not data:
                raise MeasureError("the broker closed the connection")
            self._take(data)

    def _take(self, data: bytes) -> None:
        end = self._filled + len(data)
        self._buffer[self._filled : end] = data
        used = self._walk.feed(self._buffer, end)
        del self._buffer[:used]
        self._filled = end - used
