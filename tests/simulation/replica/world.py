"""Random histories of nodes that replicate a journal.

The nodes claim, lead, append, follow, trim, resign and die, each also in the middle of another one's call, and believe
that they lead long after they were deposed. In some histories, the log loses its newest entries. The oracle knows which
frames a leader has confirmed to clients, and nothing of the rules by which entries count.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from escrowmq.journal.format import TYPE_SEGMENT, FileHeader
from escrowmq.replica.errors import AppendUnknown, Deposed, EntriesLost, EntriesTrimmed
from escrowmq.replica.fold import CopyEnd
from escrowmq.replica.leader import Leader
from escrowmq.replica.tail import LogTail, SegmentPlace
from tests.simulation.ledger import Violation
from tests.simulation.replica.copies import Copy
from tests.simulation.replica.log import MOST_LOST, SimulatedLog

NODES: Final = 3
STEPS: Final = {
    "follow": 6,
    "take_over": 3,
    "publish": 12,
    "ask": 4,
    "resign": 1,
    "crash": 1,
    "roll": 1,
    "snapshot": 1,
    "trim": 1,
    "replace": 1,
}
CHUNK: Final = 8
"""The bytes of a frame in one entry. Most frames have several."""
_DEPTH: Final = 2
GLANCES = 0.5
"""How often a node only reads on, and does not ask where the log ends."""


class Node:
    """A machine, and the process that runs on it."""

    def __init__(self, name: str, log: SimulatedLog, rng: random.Random) -> None:
        self.name = name
        self.copy = Copy()
        self.busy = False
        self.places: list[SegmentPlace] = []
        self._rng = rng
        self._log = log
        self._starts = 0
        self.start()

    def start(self) -> None:
        """Start the process, which knows nothing but what is on its disk."""
        self._starts += 1
        self.began = 0
        self.restored = 0
        self.claimed = 0
        name = f"{self.name}-{self._starts}"
        self.tail = LogTail.opened(self._log, self.copy, self.places)
        self.leader = Leader(
            self._log, self.tail, name, f"amqp://{self.name}", lambda: self._rng.randbytes(16), chunk_size=CHUNK
        )

    def save(self) -> None:
        """Write the places of the segments to the disk."""
        self.places = list(self.tail.segments)

    def start_over(self) -> None:
        """Start with an empty disk."""
        self.copy.clear()
        self.places = []
        self.start()


class World:
    """Nodes, their log, and what clients know."""

    def __init__(self, seed: int, *, losing: bool = False) -> None:
        """With `losing`, the log loses its newest entries now and then."""
        self._rng = random.Random(seed)
        self._losing = losing
        self._depth = 0
        self._serial = 0
        self.losses = 0
        self.log = SimulatedLog(self._rng, self._interlude)
        self.nodes = [Node(f"n{i}", self.log, self._rng) for i in range(NODES)]
        self.confirmed: dict[int, list[bytes]] = {}
        self.firm: dict[int, bytes] = {}
        """Those of them that no loss of the log can explain away."""
        self.oldest = 0
        """Frames below are not needed any more."""
        self.snapshots: dict[int, set[bytes]] = {}
        self.answers = 0
        self.take_overs = 0
        self.deposed = 0
        self.found_lost = 0
        self.put_back = 0
        self.trimmed = 0
        self.copied_anew = 0

    def run(self, steps: int) -> None:
        """Run a history, and check what is left of it. Raises Violation."""
        for _ in range(steps):
            self._step()
        self.log.settle()
        self._depth = _DEPTH
        for node in self.nodes:
            self._read_all(node)
        self._put_back()
        self._judge()

    def _read_all(self, node: Node) -> None:
        node.save()
        if self.losses:
            node.places = []
        node.start()
        try:
            node.tail.read_to_end()
        except EntriesTrimmed:
            node.start_over()
            node.tail.read_to_end()

    def _put_back(self) -> None:
        """Let the node with the longest copy lead, as the waiting times do it, and the others follow."""
        self.log.quiet = True
        node = max(self.nodes, key=lambda node: node.copy.end)
        if not node.leader.take_over():
            raise Violation("a claim does not count although nobody else is there")
        self.put_back += node.leader.restore(node.copy.pieces())
        for each in self.nodes:
            self._read_all(each)

    def _judge(self) -> None:
        journals = []
        for node in self.nodes:
            frames = {lsn: data for lsn, data in node.copy.frames.items() if lsn >= self.oldest}
            journals.append(frames)
            for lsn, data in self.firm.items():
                if lsn >= self.oldest and frames.get(lsn) != data:
                    raise Violation(f"{node.name} does not have the confirmed frame at LSN {lsn}")
            for lsn, data in node.copy.snapshots.items():
                if data not in self.snapshots[lsn]:
                    raise Violation(f"{node.name} has another snapshot at LSN {lsn}")
        if any(journal != journals[0] for journal in journals):
            raise Violation("the nodes have different journals")
        for lsn, versions in self.confirmed.items():
            for data in versions:
                known = [node.copy.reported.get(lsn, []) for node in self.nodes]
                if lsn >= self.oldest and journals[0].get(lsn) != data and not any(data in each for each in known):
                    raise Violation(f"the confirmed frame at LSN {lsn} is lost, and nobody has reported it")

    def _interlude(self) -> None:
        """Let other nodes act in the middle of a call."""
        if self._depth >= _DEPTH:
            return
        self._depth += 1
        while self._rng.random() < 0.3:
            self._step()
        self._depth -= 1

    def _step(self) -> None:
        if self._losing and self._rng.random() < 0.03:
            self._lose(self._rng.randint(1, MOST_LOST))
        free = [node for node in self.nodes if not node.busy]
        if not free:
            return
        node = self._rng.choice(free)
        what = self._rng.choices(list(STEPS), list(STEPS.values()))[0]
        self._act(node, getattr(self, f"_{what}"))

    def _lose(self, number: int) -> None:
        """Let the log lose its newest entries."""
        if self.log.lose(number):
            self.losses += 1
            self.firm.clear()

    def _act(self, node: Node, action: Callable[[Node], None]) -> None:
        """Let a node act, and let it begin anew as a broker does if that fails."""
        node.busy = True
        try:
            action(node)
        except Deposed:
            self.deposed += 1
        except AppendUnknown:  # a broker that does not know the fate of a frame ends, and starts again
            node.start()
        except EntriesTrimmed:
            self.copied_anew += 1
            node.start_over()
        except EntriesLost:
            if not self.losses:
                raise
            self.found_lost += 1
            node.places = []
            node.start()
        finally:
            node.busy = False

    def _follow(self, node: Node) -> None:
        if self._rng.random() < GLANCES:
            node.tail.read_on()
        else:
            node.tail.read_to_end()
        if node.tail.fold.hole and not self.losses:
            raise Violation("entries seem to be lost, but none are")
        if node.tail.fold.hole and not node.tail.fold.notices:
            node.leader.give_notice(CopyEnd(node.tail.fold.epoch, node.copy.end))

    def _take_over(self, node: Node) -> None:
        if not node.leader.leads:
            losses = self.losses
            node.leader.take_over()
            node.claimed = losses

    def _begin(self, node: Node) -> None:
        """Put back what the log lacks, and begin a segment, as a broker does when it starts, also if its claim came to
        count after its time.
        """
        epoch = node.leader.claim.stamp.epoch
        if node.restored != epoch:
            if node.copy.end > node.tail.fold.next_lsn:
                self.put_back += node.leader.restore(node.copy.pieces())
            node.restored = epoch
        if node.began != epoch:
            self._roll(node, begin=True)
            node.began = epoch
            self.take_overs += 1

    def _roll(self, node: Node, *, begin: bool = False) -> None:
        """Begin a segment."""
        if node.leader.leads and (begin or node.began == node.leader.claim.stamp.epoch):
            header = FileHeader(TYPE_SEGMENT, bytes(16), node.tail.fold.next_lsn, self._next()).pack()
            node.leader.begin_segment(header)

    def _publish(self, node: Node) -> None:
        if not node.leader.leads:
            return
        self._begin(node)
        self._append(node, b"%s %d " % (node.name.encode(), self._next()) + bytes(self._rng.randrange(20)))

    def _append(self, node: Node, data: bytes) -> None:
        """Append a frame, and confirm it."""
        lsn = node.tail.fold.next_lsn
        if self._rng.random() < 0.5:  # the disk is faster than the log
            node.copy.write(lsn, data)
        node.leader.append_frame(lsn, [data[:3], data[3:]])
        known = self.confirmed.setdefault(lsn, [])
        if known and data not in known and not self.losses:
            raise Violation(f"two frames are confirmed at LSN {lsn}")
        known.append(data)
        if node.claimed == self.losses:
            self.firm[lsn] = data

    def _ask(self, node: Node) -> None:
        """A client asks what there is. The answer must have everything that was confirmed before the question."""
        if not node.leader.leads:
            return
        expected = dict(self.firm)
        node.leader.prove()
        self.answers += 1
        if node.claimed != self.losses:
            return
        for lsn in expected:
            if lsn >= self.oldest and lsn not in node.copy.frames:
                raise Violation(f"{node.name} answers without the frame at LSN {lsn}")

    def _resign(self, node: Node) -> None:
        node.leader.resign()

    def _crash(self, node: Node) -> None:
        if self._rng.random() < 0.7:
            node.save()
        node.start()

    def _snapshot(self, node: Node) -> None:
        """Put a snapshot into the log, with other entries between its pieces."""
        if not node.leader.leads or node.began != node.leader.claim.stamp.epoch:
            return
        lsn, data = node.tail.fold.next_lsn, self._rng.randbytes(self._rng.randrange(1, 30))
        pieces = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
        self.snapshots.setdefault(lsn, set()).add(data)
        whole = node.tail.fold.snapshot
        if whole is None or whole.lsn < lsn:
            node.leader.put_snapshot(lsn, len(data), pieces)

    def _trim(self, node: Node) -> None:
        """Let the messages of the oldest segments be consumed, and trim the log."""
        segments = node.tail.segments
        if self._losing or not node.leader.leads or len(segments) < 2:
            return
        oldest = self._rng.choice(segments[1:]).lsn
        if node.tail.fold.snapshot is None or node.tail.fold.snapshot.lsn < oldest:
            return
        node.leader.prove()
        self.oldest = max(self.oldest, oldest)
        before = self.log.begin()
        self.trimmed += node.leader.trim(oldest) > before

    def _replace(self, node: Node) -> None:
        """Replace the machine, whose disk is gone."""
        if self._rng.random() < 0.3 and not self._losing:
            node.start_over()

    def _next(self) -> int:
        self._serial += 1
        return self._serial
