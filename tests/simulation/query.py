"""A streaming query in miniature, as Spark runs one: planned ranges, partitions, one decision for each epoch (PIPE-1 to
PIPE-3). It, its tasks and the broker die at any step; what it writes is compared with what it read.

A query keeps two logs that survive it, as Spark's checkpoint does: where each epoch ends, and which are committed.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeVar

from escrowmq.core.branches.xid import Xid
from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import bulk, codes, spec
from escrowmq.wire.amqp091.bulk import Message
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.endpoint import EndpointLimits
from tests.harness.client import SimClient
from tests.harness.server import Options, SimServer

SOURCE, SINK, GROUP, QUERY = "in", "out", "query", "query-7"
OPTIONS: Final = Options(segment_bytes=8000, resident_limit=2000, limits=EndpointLimits(frame_max=4096))

M = TypeVar("M", bound=Method)


class DiedError(Exception):
    """Somebody is dead, and what he was about to hear is lost."""


@dataclass
class Checkpoint:
    """What the query's driver has on its own disk."""

    ends: list[int] = field(default_factory=lambda: [1])
    committed: int = 0


class World:
    """A broker, a producer, somebody who takes messages and brings them back, and the query."""

    def __init__(self, seed: int, *, trouble: float) -> None:
        self.rng = random.Random(f"query {seed}")
        self.storage = MemoryStorage(random.Random(f"disk {seed}"))
        self.trouble = trouble
        self.checkpoint = Checkpoint()
        self.events: Counter[str] = Counter()
        self.sent: list[bytes] = []
        self.read: dict[int, list[tuple[int, int, bytes]]] = {}
        self.attempt = 0
        self.server = SimServer(self.storage, OPTIONS)
        self.client = SimClient(self.server)
        self._open()
        for queue in (SOURCE, SINK):
            self.client.declare(1, queue)

    # -- dying

    def _open(self) -> None:
        self.channels = 1
        self.client.open_channel(1)

    def _maybe_die(self) -> None:
        if self.rng.random() >= self.trouble:
            return
        what = self.rng.choice(("power", "kill", "client"))
        self.events[what] += 1
        if what == "client":
            self.server.lose(self.client.port)
        else:
            if what == "power":
                self.storage.crash()
            self.server = SimServer(self.storage, OPTIONS, now=self.server.now + 1000)
        raise DiedError

    def reconnect(self) -> None:
        self.client = SimClient(self.server)
        self._open()

    # -- asking

    def call(self, channel: int, method: Method, answer: type[M]) -> M:
        """The answer, which may wait for the disk; anybody may die meanwhile."""
        self._maybe_die()
        self.client.send(channel, method, disk=False)
        while not self.client.inbox:
            self._maybe_die()
            moved = [self.server.take_batch(), self.server.write_batch()]
            self._maybe_die()
            moved.append(self.server.report_batch())
            self.server.end_turn()
            self.client.collect()
            assert any(moved) or self.client.inbox, f"no answer to {method}"
        self._maybe_die()
        return self.client.expect(channel, answer)

    def channel(self) -> int:
        self.channels += 1
        self.call(self.channels, spec.ChannelOpen(), spec.ChannelOpenOk)
        return self.channels

    # -- what others do

    def produce(self, count: int) -> None:
        """Persistent messages, which are there for good, or not yet sent as far as anybody is concerned."""
        for _ in range(count):
            body = b"%05d" % len(self.sent)
            self.client.publish(1, SOURCE, body)
            self.sent.append(body)

    def disturb(self) -> None:
        """Somebody takes messages and dies with them; the broker is looked after."""
        what = self.rng.choice(("take", "tidy", "snapshot"))
        self.events[what] += 1
        if what == "tidy":
            self.server.tidy()
        elif what == "snapshot":
            self.server.begin_snapshot()
            self.server.write_snapshot()
        else:
            other = SimClient(self.server, "other")
            other.open_channel(1)
            for _ in range(self.rng.randrange(1, 4)):
                other.send(1, spec.BasicGet(SOURCE))
            self.server.lose(other.port)
            self.server.end_turn()

    # -- the query

    def run(self, produced: int) -> None:
        """Until everything has been read and committed."""
        while True:
            try:
                self._epoch()
                if len(self.sent) < produced:
                    self.produce(self.rng.randrange(1, 9))
                    self.disturb()
                elif self._idle():
                    return
            except DiedError:
                self.reconnect()

    def _idle(self) -> bool:
        state = self.call(1, spec.EscrowHold(SOURCE, GROUP), spec.EscrowHoldOk)
        done = self.checkpoint.committed == len(self.checkpoint.ends) - 1 and state.end == self.checkpoint.ends[-1]
        return done and not self.call(1, spec.EscrowDescribe(SOURCE), spec.EscrowDescribeOk).ready

    def _epoch(self) -> None:
        """Plan an epoch, or take up the one that is planned; do it, and note that it is done."""
        checkpoint = self.checkpoint
        if checkpoint.committed == len(checkpoint.ends) - 1:
            start = checkpoint.ends[-1]
            state = self.call(1, spec.EscrowHold(SOURCE, GROUP), spec.EscrowHoldOk)
            end = state.end
            if end == start:  # nothing is left over from a plan that was not written down
                end = self.call(1, spec.EscrowHold(SOURCE, GROUP, self.rng.randrange(1, 7)), spec.EscrowHoldOk).end
            if end == start:
                return
            checkpoint.ends.append(end)
        epoch = checkpoint.committed + 1
        start, end = checkpoint.ends[epoch - 1 : epoch + 1]
        again = self.call(1, spec.EscrowHold(SOURCE, GROUP, 0, end), spec.EscrowHoldOk)
        assert (again.end, again.count) == (end, 0), "what was planned is held"
        progress = self.call(1, spec.EscrowProgress(QUERY), spec.EscrowProgressOk)
        if not progress.known or progress.epoch < epoch:
            assert (again.first, again.settled) == (start, start)
            self._decide(epoch, start, end)
        else:
            assert again.settled == end, "what was decided is settled"
            self.events["found decided"] += 1
        checkpoint.committed = epoch

    def _decide(self, epoch: int, start: int, end: int) -> None:
        self.attempt += 1
        middle = self.rng.randrange(start, end + 1)
        gtrid = f"{QUERY}:{epoch}".encode()
        found: list[Message] = []
        winners = []
        for number, (begin, stop) in enumerate(((start, middle), (middle, end))):
            part = self._read(begin, stop)
            found += part
            settled = end if number == 0 else 0
            if self.rng.random() < 0.1:  # an attempt that the driver does not hear of
                self._task(Xid(1, gtrid, f"{number}.{self.attempt}.lost".encode()), part, settled)
            name = f"{number}.{self.attempt}".encode()
            if self._task(Xid(1, gtrid, name), part, settled):
                winners.append(name)
        content = [(each.number, each.position, each.body) for each in found]
        assert self.read.setdefault(epoch, content) == content, "a range has the same content each time"
        decide = spec.EscrowDecide(1, gtrid, {"bqual": list(winners)}, QUERY, epoch)
        assert self.call(1, decide, spec.EscrowDecideOk).flags == codes.XA_OK

    def _read(self, first: int, end: int) -> list[Message]:
        found: list[Message] = []
        while first < end:
            self._maybe_die()
            self.client.send(1, spec.EscrowRead(SOURCE, GROUP, first, end, self.rng.choice((0, 8))), disk=False)
            answer = self.client.inbox.popleft()
            assert isinstance(answer.method, spec.EscrowReadOk)
            assert answer.method.first == first
            found += bulk.decode(answer.body).messages()
            first = answer.method.next
        return found

    def _task(self, xid: Xid, messages: list[Message], settled: int) -> bool:
        """What an executor does: a branch with its part of the output, prepared. False if there was no work."""
        channel = self.channel()
        self.call(channel, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
        self.call(channel, spec.DtxDemarcationStart(xid.encode()), spec.DtxDemarcationStartOk)
        for message in messages:
            self.client.publish(channel, SINK, message.body, disk=False)
        if settled:
            self.call(channel, spec.EscrowSettle(SOURCE, GROUP, settled), spec.EscrowSettleOk)
        self.call(channel, spec.DtxDemarcationEnd(xid.encode()), spec.DtxDemarcationEndOk)
        flags = self.call(channel, spec.DtxCoordinationPrepare(xid.encode()), spec.DtxCoordinationPrepareOk).flags
        assert flags in (codes.XA_OK, codes.XA_RDONLY)
        return flags == codes.XA_OK

    # -- what came of it

    def check(self) -> None:
        """Each message came through once, and nothing is left behind."""
        self.server.run_disk()
        self.server = SimServer(self.storage, OPTIONS, now=self.server.now)
        broker = self.server.broker
        sink, source = (broker.vhost("/").queue(name) for name in (SINK, SOURCE))
        out: list[bytes] = []
        while sink.ready:
            out += [entry.content for entry in sink.order.take(1000)]
        assert sorted(out) == sorted(body for content in self.read.values() for _, _, body in content)
        assert sorted(out) == self.sent
        assert [view.state for view in broker.coordinator.branches()] == []
        assert (source.ready, source.unsettled, sum(map(len, source.reservations.values()))) == (0, 0, 0)
        assert sum(segment.live for segment in self.server.journal._table) == len(out)
