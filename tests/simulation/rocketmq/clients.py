"""The clients of `RocketmqWorld`: connections of either protocol whose bytes are on the wires."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from escrowmq.wire.rocketmq.grpc.endpoint import GrpcEndpoint
from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection
from tests.harness.rocketmq_calls import (
    COMMIT,
    ROLL_BACK,
    SEND,
    STORE,
    Answered,
    Asked,
    Calls,
    Checked,
    GrpcCalls,
    RemotingCalls,
)
from tests.simulation.ledger import Violation

if TYPE_CHECKING:
    from tests.harness.server import AnyPort, SimServer
    from tests.simulation.rocketmq.world import RocketmqWorld

QUEUES: Final = 2
CONTRARY: Final = {COMMIT: ROLL_BACK, ROLL_BACK: COMMIT}
MOST: Final = 12
"""Requests that are written at once."""


class Caller:
    """A client. `up` and `down` are the bytes on their way to and from the broker."""

    def __init__(self, world: RocketmqWorld, number: int) -> None:
        self._world = world
        self._name = f"client-{number}"
        grpc = number % 2
        self._make: Callable[[], Calls] = (lambda: GrpcCalls(self._name)) if grpc else (lambda: RemotingCalls(QUEUES))
        self._opener: Any = GrpcEndpoint if grpc else RemotingConnection
        self._calls: Calls = self._make()
        self.port: AnyPort | None = None
        self.up = bytearray()
        self.down = bytearray()

    @property
    def waits(self) -> bool:
        """Whether requests have no answer, or bytes are on their way."""
        return bool(self.up or self.down or self._calls.waiting)

    def connect(self, server: SimServer) -> None:
        """Connect, if there is no connection."""
        if self.port is None:
            self.port = server.open(self._opener, self._name)
            self.up += self._calls.opening()

    def lost(self) -> None:
        """Forget the connection, with everything that is on its way."""
        self.port = None
        self._calls = self._make()
        self.up.clear()
        self.down.clear()

    # -- requests

    def burst(self, rng: random.Random) -> None:
        """Write new sends and half messages, decisions, and some of these again."""
        world, requests = self._world, list[Asked]()
        ledger = world.known
        stored = sorted(ledger.stored)
        for _ in range(rng.randrange(1, MOST)):
            verb = rng.choice((SEND, STORE, STORE, COMMIT, COMMIT))
            if verb in (SEND, STORE):
                requests.append(Asked(verb, world.new_ident()))
            elif stored:
                requests.append(self.decision(rng.choice(stored[-MOST:])))
            if requests and rng.random() < 0.1 and requests[-1].verb != SEND:
                requests.append(requests[-1])
        self.write(requests, all_answered=rng.random() < 0.3)

    def decision(self, ident: str) -> Asked:
        """Return the decision about a half message, which is always the same."""
        return Asked(COMMIT if zlib.crc32(ident.encode()) % 3 else ROLL_BACK, ident, self._world.known.stored[ident])

    def contradict(self, what: int) -> None:
        """Contradict a decision that was answered, in the middle of requests that are right."""
        known = self._world.known
        decided = sorted(known.decided)
        if decided and self.port is not None:
            right = self.decision(decided[what % len(decided)])
            wrong = right._replace(verb=CONTRARY[right.verb])
            self.up += self._calls.encode([wrong], all_answered=True)

    def write(self, requests: list[Asked], *, all_answered: bool = False) -> None:
        """Write requests, if there is a connection."""
        if self.port is None:
            return
        for request in requests:
            self._world.known.ask(request)
        self.up += self._calls.encode(requests, all_answered=all_answered)

    # -- answers

    def hear(self, data: bytes) -> None:
        """Take bytes from the broker. Raises Violation if an answer breaks a promise, and PerfError if a call with
        settings has reached its deadline.
        """
        known = self._world.known
        for each in self._calls.read(data):
            if isinstance(each, Checked):
                self._checked(each)
            elif known.wanted.get(each.request.ident) == CONTRARY.get(each.request.verb, ""):
                if not each.fault:
                    raise Violation(f"{each.request} is accepted, although it contradicts an earlier decision")
                self._world.count("refused: contrary")
            else:
                self._answered(each)
        self.up += self._calls.encode(())  # what the connection itself has to answer

    def _answered(self, answer: Answered) -> None:
        verb, ident, _ = answer.request
        known = self._world.known
        if verb == STORE and not answer.number and not answer.fault:  # this protocol does not tell it
            answer = answer._replace(number=self._world.number_of(ident))
        try:
            known.answered(answer)
        except AssertionError as error:
            raise Violation(str(error)) from None
        self._world.count(f"answered: {verb}")

    def _checked(self, check: Checked) -> None:
        if check.body != check.ident:
            raise Violation(f"the check of {check.ident} has the body {check.body}")
        self._world.count("checked")
        if check.ident in self._world.known.stored:
            self.write([self.decision(check.ident)])
