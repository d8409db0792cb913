"""Route messages again, by the core's router, on the topology that the log shows at their publish (PIPE-8).

A message that was published alone was routed when its record was written. One that was published in a branch, or by a
decision, was routed some time before its record, so any earlier topology may explain where it is. Exchanges to which
something was bound that does not survive a restart are not judged, because the log does not show where they lead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.blocks import BLOCK as BLOCK_HEAD
from escrowmq.core.records.blocks import decode_block
from escrowmq.core.records.branches import decode_placed
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.publishing import decode_publish
from escrowmq.pipeline.blocks import BLOCK, Lookup
from escrowmq.pipeline.columns import U32, Ints, integers, plain, ragged, take, texts
from escrowmq.pipeline.events import TARGET
from escrowmq.pipeline.findings import RouteRule
from escrowmq.pipeline.frames import Records
from escrowmq.pipeline.operations import Operations
from escrowmq.pipeline.planning import NEVER
from escrowmq.pipeline.topology import DELAYED, HALF, LoggedTopology, TopologyHistory
from escrowmq.pipeline.ways import Host, RoutedMessage, is_bound_transiently, is_told, ways
from escrowmq.wire.formats import FORMATS, MALFORMED

MOST: Final = 1_000
"""The number of wrong routes that one task reports."""
SCHEMA: Final = pa.schema(
    [
        ("wrong", pa.string()),
        ("vhost", pa.string()),
        ("queue", pa.string()),
        ("position", pa.int64()),
        ("lsn", pa.int64()),
        ("text", pa.string()),
        ("number", pa.int64()),
    ]
)
DDL: Final = "wrong string, vhost string, queue string, position long, lsn long, text string, number long"
"""A row is a violation, or has the `number` of messages that were CHECKED or are UNTOLD by the log."""
WRONG: Final = {"extra": RouteRule.EXTRA, "missing": RouteRule.MISSING}
CHECKED: Final = "checked"
UNTOLD: Final = "untold"
_SPREAD: Final = 0x9E3779B97F4A7C15


@lru_cache(1024)
def _envelope(data: bytes) -> Envelope:
    return Envelope.decode(data)


class RoutedRun:
    """A run of messages in the log.

    Args:
        lsn: the address of its record.
        epoch: the number of changes of the topology before it.
        at_once: whether it was routed when its record was written.
        targets: the numbers of its queues, each with the position of the first message.
        block: its block.
    """

    __slots__ = ("_contents", "at_once", "block", "came", "count", "envelope", "epoch", "lsn", "queues", "targets")

    def __init__(self, lsn: int, epoch: int, at_once: bool, targets: tuple[tuple[int, int], ...], block: bytes) -> None:
        self.lsn, self.epoch, self.at_once, self.targets, self.block = lsn, epoch, at_once, targets, block
        self.queues = frozenset(queue for queue, _ in targets)
        _, self.came, self.count, size = BLOCK_HEAD.unpack_from(block)
        self.envelope = _envelope(block[BLOCK_HEAD.size : BLOCK_HEAD.size + size])
        self._contents: list[bytes] | None = None

    def message(self, i: int | None) -> RoutedMessage:
        """Return message `i`, or one without content that stands for all of them."""
        if i is None:
            return RoutedMessage(self.envelope, b"", self.came, self.at_once)
        if self._contents is None:
            self._contents = decode_block(self.block).contents
        envelope, content = self.envelope, self._contents[i]
        if _is_keyed(envelope):
            envelope, content = FORMATS[envelope.protocol].single_out(envelope, content)
        return RoutedMessage(envelope, content, self.came, self.at_once)


class Misrouted(NamedTuple):
    """A message in a queue to which nothing leads, or missing from one: the key of WRONG, and where."""

    wrong: str
    vhost: str
    queue: str
    position: int | None
    lsn: int
    text: str


class RouteCheck:
    """Checks the routes of messages in the order of the log."""

    def __init__(self, history: TopologyHistory, lookup: Lookup, sample: float = 1.0, first: int = 0) -> None:
        """`sample` is the share of the records to check, from 0 to 1, and `first` the LSN from which they are."""
        self._history = history
        self._lsns = np.array([change[0] for change in history.changes], np.int64)
        self._lookup = lookup
        self._sample = sample
        self._first = max(first, history.known) if history.known >= 0 else NEVER
        self._topology = LoggedTopology(history.base)
        self._told: dict[tuple[str, str], bool] = {}
        self.checked = 0
        self.untold = 0
        """The number of messages whose routes the log does not show."""

    def check(self, records: Records, operations: Operations) -> Iterator[Misrouted]:
        """Check all messages that these records publish. They are behind those of earlier calls."""
        groups = [*self._alike(records, operations), *self._placed(records, operations)]
        for epoch, members in sorted(groups, key=lambda group: group[0]):
            self._advance(epoch)
            one = self._run(records, operations, members[0], epoch)
            vhost = one and self._host(self._topology, one)
            if one and vhost and self._is_uniform(vhost, one) and self._explains(vhost, one, None):
                self.checked += sum([self._length(records, operations, each) for each in members])
                continue
            for each in members:
                run = self._run(records, operations, each, epoch)
                if run is not None:
                    yield from self._judge(run)

    def _wanted(self, records: Records, operations: Operations, kind: Kind) -> Ints:
        """Return the operations of a kind that are to be checked: the same ones in each run of the audit."""
        chosen = operations.of_kind(kind)
        lsn = records.lsn[operations.record[chosen]]
        told = lsn >= self._first
        self.untold += int((~told).sum())
        if self._sample < 1.0:
            mixed = (lsn.astype(np.uint64) * np.uint64(_SPREAD)) >> np.uint64(32)
            told &= mixed < int(self._sample * (1 << 32))
        return chosen[told]

    def _alike(self, records: Records, operations: Operations) -> Iterator[tuple[int, list[int]]]:
        """Yield the operations PUBLISH that have the same envelope, queues and topology, with its epoch."""
        data, chosen = records.data, self._wanted(records, operations, Kind.PUBLISH)
        at = operations.at[chosen]
        number = integers(take(data, at, U32))
        block = at + 4 + TARGET.itemsize * number
        sizes = integers(take(data, block, BLOCK)["envelope"])
        envelope, _ = texts(data, block + BLOCK.itemsize, sizes)
        owner, nth = ragged(number)
        queues = integers(take(data, at[owner] + 4 + TARGET.itemsize * nth, TARGET)["queue"])
        epochs = np.searchsorted(self._lsns, records.lsn[operations.record[chosen]])
        columns = np.c_[epochs, operations.commit[chosen] < 0, envelope, _sets(queues, number)]
        order = np.lexsort(columns.T[::-1])
        fresh = np.flatnonzero(np.r_[True, (np.diff(columns[order], axis=0) != 0).any(axis=1)]) if len(order) else order
        for members in np.split(order, fresh[1:]) if len(order) else ():
            yield int(epochs[members[0]]), chosen[members].tolist()

    def _placed(self, records: Records, operations: Operations) -> Iterator[tuple[int, list[int]]]:
        chosen = self._wanted(records, operations, Kind.PLACED)
        epochs = np.searchsorted(self._lsns, records.lsn[operations.record[chosen]])
        for i, epoch in zip(chosen.tolist(), epochs.tolist(), strict=True):
            yield epoch, [i]

    def _payload(self, records: Records, operations: Operations, i: int) -> memoryview:
        at = int(operations.at[i])
        return records.data.data[at : at + int(operations.length[i])]

    def _length(self, records: Records, operations: Operations, i: int) -> int:
        payload = self._payload(records, operations, i)
        if operations.kind[i] == Kind.PUBLISH:
            return decode_publish(payload).length
        return decode_placed(payload).length

    def _run(self, records: Records, operations: Operations, i: int, epoch: int) -> RoutedRun | None:
        """Return the run that an operation publishes; None if the segment with its content was deleted."""
        payload = self._payload(records, operations, i)
        lsn = int(records.lsn[operations.record[i]])
        if operations.kind[i] == Kind.PUBLISH:
            publish = decode_publish(payload)
            at_once = bool(operations.commit[i] < 0)
            return RoutedRun(lsn, epoch, at_once, tuple(publish.targets), bytes(payload[publish.block :]))
        placed = decode_placed(payload)
        head = self._lookup(placed.lsn, BLOCK_HEAD.size)
        block = self._lookup(placed.lsn, 4 + BLOCK_HEAD.unpack(head)[0]) if head else None
        if block is None:
            self.untold += placed.length
            return None
        return RoutedRun(lsn, epoch, False, tuple(placed.targets), block)

    # -- one run

    def _advance(self, epoch: int) -> None:
        while self._topology.changes < epoch:
            self._topology.apply(*self._history.changes[self._topology.changes][1:])
            self._told.clear()

    def _host(self, topology: LoggedTopology, run: RoutedRun) -> Host | None:
        """Return the virtual host of a run's queues; None if a queue does not exist, which is a violation of another
        rule.
        """
        queues = [topology.queues.get(queue) for queue, _ in run.targets]
        if not queues or queues[0] is None or None in queues:
            return None
        return topology.vhosts.get(queues[0].vhost)

    def _is_uniform(self, vhost: Host, run: RoutedRun) -> bool:
        """Return whether all messages of a run have the same way, which the log shows."""
        envelope = run.envelope
        delayed = vhost.hidden.get(DELAYED)
        if not self._is_told(vhost, envelope.exchange) or (delayed is not None and delayed.ident in run.queues):
            return False
        return not vhost.needs_content(envelope.exchange) and not _is_keyed(envelope)

    def _is_told(self, vhost: Host, exchange: str) -> bool:
        known = self._told.get((vhost.name, exchange))
        if known is None:
            known = self._told[vhost.name, exchange] = is_told(vhost, exchange)
        return known

    def _judge(self, run: RoutedRun) -> Iterator[Misrouted]:
        topology = self._topology
        vhost, count = self._host(topology, run), run.count
        names = {topology.queues[queue].name for queue in run.queues if queue in topology.queues}
        if vhost is None or HALF in names:  # a half message is routed when it leaves that queue
            return
        exchange = run.envelope.exchange
        reads_content = vhost.needs_content(exchange) or DELAYED in names
        if not self._is_told(vhost, exchange) or (reads_content and run.envelope.protocol not in FORMATS):
            self.untold += count
            return
        self.checked += count
        for i in range(count) if not self._is_uniform(vhost, run) else (None,):
            try:
                if not self._explains(vhost, run, i) and not self._was_open(run, i):
                    yield from self._reported(vhost, run, i)
            except MALFORMED:
                self.checked -= 1
                self.untold += 1

    def _explains(self, vhost: Host, run: RoutedRun, i: int | None) -> bool:
        """Return whether message `i` of a run (None: all of them) is where a virtual host leads it."""
        living = self._topology.queues.keys()
        return any(way.explains(run.queues, way.queues & living) for way in ways(vhost, run.message(i), run.queues))

    def _was_open(self, run: RoutedRun, i: int | None) -> bool:
        """Return whether an earlier topology explains where a message is."""
        if run.at_once:
            return False
        topology = LoggedTopology(self._history.base)
        name, vhost = run.envelope.exchange, self._topology.queues[run.targets[0][0]].vhost
        while True:
            host = topology.vhosts.get(vhost)
            if (
                host is not None
                and name in host.exchanges
                and (is_bound_transiently(host, name) or self._explains(host, run, i))
            ):
                return True
            if topology.changes >= run.epoch:
                return False
            topology.apply(*self._history.changes[topology.changes][1:])

    def _reported(self, vhost: Host, run: RoutedRun, i: int | None) -> Iterator[Misrouted]:
        message = run.message(i)
        way = list(ways(vhost, message, run.queues))[-1]
        envelope = message.envelope
        where = f"exchange {plain(envelope.exchange)!r} with routing key {plain(envelope.routing_key)!r}"
        queues = self._topology.queues
        for queue, first in run.targets:
            if queue in way.astray(run.queues):
                found = queues[queue]
                text = f"{where} does not lead to the queue"
                yield Misrouted("extra", plain(found.vhost), plain(found.name), first + (i or 0), run.lsn, text)
        for queue in sorted(way.missing(run.queues)):
            found = queues[queue]
            text = f"{where} leads to the queue"
            yield Misrouted("missing", plain(found.vhost), plain(found.name), None, run.lsn, text)


def _is_keyed(envelope: Envelope) -> bool:
    form = FORMATS.get(envelope.protocol)
    return form is not None and form.keyed


def _sets(queues: Ints, number: Ints) -> Ints:
    """Return a number for each list of queues, which is the same for equal lists. `number` has their lengths."""
    ends = np.cumsum(number)
    found = queues[ends - 1].copy() if len(number) else number
    known: dict[bytes, int] = {}
    for i in np.flatnonzero(number != 1).tolist():
        key = queues[ends[i] - number[i] : ends[i]].tobytes()
        found[i] = known.setdefault(key, -1 - len(known))
    return found


def batch(rows: Iterable[Misrouted], checked: int, untold: int) -> pa.RecordBatch:
    """Return the rows of a task, and those with its numbers."""
    found: list[dict[str, object]] = [each._asdict() for each in rows]
    found += [{"wrong": CHECKED, "number": checked}, {"wrong": UNTOLD, "number": untold}]
    return pa.RecordBatch.from_pylist(found, SCHEMA)
