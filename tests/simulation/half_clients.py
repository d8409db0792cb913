"""The clients of `HalfWorld`: what producers keep in their databases, and what is on the wires. They share no code with
the broker.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.conditions import BrokerError
from tests.simulation.ledger import Violation

if TYPE_CHECKING:
    from escrowmq.core.half.message import HalfMessage
    from tests.simulation.half_world import HalfWorld

CHECKS: Final = 3
OUTCOMES: Final = {"commit": "committed", "force": "committed", "roll back": "rolled back", "drop": "rolled back"}


class Request(NamedTuple):
    """A request on the wire."""

    verb: str
    ident: str
    number: int = 0


@dataclass
class Account:
    """What is known about one message.

    `local` is the outcome of the local transaction, empty while it runs. `number` is that of the acknowledged half
    message. `requested` holds the decisions that the broker has accepted, answered or not; `promised` is the outcome
    that was answered. `parked` is the end of the log when the message was seen parked, 0 if it is not. `checks` counts
    the checks that were written since the message was stored or resumed.
    """

    ident: str
    local: str = ""
    number: int = 0
    promised: str = ""
    checks: int = 0
    muddled: bool = False
    parked: int = 0
    requested: set[str] = field(default_factory=set)

    def decide(self, what: int) -> None:
        """End the local transaction, if it runs."""
        if not self.local:
            self.local = "commit" if what % 3 else "roll back"


class ProducerProcess:
    """A producer, or the operator: its requests, and the answers that wait for a sync or are on their way."""

    def __init__(self, world: HalfWorld, who: int) -> None:
        self.user = "u"
        self.label = f"client-{who}"
        self.writable = True
        self.connected = True
        self.requests: deque[Request] = deque()
        self.answers: deque[tuple[Request, str, int]] = deque()
        self._waiting: list[tuple[int, tuple[Request, str, int]]] = []
        self._checks: list[tuple[str, int]] = []
        self._world = world

    # -- the connection

    def join(self) -> None:
        """Connect, and join the group."""
        self.connected = True
        self._world.site.broker.half.producers.join("/", "g", self)

    def lose(self) -> None:
        """Lose the connection, with everything that is on its way."""
        self._world.site.broker.half.producers.leave(self)
        self.broker_died()

    def broker_died(self) -> None:
        """Lose everything that is on its way."""
        self.connected = False
        self.requests.clear()
        self.answers.clear()
        self._waiting.clear()

    # -- answers

    def tell(self, lsn: int, request: Request, result: str, number: int = 0) -> None:
        """Answer a request once the log is synced up to `lsn`, after all earlier answers."""
        self._waiting.append((lsn, (request, result, number)))
        self.synced(self._world.site.journal.synced_lsn)

    def synced(self, lsn: int) -> None:
        """Let the answers leave that have waited for this sync, in order."""
        while self._waiting and self._waiting[0][0] <= lsn:
            self.answers.append(self._waiting.pop(0)[1])

    def hear(self) -> None:
        """Take the next answer, and remember what it promises."""
        if not self.answers:
            return
        request, result, number = self.answers.popleft()
        account = self._world.accounts.get(request.ident)
        if account is None or result != "ok":
            return
        if request.verb == "store":
            if account.number and account.number != number:
                raise Violation(f"{account.ident} was number {account.number}, and became {number}")
            account.number = number
        promised = OUTCOMES.get(request.verb, "")
        if promised:
            if account.promised and account.promised != promised:
                raise Violation(f"{account.ident} was {account.promised}, and became {promised}")
            account.promised = promised

    # -- half messages

    def end(self, account: Account, verb: str) -> None:
        """Send a decision."""
        if self.connected:
            self.requests.append(Request(verb, account.ident, account.number))

    def check(self, half: HalfMessage) -> bool:
        """Take a check of the broker."""
        world = self._world
        account = world.accounts[half.message_id]
        try:
            content = half.content
        except BrokerError as error:
            if world.refused(error):
                return False
            raise
        if content != account.ident.encode():
            raise Violation(f"the check of {account.ident} has the content of another message")
        if not self.connected or not self.writable:
            world.count("check not taken")
            return False
        if world.stored_end(half.number) > world.site.journal.synced_lsn:
            raise Violation(f"{account.ident} is checked before it is on disk")
        account.checks += 1
        if account.checks > CHECKS:
            raise Violation(f"{account.ident} is checked {account.checks} times")
        world.count("checked")
        self._checks.append((half.message_id, half.number))
        return True

    def answer_checks(self, what: int) -> None:
        """Answer the checks that have arrived, by the state of the database."""
        checks, self._checks = self._checks, []
        for ident, number in checks:
            account = self._world.accounts[ident]
            if what % 4 == 0:
                account.decide(what + number)
            if self.connected:
                self.requests.append(Request(account.local or "unknown", ident, number))
