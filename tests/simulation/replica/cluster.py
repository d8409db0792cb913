"""The disks of several nodes that share a journal on a simulated log, for any simulated world.

A process that ends is followed by one on any node, which has read the log before. Some processes do not end: they are
paused, and go on when another one leads. The log may lose its newest entries while nobody leads.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from escrowmq.journal import format as fmt
from escrowmq.journal.batch import Batch
from escrowmq.journal.errors import JournalFailed
from escrowmq.journal.journal import Journal
from escrowmq.journal.memory import Faults, MemoryStorage
from escrowmq.journal.removals import REMOVED, encode
from escrowmq.replica.copy import DiskCopy
from escrowmq.replica.entries import encode as encode_entry
from escrowmq.replica.errors import AppendUnknown, EntriesLost, EntriesTrimmed, ReplicaError
from escrowmq.replica.leader import Leader
from escrowmq.replica.tail import LogTail
from tests.simulation.ledger import Violation
from tests.simulation.replica.log import MOST_LOST, SimulatedLog

NODES: Final = 3
CHUNK: Final = 3000
FATES: Final = {"stored": 80, "lost": 1, "unanswered": 2, "late": 2, "twice": 2, "partly": 2, "hole": 2}


class Events:
    """Counts what the copies report."""

    def __init__(self) -> None:
        self.cuts = 0
        self.divergences = 0

    def cut(self, lsn: int, frames: int) -> None:
        """Count it."""
        self.cuts += 1

    def diverged(self, lsn: int, frames: int, names: list[str]) -> None:
        """Count it."""
        self.divergences += 1


class Node:
    """A machine with a disk, and its view of the log."""

    def __init__(self, name: str, log: SimulatedLog, rng: random.Random, events: Events) -> None:
        self.name = name
        self._log = log
        self._rng = rng
        self._events = events
        self.storage = MemoryStorage(rng)
        self.open()

    def open(self) -> None:
        """Start to follow the log with what is on the disk."""
        self.copy = DiskCopy(self.storage, self._events)
        self.tail = LogTail.opened(self._log, self.copy)
        self.leader = Leader(
            self._log,
            self.tail,
            self.name,
            f"amqp://{self.name}",
            lambda: self._rng.randbytes(16),
            chunk_size=CHUNK,
        )

    def follow(self) -> None:
        """Read the log to its end."""
        try:
            self.tail.read_to_end()
        except EntriesTrimmed:
            self.storage = MemoryStorage(self._rng)
            self.open()
            self.tail.read_to_end()
        self.copy.note_end()
        self.copy.drop_uncounted(self.tail.fold.epoch)
        self.copy.sync()

    def take_over(self) -> int:
        """Lead, put back what the log lacks, and return how many frames that were."""
        while not self.leader.take_over(self.copy.greatest_epoch):
            pass
        restored = self.leader.restore(self.copy.pieces_ahead(), self.copy.newest_snapshot())
        self.copy.hand_over()
        return restored


class Sink:
    """Sends the journal's frames to the log, before they are on the disk or after."""

    synced = True

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self._cluster = cluster
        self._node = node
        self._unsent: list[tuple[int, Sequence[bytes]]] = []

    def begin(self, header: bytes, messages: int) -> None:
        """Send a header."""
        try:
            self._node.leader.begin_segment(header, messages)
        except ReplicaError as error:
            raise self._failed(error) from error

    def send(self, lsn: int, parts: Sequence[bytes]) -> None:
        """Send a frame now or when its answer is awaited."""
        self._unsent.append((lsn, parts))
        if self._cluster.rng.random() < 0.5:
            self._send()

    def wait(self) -> None:
        """Wait until what was sent counts."""
        self._send()
        try:
            self._cluster.tidy(self._node)
        except ReplicaError as error:
            raise self._failed(error) from error

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        try:
            for lsn, parts in unsent:
                self._node.leader.append_frame(lsn, parts)
        except ReplicaError as error:
            raise self._failed(error) from error

    def _failed(self, error: ReplicaError) -> ReplicaError:
        if isinstance(error, EntriesLost) and not self._cluster.losses:
            raise Violation("entries seem to be lost, but none are") from error
        if self._cluster.sink is self:
            self._cluster.failure = f"log: {type(error).__name__}"
        return error


