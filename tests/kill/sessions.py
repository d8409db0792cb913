"""Clients of a kill test over AMQP 0-10. They send ahead, each in a session, and note which commands were completed."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from escrowmq.wire.amqp010.codec.spec import (
    AcceptMode,
    DtxCommit,
    DtxEnd,
    DtxPrepare,
    DtxRecover,
    DtxRollback,
    DtxSelect,
    DtxStart,
    MessageAccept,
    MessageRelease,
    QueueDeclare,
    TxCommit,
    TxRollback,
    TxSelect,
    XaStatus,
    Xid,
)
from tests.kill.clients import PAIR
from tests.kill.ledger import Ledger, make_transaction
from tests.kill.raw_session import RawSession

SESSION_QUEUES: Final = ("single", *PAIR, "work", "done", "plain", "stock", "sold")
_WINDOW: Final = 400
_AHEAD: Final = 5  # transactions whose commit is not answered yet


def declare_queues(url: str) -> None:
    """Declare all queues as durable."""
    session = RawSession(url)
    for queue in SESSION_QUEUES:
        session.call(QueueDeclare(queue, durable=True))
    session.close()


def stock(url: str, queue: str, ledger: Ledger, first: int, count: int) -> None:
    """Publish messages to be moved, in one transaction."""
    session = RawSession(url)
    session.send(TxSelect())
    bodies = [b"%d" % number for number in range(first, first + count)]
    for body in bodies:
        session.transfer(queue, body)
    session.call(TxCommit())
    ledger.fed.update(bodies)
    session.close()


class SessionClient:
    """A client with one session."""

    def __init__(self, url: str) -> None:
        self._session = RawSession(url)

    def work(self) -> None:
        """Do some work. Called again and again."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection, which may be lost."""
        self._session.close()


class ConfirmingSession(SessionClient):
    """Publishes numbered messages with a window of those that are neither completed nor accepted."""

    def __init__(self, url: str, queue: str, first: int, note: Callable[[int], None]) -> None:
        self.next = first
        self._queue, self._note = queue, note
        super().__init__(url)
        self._session.on_accepted = self._accepted
        self._by_command: dict[int, int] = {}
        self._unanswered = 0

    def _done(self, number: int) -> None:
        self._unanswered -= 1
        self._note(number)

    def _accepted(self, command: int) -> None:
        self._note(self._by_command[command])

    def work(self) -> None:
        while self._unanswered < _WINDOW:
            number, self.next = self.next, self.next + 1
            self._unanswered += 1
            mode = AcceptMode.EXPLICIT if number % 2 else AcceptMode.NONE
            body, session = b"%d" % number, self._session
            command = session.transfer(self._queue, body, partial(self._done, number), mode=mode)
            self._by_command[command] = number
        self._session.pump()


class AcceptingSession(SessionClient):
    """Accepts most of its deliveries outside transactions, and notes which acceptances are complete."""

    def __init__(self, url: str, ledger: Ledger, rng: random.Random) -> None:
        self._ledger, self._rng = ledger, rng
        super().__init__(url)
        self._session.subscribe("plain")

    def work(self) -> None:
        session, ledger = self._session, self._ledger
        session.pump()
        while session.arrived:
            most = self._rng.randrange(1, 30)
            some = [session.arrived.popleft() for _ in range(min(most, len(session.arrived)))]
            if self._rng.random() < 0.1:
                continue
            bodies = [int(body) for _, body in some]
            ledger.acked.update(bodies)
            session.send(_accept(some), partial(ledger.removed.update, bodies))


class CommittingSession(SessionClient):
    """Publishes to several queues in transactions, sends commits ahead, and rolls some transactions back."""

    def __init__(self, url: str, ledger: Ledger, first: int, rng: random.Random) -> None:
        self.next = first
        self._ledger, self._rng = ledger, rng
        super().__init__(url)
        self._session.send(TxSelect())
        self._ahead = 0

    def _committed(self, number: int) -> None:
        self._ahead -= 1
        self._ledger.committed[number] = self._ledger.doubtful.pop(number)

    def work(self) -> None:
        while self._ahead < _AHEAD:
            number, self.next = self.next, self.next + 1
            transaction = make_transaction(number, PAIR, self._rng)
            for queue, bodies in transaction.parts.items():
                for body in bodies:
                    self._session.transfer(queue, body)
            if self._rng.random() < 0.1:
                self._session.send(TxRollback())
                continue
            self._ledger.doubtful[number] = transaction
            self._ahead += 1
            self._session.send(TxCommit(), partial(self._committed, number))
        self._session.pump()


