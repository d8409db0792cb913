"""Random histories of nodes that replicate a journal.

The nodes claim, lead, append, follow, resign and die, each also in the middle of another one's call, and believe that
they lead long after they were deposed. The oracle knows which frames a leader has confirmed to clients, and nothing of
the rules by which entries count.
"""

from __future__ import annotations

import random
from typing import Final

from escrowmq.journal.format import TYPE_SEGMENT, FileHeader
from escrowmq.replica.errors import AppendUnknown, Deposed
from escrowmq.replica.fold import ReplicatedFrame
from escrowmq.replica.leader import Leader
from escrowmq.replica.tail import LogTail
from tests.simulation.ledger import Violation
from tests.simulation.replica.log import SimulatedLog

NODES: Final = 3
STEPS: Final = {"follow": 6, "take_over": 3, "publish": 12, "ask": 4, "resign": 1, "crash": 1}
CHUNK: Final = 8
"""The bytes of a frame in one entry. Most frames have several."""
_DEPTH: Final = 2


class Copy:
    """A node's journal in memory. A crash leaves it."""

    def __init__(self) -> None:
        self.segments: dict[int, bytes] = {}
        self.frames: dict[int, bytes] = {}

    def segment(self, header: bytes, messages: int) -> None:
        """Keep the header by the place where it is."""
        self.segments[len(self.frames)] = header

    def frame(self, frame: ReplicatedFrame) -> None:
        """Keep the frame. After a crash, the log brings those again that are there."""
        if self.frames.setdefault(frame.lsn, frame.data) != frame.data:
            raise Violation(f"LSN {frame.lsn} had other bytes before the crash")


class Node:
    """A machine, and the process that runs on it."""

    def __init__(self, name: str, log: SimulatedLog) -> None:
        self.name = name
        self.copy = Copy()
        self.busy = False
        self._log = log
        self._starts = 0
        self.start()

    def start(self) -> None:
        """Start the process, which knows nothing but what is on its disk."""
        self._starts += 1
        self.began = 0
        name = f"{self.name}-{self._starts}"
        self.tail = LogTail(self._log, self.copy)
        self.leader = Leader(self._log, self.tail, name, f"amqp://{self.name}", chunk_size=CHUNK)


class World:
    """Nodes, their log, and what clients know."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._depth = 0
        self._serial = 0
        self.log = SimulatedLog(self._rng, self._interlude)
        self.nodes = [Node(f"n{i}", self.log) for i in range(NODES)]
        self.confirmed: dict[int, bytes] = {}
        self.answers = 0
        self.take_overs = 0
        self.deposed = 0

    def run(self, steps: int) -> None:
        """Run a history, and check what is left of it. Raises Violation."""
        for _ in range(steps):
            self._step()
        self.log.settle()
        self._depth = _DEPTH
        copies = []
        for node in self.nodes:
            node.start()
            node.tail.read_to_end()
            copies.append(node.copy.frames)
            for lsn, data in self.confirmed.items():
                if node.copy.frames.get(lsn) != data:
                    raise Violation(f"{node.name} does not have the confirmed frame at LSN {lsn}")
        if any(copy != copies[0] for copy in copies):
            raise Violation("the nodes have different journals")

    def _interlude(self) -> None:
        """Let other nodes act in the middle of a call."""
        if self._depth >= _DEPTH:
            return
        self._depth += 1
        while self._rng.random() < 0.3:
            self._step()
        self._depth -= 1

    def _step(self) -> None:
        free = [node for node in self.nodes if not node.busy]
        if not free:
            return
        node = self._rng.choice(free)
        what = self._rng.choices(list(STEPS), list(STEPS.values()))[0]
        node.busy = True
        try:
            getattr(self, f"_{what}")(node)
        except Deposed:
            self.deposed += 1
        except AppendUnknown:  # a broker that does not know the fate of a frame ends, and starts again
            node.start()
        finally:
            node.busy = False

    def _follow(self, node: Node) -> None:
        node.tail.read_to_end()

    def _take_over(self, node: Node) -> None:
        if not node.leader.leads:
            node.leader.take_over()

    def _begin(self, node: Node) -> None:
        """Begin a segment, as a broker does when it starts, also if its claim came to count after its time."""
        if node.began != node.leader.claim.epoch:
            header = FileHeader(TYPE_SEGMENT, bytes(16), node.tail.fold.next_lsn, self._next()).pack()
            node.leader.begin_segment(header)
            node.began = node.leader.claim.epoch
            self.take_overs += 1

    def _publish(self, node: Node) -> None:
        if not node.leader.leads:
            return
        self._begin(node)
        lsn = node.tail.fold.next_lsn
        data = b"%s %d " % (node.name.encode(), self._next()) + bytes(self._rng.randrange(20))
        node.leader.append_frame(lsn, [data[:3], data[3:]])
        if self.confirmed.setdefault(lsn, data) != data:
            raise Violation(f"two frames are confirmed at LSN {lsn}")

    def _ask(self, node: Node) -> None:
        """A client asks what there is. The answer must have everything that was confirmed before the question."""
        if not node.leader.leads:
            return
        expected = dict(self.confirmed)
        node.leader.prove()
        self.answers += 1
        for lsn in expected:
            if lsn not in node.copy.frames:
                raise Violation(f"{node.name} answers without the frame at LSN {lsn}")

    def _resign(self, node: Node) -> None:
        node.leader.resign()

    def _crash(self, node: Node) -> None:
        node.start()

    def _next(self) -> int:
        self._serial += 1
        return self._serial