class Cluster:
    """The disks of all nodes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"cluster {seed}")
        self.log = SimulatedLog(self.rng, fates=FATES)
        self.events = Events()
        self.nodes = [Node(f"n{i}", self.log, self.rng, self.events) for i in range(NODES)]
        self.sink: Sink | None = None
        self.failure = ""
        self.take_overs = self.losses = self.restored = self.resumed = self.trimmed = 0
        self._leading = self.nodes[0]
        self._paused: tuple[Node, Journal] | None = None

    @property
    def storage(self) -> MemoryStorage:
        """The disk of the node that leads."""
        return self._leading.storage

    # -- the life of processes

    def begin(self) -> None:
        """Let a node read the log, and lead."""
        self.failure = ""
        nodes = [node for node in self.nodes if self._paused is None or node is not self._paused[0]]
        for node in nodes:
            node.open()
            node.follow()
        nodes = [node for node in nodes if node.copy.lacking_part() is None] or [self._give_up_pause()]
        longest = max(nodes, key=lambda node: node.copy.end)
        ahead = longest.copy.end.lsn > longest.copy.end_lsn
        self._leading = longest if ahead else self.rng.choice(nodes)
        self.restored += self._lead(self._leading)
        self.sink = Sink(self, self._leading)
        self.take_overs += 1

    def _give_up_pause(self) -> Node:
        """End the paused process, because its machine alone has a whole copy."""
        if self._paused is None:
            raise Violation("no node has a whole copy of the journal")
        node, _ = self._paused
        self._paused = None
        node.open()
        node.follow()
        if (lacking := node.copy.lacking_part()) is not None:
            raise Violation(f"no node has a whole copy of the journal: the last one lacks {lacking}")
        return node

    def _lead(self, node: Node) -> int:
        while True:
            try:
                return node.take_over()
            except AppendUnknown:
                node.open()
                node.follow()

    def end(self, journal: Journal, *, power_fails: bool) -> None:
        """Note the end of the process, which may only be paused, or may be followed by a loss of the log."""
        node = self._leading
        if power_fails:
            node.storage.crash()
        node.storage.faults = Faults()
        if self.rng.random() < 0.2:
            number = min(self.rng.randint(1, MOST_LOST), self._losable())
            self.losses += self.log.lose(number) > 0
            self._paused = None
        elif not power_fails and not self.failure and journal._health.failure is None and self.rng.random() < 0.5:
            self._paused = node, journal

    def _losable(self) -> int:
        """Return how many of its newest entries the log may lose.

        If it lost a claim after which no frame has counted, no copy would show that the claim was ever there. Then a
        frame of the leader before, which was not answered, may count after all. The worlds' oracles know of no such
        frame after a restart.
        """
        claim = self._leading.leader.claim
        if self._leading.copy._last_counted == claim.stamp.epoch:
            return MOST_LOST
        data = encode_entry(claim)
        return next((i for i, each in enumerate(reversed(self.log.entries)) if each == data), MOST_LOST)

    def resume(self, answers: Callable[[], bool]) -> None:
        """Let the paused leader go on. It must not sync anything, nor answer that nothing new is there."""
        paused, self._paused = self._paused, None
        if paused is None:
            return
        node, journal = paused
        self.resumed += 1
        batch = journal._in_flight
        if batch is not None and batch.written:
            journal.batch_done(batch)
            batch = None
        synced = journal.synced_lsn
        if answers():
            raise Violation("a deposed leader answers a question from memory")
        self._must_fail(journal, batch)
        if journal.synced_lsn != synced:
            raise Violation("a deposed leader has synced a frame")
        node.open()

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Let the log store and answer everything meanwhile."""
        before, self.log.quiet = self.log.quiet, True
        try:
            yield
        finally:
            self.log.quiet = before

    def _must_fail(self, journal: Journal, batch: Batch | None) -> None:
        try:
            if batch is None:
                journal.append(REMOVED, encode([]))  # a planned fault may refuse it
                batch = journal.take_batch(0)
                assert batch is not None
            batch.write()
        except JournalFailed:
            return
        raise Violation("a deposed leader has synced a frame")

    # -- the log

    def tidy(self, node: Node) -> None:
        """Put the newest snapshot into the log and trim it. Sometimes, let another node follow."""
        names = [(fmt.parse_name(name), name) for name in node.storage.names()]
        lsns = {
            kind: [(lsn, name) for (found, name) in names if found for k, lsn in [found] if k == kind]
            for kind in (1, 2)
        }
        if lsns[fmt.TYPE_SNAPSHOT]:
            self._put(node, *max(lsns[fmt.TYPE_SNAPSHOT]))
        before = self.log.begin()
        self.trimmed += node.leader.trim(min(lsns[fmt.TYPE_SEGMENT])[0]) > before
        other = self.rng.choice(self.nodes)
        if self.rng.random() < 0.1 and other is not node and (self._paused is None or other is not self._paused[0]):
            other.follow()

    def _put(self, node: Node, lsn: int, name: str) -> None:
        fold = node.tail.fold
        if lsn <= fold.next_lsn and (fold.snapshot is None or fold.snapshot.lsn < lsn):
            try:
                data = node.storage.read(name, 0, node.storage.size(name))
            except OSError:
                return  # a planned fault of the disk; a later attempt succeeds
            node.leader.put_snapshot(lsn, len(data), [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)])
