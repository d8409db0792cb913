"""One large settlement in pieces of two deliveries: other clients, the disk, snapshots and a crash come in between.

A client holds all messages of a queue that were published first, and settles them at once: by `basic.nack`,
`basic.recover`, `basic.reject` of all, `basic.ack`, or by losing its connection. Another client publishes, gets and
acknowledges meanwhile. The world knows only the numbers in the bodies, what each client has done, and how far the log
was synced.
"""

from __future__ import annotations

import random
from typing import Final
from unittest import mock

from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import basic_methods, frames, spec
from escrowmq.wire.amqp091.method import Method
from tests.harness.client import PERSISTENT, SimClient
from tests.harness.frames import publish_frames
from tests.harness.holding import each_held
from tests.harness.server import Options, SimServer
from tests.simulation.ledger import Violation

OPTIONS: Final = Options(segment_bytes=3000, batch_bytes=2000, resident_limit=600, return_piece=2, capture_piece=1)
HOW: Final = ("nack", "recover", "reject", "ack", "lose")
RETURNING: Final = ("nack", "recover", "lose")
OTHERS: Final = ("publish", "get", "ack", "take", "write", "report", "sync", "snapshot", "nothing")
Q: Final = "q"


class SettlementWorld:
    """One history. `pieces` counts the turns that the settlement took."""

    def __init__(self, seed: int) -> None:
        self._choose = random.Random(f"settlements {seed}")
        self.how = self._choose.choice(HOW)
        self._crashes_after = self._choose.choice((None, self._choose.randrange(12)))
        self._storage = MemoryStorage(random.Random(seed))
        self.pieces = 0
        self.crashed = False
        self._published = 0
        self._waiting: list[int] = []  # published, and not known to be delivered to the other client
        self._got: dict[int, int] = {}  # number: delivery tag, at the other client
        self._acked: set[int] = set()
        self._history: list[tuple[int, int, frozenset[int]]] = []  # end of the log, taken, settled
        self._server = SimServer(self._storage, OPTIONS)
        self._holder, self._other = SimClient(self._server, "holder"), SimClient(self._server, "other")
        for client in (self._holder, self._other):
            client.open_channel(1)
        self._holder.declare(1, Q)
        self._set_up(self._choose.randrange(9, 30))

    def _set_up(self, count: int) -> None:
        """Publish messages, and let the holder get them: one by one, or by a subscription."""
        for _ in range(count):
            self._publish()
            if self._choose.random() < 0.5:
                self._server.end_turn()
        self._server.end_turn()
        self._server.run_disk()
        if self._choose.random() < 0.5:
            self._holder.send(1, *[spec.BasicGet(Q) for _ in range(count)])
        else:
            self._holder.send(1, spec.BasicConsume(Q, "c"))
            self._holder.send(1, spec.BasicCancel("c"))
        self.held = list(range(count))
        if self._holders() != self.held:
            raise Violation("the holder has not got all messages in order")
        self._note()

    # -- the history

    def run(self) -> None:
        """Run the history. Raises Violation."""
        with mock.patch.object(basic_methods, "ACKED_AT_ONCE", OPTIONS.return_piece):
            self._settle()
            while self._unfinished():
                self.pieces += 1
                self._meanwhile(self._choose.choice(OTHERS))
                if self.pieces == self._crashes_after:
                    self._crash()
                    return
                self._end_turn()
        self._server.broker.engine.requests.turn = 700
        self._finish()

    def _settle(self) -> None:
        engine, last = self._server.broker.engine, len(self.held)
        engine.requests.turn = engine.requests.left = 1
        if self.how == "lose":
            self._server.lose(self._holder.port)
        else:
            method: dict[str, Method] = {
                "nack": spec.BasicNack(last, True, True),
                "reject": spec.BasicNack(0, True, False),
                "ack": spec.BasicAck(last, True),
                "recover": spec.BasicRecover(True),
            }
            self._say(self._holder, method[self.how])

    def _unfinished(self) -> bool:
        server = self._server
        return bool(server.unfinished or server.broker.engine.turn.unfinished)

    def _end_turn(self) -> None:
        self._server.end_one_turn()
        self._read()
        self._note()

    def _note(self) -> None:
        queue = self._server.broker.directory.vhost("/").queue(Q)
        self._history.append((self._server.journal.end_lsn, queue.next_position - 1, self._settled()))

    def _settled(self) -> frozenset[int]:
        """Return the messages that are settled up to the present piece."""
        return frozenset() if self.how in RETURNING else frozenset(self.held) - frozenset(self._holders())

    def _holders(self) -> list[int]:
        """Return the numbers that the holder has not settled."""
        channels = self._holder.port.endpoint.channels
        return [int(entry.content[-4:]) for _, entry in each_held(channels[1])] if 1 in channels else []

    # -- other clients

    def _meanwhile(self, what: str) -> None:
        server = self._server
        match what:
            case "publish":
                self._publish()
            case "get":
                for _ in range(self._choose.randrange(1, 6)):  # perhaps more than a piece
                    self._say(self._other, spec.BasicGet(Q))
            case "ack":
                self._acknowledge()
            case "take":
                server.take_batch()
            case "write":
                server.write_batch()
            case "report":
                server.report_batch()
            case "sync":
                server.take_batch()
                server.write_batch()
                server.report_batch()
            case "snapshot":
                server.write_snapshot() or server.begin_snapshot()

    def _say(self, client: SimClient, method: Method) -> None:
        self._server.receive(client.port, frames.method_frame(1, method))

    def _publish(self) -> None:
        body = b"message %04d" % self._published
        self._waiting.append(self._published)
        self._published += 1
        self._server.receive(
            self._other.port, b"".join([publish_frames(1, spec.BasicPublish("", Q), PERSISTENT, body)])
        )

    def _acknowledge(self) -> None:
        if self._got:
            number, tag = self._got.popitem()
            self._acked.add(number)
            self._say(self._other, spec.BasicAck(tag))

    def _read(self) -> None:
        """Check what the other client has got: the first message that may be delivered."""
        self._other.collect()
        while self._other.inbox:
            message = self._other.inbox.popleft()
            if isinstance(message.method, spec.BasicGetOk):
                number = int(message.body[-4:])
                first = self._deliverable()[0]
                if number != first:
                    raise Violation(f"message {number} was delivered before message {first}")
                if (number in self.held) is not message.method.redelivered:
                    raise Violation(f"message {number} is marked wrongly")
                self._waiting.remove(number)
                self._got[number] = message.method.delivery_tag

    def _deliverable(self) -> list[int]:
        """Return the messages that the next one is taken from. Those that are settled or lost return, or are gone."""
        gone = () if self.how in RETURNING else self.held
        return [number for number in self._waiting if number not in gone]

    # -- the end

    def _finish(self) -> None:
        """Let everything come to rest, and compare the queue before and after a restart."""
        self._server.end_turn()
        self._server.run_disk()
        self._read()
        self._compare("at rest", self._ready(), self._deliverable())
        self._server.tidy()
        self._restart()
        left = sorted([*self._deliverable(), *self._got])
        self._compare("after a restart", self._ready(), left)

    def _crash(self) -> None:
        """Lose power, and compare the messages with what was on disk."""
        self.crashed = True
        synced = self._server.journal.synced_lsn
        on_disk = [each for each in self._history if each[0] <= synced]
        _, taken, settled = on_disk[-1]
        maybe_settled = self._settled()  # in memory; the record may be on disk without a report
        self._restart()
        found = self._ready()
        if found != sorted(set(found)):
            raise Violation(f"out of order or twice after a crash: {found}")
        missing = set(range(taken)) - set(found) - self._acked - maybe_settled
        if missing:
            raise Violation(f"lost in a crash: {sorted(missing)}")
        if settled & set(found):
            raise Violation(f"settled on disk, and back after a crash: {sorted(settled & set(found))}")

    def _restart(self) -> None:
        self._storage.crash()
        self._server = SimServer(self._storage, OPTIONS)

    def _ready(self) -> list[int]:
        """Get everything in the queue with a new client."""
        client = SimClient(self._server, "reader")
        client.open_channel(1)
        found = []
        while (message := client.get(1, Q, no_ack=False)) is not None:
            found.append(int(message.body[-4:]))
        client.lose()
        return found

    def _compare(self, when: str, found: list[int], expected: list[int]) -> None:
        if found != expected:
            raise Violation(f"{when}, the queue has {found}, not {expected}")
