"""A simulation of a streaming query as Spark runs it, with planned ranges, partitions, and one decision for each epoch.

The query, its tasks and the broker can die at any step. In the end its output is compared with its input (PIPE-1 to
PIPE-3). The query's checkpoint survives: the end of each epoch, and the number of committed epochs.
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
from tests.harness.contents import body_of
from tests.harness.server import Options, SimServer

SOURCE, SINK, GROUP, QUERY = "in", "out", "query", "query-7"
OPTIONS: Final = Options(segment_bytes=8000, resident_limit=2000, limits=EndpointLimits(frame_max=4096))

M = TypeVar("M", bound=Method)


class DiedError(Exception):
    """The broker or the query's connection has died; the pending answer is lost."""


@dataclass
class Checkpoint:
    """The state of the query's driver on its own disk."""

    ends: list[int] = field(default_factory=lambda: [1])
    committed: int = 0


class World:
    """A broker, a producer, a client that requeues messages, and the query."""

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
        """Call a method and wait for its answer, which may wait for the disk.

        Raises:
            DiedError: at random.
        """
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

    # -- other clients

    def produce(self, count: int) -> None:
        """Publish persistent messages, and wait until they are durable."""
        for _ in range(count):
            body = b"%05d" % len(self.sent)
            self.client.publish(1, SOURCE, body)
            self.sent.append(body)

    def disturb(self) -> None:
        """Let a client get messages and die, or compact the journal, or take a snapshot."""
        what = self.rng.choice(("take", "tidy", "snapshot"))
        self.events[what] += 1
        if what == "tidy":
            self.server.tidy()
        elif what == "snapshot":
            while self.server.begin_snapshot() and self.server.capture is not None:
                pass
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
        """Run the query until `produced` messages have been published, read and committed."""
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
        """Plan an epoch, or continue with the planned one; execute it, and record that it is done."""
        checkpoint = self.checkpoint
        if checkpoint.committed == len(checkpoint.ends) - 1:
            start = checkpoint.ends[-1]
            state = self.call(1, spec.EscrowHold(SOURCE, GROUP), spec.EscrowHoldOk)
            end = state.end
            if end == start:  # no reservation is left over from a plan that was not recorded
                end = self.call(1, spec.EscrowHold(SOURCE, GROUP, self.rng.randrange(1, 7)), spec.EscrowHoldOk).end
            if end == start:
                return
            checkpoint.ends.append(end)
        epoch = checkpoint.committed + 1
        start, end = checkpoint.ends[epoch - 1 : epoch + 1]
        again = self.call(1, spec.EscrowHold(SOURCE, GROUP, 0, end), spec.EscrowHoldOk)
        assert (again.end, again.count) == (end, 0), "the planned range is not reserved"
        progress = self.call(1, spec.EscrowProgress(QUERY), spec.EscrowProgressOk)
        if not progress.known or progress.epoch < epoch:
            assert (again.first, again.settled) == (start, start)
            self._decide(epoch, start, end)
        else:
            assert again.settled == end, "the decided range is not settled"
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
            if self.rng.random() < 0.1:  # an attempt whose result the driver does not receive
                self._task(Xid(1, gtrid, f"{number}.{self.attempt}.lost".encode()), part, settled)
            name = f"{number}.{self.attempt}".encode()
            if self._task(Xid(1, gtrid, name), part, settled):
                winners.append(name)
        content = [(each.number, each.position, each.body) for each in found]
        assert self.read.setdefault(epoch, content) == content, "a range has changed its content"
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
        """Execute a task: write its output in a branch, and prepare the branch. Returns False if there was no work."""
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

    # -- the result

    def check(self) -> None:
        """Check that each message was processed once, and that nothing is reserved, unsettled or in doubt."""
        self.server.run_disk()
        self.server = SimServer(self.storage, OPTIONS, now=self.server.now)
        broker = self.server.broker
        sink, source = (broker.directory.vhost("/").queue(name) for name in (SINK, SOURCE))
        out: list[bytes] = []
        while sink.ready:
            out += [body_of(entry) for entry in sink.order.take(1000)]
        assert sorted(out) == sorted(body for content in self.read.values() for _, _, body in content)
        assert sorted(out) == self.sent
        assert [view.state for view in broker.branches.views()] == []
        assert (source.ready, source.unsettled, sum(map(len, source.reservations.values()))) == (0, 0, 0)
        assert sum(segment.live for segment in self.server.journal._table) == len(out)
