"""Power failures at any point of a branch: an order is consumed and billed atomically (DTX-8, DTX-9)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xid import Xid
from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.method import Method
from tests.harness.client import SimClient
from tests.harness.server import Options, SimServer

ORDERS = 6


@dataclass
class Branch:
    """The transaction manager's knowledge of a branch: its last request, the last answer, and its decision."""

    xid: Xid
    order: bytes
    asked: str = ""
    answered: str = ""
    decision: str = ""


class PowerFailure(Exception):  # noqa: N818 - an event, not an error
    """The power failed: the client's connection and everything that was not on disk are gone."""


class History:
    """A client that works, prepares and decides, on a server with a slow disk and power failures."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.storage = MemoryStorage(random.Random(seed))
        self.lives = self.started = 0
        self.branches: list[Branch] = []
        self.open: Branch | None = None
        self.start()
        self.client.declare(1, "in")
        self.client.declare(1, "out")
        self.client.publish(1, "in", *(b"%d" % number for number in range(ORDERS)))

    def start(self) -> None:
        self.lives += 1
        self.server = SimServer(self.storage, Options(segment_bytes=8192), seed=self.lives)
        self.client = SimClient(self.server)
        self.client.open_channel(1)
        self.client.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)

    def send(self, method: Method) -> Any:
        """Send a method and return the answer. At random, the disk is slow.

        Raises:
            PowerFailure: at random.
        """
        self.client.send(1, method, disk=self.rng.random() < 0.6)
        self.fail_perhaps()
        if not self.client.inbox:
            self.server.run_disk()
            self.client.collect()
        message = self.client.inbox.popleft()
        assert not isinstance(message.method, spec.ChannelClose), message
        return message

    def fail_perhaps(self) -> None:
        if self.rng.random() < 0.07:
            self.note_answers()
            raise PowerFailure

    def note_answers(self) -> None:
        """Note the answers that were sent before the power failure."""
        self.client.collect()
        for message in self.client.inbox:
            if self.open is not None and message.method.CLASS_ID == 105:
                self.open.answered = self.open.asked

    def work(self) -> None:
        """Execute one branch: consume an order, bill it, prepare, and decide it or leave it in doubt."""
        self.started += 1
        xid = Xid(1, b"g%d" % self.started, b"b")
        name = xid.encode()
        self.open = None
        self.send(spec.DtxDemarcationStart(name))
        message = self.send(spec.BasicGet("in"))
        if isinstance(message.method, spec.BasicGetEmpty):
            self.client.call(1, spec.DtxDemarcationEnd(name, fail=True), spec.DtxDemarcationEndOk)
            return
        branch = self.open = Branch(xid, message.body)
        self.branches.append(branch)
        self.client.send(1, spec.BasicAck(message.method.delivery_tag))
        self.client.publish(1, "out", message.body, disk=False)
        self.fail_perhaps()
        self.send(spec.DtxDemarcationEnd(name))
        self.ask(branch, "prepare")
        if self.rng.random() < 0.7:
            self.decide(branch)

    def decide(self, branch: Branch) -> None:
        branch.decision = branch.decision or self.rng.choice(["commit", "rollback"])
        self.ask(branch, branch.decision)

    def ask(self, branch: Branch, what: str) -> None:
        name = branch.xid.encode()
        methods: dict[str, Method] = {
            "prepare": spec.DtxCoordinationPrepare(name),
            "commit": spec.DtxCoordinationCommit(name),
            "rollback": spec.DtxCoordinationRollback(name),
        }
        self.open, branch.asked = branch, what
        assert self.send(methods[what]).method.flags == XaStatus.OK
        branch.answered = what

    def recover(self) -> None:
        """Restart after a power failure, check that promises were kept, and decide some branches."""
        self.storage.crash()
        self.start()
        doubtful = self.doubtful()
        for branch in self.branches:
            match branch.answered, branch.asked:
                case "commit" | "rollback", _:
                    assert branch.xid not in doubtful, "an outcome was forgotten"
                case "prepare", "prepare":
                    assert branch.xid in doubtful, "a prepared branch was lost"
                case "", "":
                    assert branch.xid not in doubtful, "a branch is prepared without a request"
        self.check(doubtful)
        for branch in self.branches:
            if branch.xid in doubtful:
                branch.answered = "prepare"
                if self.rng.random() < 0.5:
                    self.decide(branch)

    def doubtful(self) -> set[Xid]:
        answer = self.client.call(1, spec.DtxCoordinationRecover(True, 1), spec.DtxCoordinationRecoverOk)
        found: Any = answer.xids["xids"]
        return {Xid.decode(name.encode() if isinstance(name, str) else name) for name in found}

    def check(self, doubtful: set[Xid]) -> None:
        """Check that every order is waiting, billed or in doubt, and that answered commits took effect."""
        self.client.open_channel(2)
        waiting, bills = self.waiting("in"), self.waiting("out")
        assert waiting == sorted(waiting), "an order is not at its position"
        locked = [branch.order for branch in self.branches if branch.xid in doubtful]
        assert sorted(waiting + bills + locked) == [b"%d" % number for number in range(ORDERS)]
        for branch in self.branches:
            if branch.answered == "commit":
                assert branch.order in bills
        self.client.send(2, spec.ChannelClose(200, ""))
        self.client.expect(2, spec.ChannelCloseOk)

    def waiting(self, queue: str) -> list[bytes]:
        found = []
        while (message := self.client.get(2, queue)) is not None:
            found.append(message.body)
        return found


@pytest.mark.rule("DTX-8", "DTX-9", "DTX-10", "DTX-14", "ORD-2")
@pytest.mark.parametrize("seed", range(60))
def test_orders_are_billed_atomically_despite_power_failures(seed: int) -> None:
    history = History(seed)
    failures = 0
    for _ in range(12):
        try:
            history.work()
            if history.rng.random() < 0.2:
                history.server.tidy()
        except PowerFailure:
            failures += 1
            while True:
                try:
                    history.recover()
                    break
                except PowerFailure:
                    failures += 1
    history.server.run_disk()
    history.storage.crash()
    history.start()
    history.check(history.doubtful())
    assert history.lives > failures