class MovingSession(SessionClient):
    """Moves messages from one queue to another in transactions, whose commits it sends ahead."""

    source, target = "work", "done"

    def __init__(self, url: str, ledger: Ledger, rng: random.Random) -> None:
        self._ledger, self._rng = ledger, rng
        super().__init__(url)
        self._ahead = 0
        self._begin()
        self._session.subscribe(self.source)

    def work(self) -> None:
        session = self._session
        session.pump()
        while session.arrived and self._ahead < _AHEAD:
            most = self._rng.randrange(1, 20)
            self._move([session.arrived.popleft() for _ in range(min(most, len(session.arrived)))])

    def _begin(self) -> None:
        self._session.send(TxSelect())

    def _send_on(self, some: list[tuple[int, bytes]]) -> frozenset[bytes]:
        for _, body in some:
            self._session.transfer(self.target, body)
        self._session.send(_accept(some))
        return frozenset(body for _, body in some)

    def _moved(self, bodies: frozenset[bytes]) -> None:
        self._ahead -= 1
        self._ledger.moved.update(bodies)

    def _move(self, some: list[tuple[int, bytes]]) -> None:
        bodies = self._send_on(some)
        if self._rng.random() < 0.1:
            self._session.send(MessageRelease(_ranges(some)))
            self._session.send(TxRollback())
            return
        self._ledger.together.append(bodies)
        self._ahead += 1
        self._session.send(TxCommit(), lambda: self._moved(bodies))


class BranchMovingSession(MovingSession):
    """Moves messages in distributed transactions. It sends all steps of a branch ahead, and leaves some undecided."""

    source, target = "stock", "sold"

    def __init__(self, url: str, ledger: Ledger, first: int, rng: random.Random) -> None:
        super().__init__(url, ledger, rng)
        self.next = first
        self.prepared: dict[int, frozenset[bytes]] = {}
        """Branches whose preparation is complete, and whose outcome was not asked for."""
        self.begun: dict[int, frozenset[bytes]] = {}

    def _begin(self) -> None:
        self._session.send(DtxSelect())

    def _voted(self, vote: int, number: int, bodies: frozenset[bytes], *, decided: bool) -> None:
        assert self._session.results.pop(vote).status == XaStatus.XA_OK, f"branch {number} was not prepared"
        if not decided:
            self._ahead -= 1
            self.prepared[number] = bodies

    def _move(self, some: list[tuple[int, bytes]]) -> None:
        number, self.next = self.next, self.next + 1
        session, xid, chance = self._session, _xid(number), self._rng.random()
        session.send(DtxStart(xid))
        bodies = self._send_on(some)
        session.send(DtxEnd(xid))
        self._ahead += 1
        if chance < 0.1:
            session.send(DtxRollback(xid), self._rolled_back)
            return
        self._ledger.together.append(bodies)
        self.begun[number] = bodies
        if chance < 0.3:
            session.send(DtxCommit(xid, one_phase=True), lambda: self._moved(bodies))
            return
        vote = session.next
        decided = chance < 0.9
        session.send(DtxPrepare(xid), lambda: self._voted(vote, number, bodies, decided=decided))
        if decided:
            session.send(DtxCommit(xid), lambda: self._moved(bodies))

    def _rolled_back(self) -> None:
        self._ahead -= 1

    def recover(self, url: str, rng: random.Random) -> None:
        """Decide the branches in doubt. Raises AssertionError if one of those that were prepared is not among them."""
        session = RawSession(url)
        found = session.call(DtxRecover()).in_doubt
        numbers = {int(bytes(xid.global_id)) for xid in found}
        missing = set(self.prepared) - numbers
        assert not missing, f"{len(missing)} prepared branches are lost; one is {min(missing)}"
        unknown = numbers - set(self.begun)
        assert not unknown, f"branch {min(unknown)} is in doubt, but was never begun"
        for number in sorted(numbers):
            bodies = self.begun[number]
            assert not bodies & self._ledger.moved, f"branch {number} is in doubt, but its commit was complete"
            if rng.random() < 0.5:
                session.call(DtxCommit(_xid(number)))
                self._ledger.moved.update(bodies)
            else:
                session.call(DtxRollback(_xid(number)))
        session.close()


def _accept(some: list[tuple[int, bytes]]) -> MessageAccept:
    return MessageAccept(_ranges(some))


def _ranges(some: list[tuple[int, bytes]]) -> tuple[tuple[int, int], ...]:
    ranges: deque[tuple[int, int]] = deque()
    for number, _ in some:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)


def _xid(number: int) -> Xid:
    return Xid(1, b"%d" % number, b"kill")
