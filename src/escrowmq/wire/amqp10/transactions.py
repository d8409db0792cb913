"""The transactions of a connection: declared on a control link, given work on any session, discharged (part 4; SET-7).

The work of a transaction is enlisted in a branch of the core, which keeps it until the discharge. A transaction that
cannot commit any more has a `fault`. It stays in the table until its discharge, so that the client learns the reason.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from escrowmq.core.branches.branch import Keep, Settlement, State
from escrowmq.core.branches.watch import Watch
from escrowmq.core.conditions import BrokerError
from escrowmq.core.messages.marks import Modification
from escrowmq.core.queues.outcome import Disposition
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.performatives import SENDER
from escrowmq.wire.amqp10.codec.states import Accepted, Declared, Rejected, Released, TransactionalState
from escrowmq.wire.amqp10.enlisted import Enlisted, Retirements, RetirementUndo
from escrowmq.wire.amqp10.errors import (
    LIMIT_EXCEEDED,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TIMEOUT,
    UNKNOWN_TRANSACTION,
    AmqpFault,
    link_fault,
)
from escrowmq.wire.amqp10.incoming import Mode
from escrowmq.wire.amqp10.large_transactions import undo
from escrowmq.wire.amqp10.relievable import WithoutDeliveries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from escrowmq.core.branches.branch import Publication, TransactionBranch
    from escrowmq.core.broker import Broker
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.termini.loan import Loan
    from escrowmq.wire.amqp10.codec.states import Outcome
    from escrowmq.wire.amqp10.connection import Connection
    from escrowmq.wire.amqp10.coordinator import CoordinatorLink
    from escrowmq.wire.amqp10.outgoing import ConsumerLink
    from escrowmq.wire.amqp10.sent import Part
    from escrowmq.wire.amqp10.session import Session

_ID_BYTES: Final = 8
_ANY_ID: Final = b"\xff" * _ID_BYTES
_ACCEPTED: Final = encode_composite(TransactionalState(_ANY_ID, Accepted())).split(_ANY_ID)
"""The octets before and behind the id in the state of a delivery that was accepted in a transaction."""
_DECLARED: Final = encode_composite(Declared(_ANY_ID)).split(_ANY_ID)


class LocalTransaction(WithoutDeliveries):
    """One transaction. `fault` is the reason why it cannot commit any more, if there is one."""

    __slots__ = (
        "__weakref__",
        "_connection",
        "_modes",
        "_retired",
        "_returning",
        "_watch",
        "accepted",
        "branch",
        "control",
        "enlisted",
        "fault",
        "id",
        "lsn",
        "rest",
        "undoing",
    )

    def __init__(self, connection: Connection, control: CoordinatorLink) -> None:
        broker = connection.broker
        self._connection = connection
        self._watch = Watch(broker.engine.deadlines, connection.limits.transaction.age, self._expire)
        self.branch: TransactionBranch = broker.transactions.begin(connection.limits.transaction, self._watch)
        self.branch.holding = broker.holdings.begin(connection.user, connection.vhost.name)
        self.control = control
        self.id = self.branch.number.to_bytes(_ID_BYTES, "big")
        self.accepted = self.id.join(_ACCEPTED)
        self.enlisted: deque[Enlisted] = deque()
        self._retired = Retirements()
        self._modes: dict[bool, Mode] = {}
        self._returning: dict[ConsumerLink, RetirementUndo] = {}
        self.fault: AmqpFault | None = None
        self.lsn = 0  # of a commit in pieces
        self.rest: Iterator[None] | None = None  # of a commit whose record is written
        self.undoing = False  # whether the work is being undone in later turns
        broker.engine.holders[self] = None

    @property
    def declared(self) -> bytes:
        """The encoded answer to its declaration."""
        return self.id.join(_DECLARED)

    # -- the state

    @property
    def broker(self) -> Broker:
        """The broker in which the work is enlisted."""
        return self._connection.broker

    @property
    def open(self) -> bool:
        """Whether work can be enlisted."""
        return self.branch.state is State.ACTIVE and self.fault is None

    def fail(self, fault: AmqpFault) -> None:
        """Undo the work, because the transaction cannot commit any more (TX-8). The first reason is kept. Much work is
        undone in later turns.
        """
        if self.fault is None:
            large, self.fault = self.is_large, fault
            if large:
                self._forget()
                self.undoing = True
                self.broker.engine.left_over.add(undo(self))
            else:
                self.roll_back()

    def _expire(self) -> None:
        age = self._connection.limits.transaction.age
        self.fail(link_fault(TRANSACTION_TIMEOUT, f"the transaction was open for more than {age / 1000:g} s"))

    def roll_back(self) -> None:
        """Undo the work: posts are dropped, settled deliveries get the default outcome, others stay unsettled."""
        if self.branch.state is State.ACTIVE:
            self.broker.transactions.close(self.branch)
        self._forget()
        self.give_up_some(len(self.enlisted))

    def _forget(self) -> None:
        """Hold nothing that others have to know of."""
        self.broker.engine.holders.pop(self, None)
        self._watch.close()

    def give_up_some(self, most: int) -> None:
        """Give up deliveries that were only acquired: the next ones of `enlisted`, up to `most` groups."""
        for _ in range(min(most, len(self.enlisted))):
            some = self.enlisted.popleft()
            if some.outcome is None:
                some.give_up()
            else:
                self._retired.remove(some)

    @property
    def is_large(self) -> bool:
        """Whether the transaction is to be committed or rolled back in pieces."""
        return self.undoing or (self.open and self.broker.transactions.is_large(self.branch))

    def commit(self) -> int:
        """Apply the work. Return the LSN up to which the log must be synced before the answer.

        Raises AmqpFault (amqp:transaction:rollback, amqp:transaction:timeout), with nothing applied.
        """
        self.check()
        try:
            lsn = self.broker.transactions.commit(self.branch).lsn
        except BrokerError as error:
            raise self.refused(error) from None
        self.committed(lsn)
        return lsn

    def check(self) -> None:
        """Raise the reason why the transaction cannot commit (AmqpFault), if there is one."""
        if self.fault is not None:
            raise self.fault

    def finish(self) -> None:
        """Let the engine complete a commit whose record is written, because its client is gone."""
        if self.rest is not None:
            self.broker.engine.left_over.add(self.rest)
            self.rest = None
            self.committed(self.lsn)

    def refused(self, error: BrokerError) -> AmqpFault:
        """Undo the work, because the core refused the commit. Return the reason for the client."""
        fault = link_fault(TRANSACTION_ROLLBACK, error.text)
        self.fail(fault)
        return fault

    def committed(self, lsn: int) -> None:
        """Settle the deliveries that were retired and that the client left to the broker to settle."""
        self.close()
        self.settle_some(lsn, len(self.enlisted))

    def close(self) -> None:
        """Hold nothing any more, because the work is committed."""
        holders = self.broker.engine.holders
        holders.pop(self.branch, None)
        holders.pop(self, None)
        self._watch.close()
        if self.branch.holding is not None:
            self.branch.holding.close()

    def settle_some(self, lsn: int, most: int) -> None:
        """Settle retired deliveries: the next ones of `enlisted`, up to `most` groups. Call `close` before."""
        for _ in range(min(most, len(self.enlisted))):
            some = self.enlisted.popleft()
            if some.outcome is None:
                continue
            self._retired.remove(some)
            if not some.settled and not some.session.ending:
                some.session.sent.settled(some.first, some.unsettled)
                some.session.answer(
                    SENDER, some.first, some.last, settled=True, state=encode_composite(some.outcome), after=lsn
                )

    def end(self) -> None:
        """Forget the parts that refer to the transaction or to links, so that its memory needs no garbage collector."""
        self._modes.clear()
        self._returning.clear()
        self._retired.clear()

    # -- memory, which can be taken back (`server.relief.MemoryOwner`)

    @property
    def owner(self) -> tuple[str, object]:
        """The user and the client's container."""
        return self._connection.user, self._connection.container

    def held_bytes(self, before: int) -> int:
        """The bytes of the open transaction, about."""
        del before
        return self.branch.bytes if self.open else 0

    def give_up(self, text: str) -> None:
        """Roll back, because memory is short and the transaction has held much for long. Its discharge is told."""
        if self.open:
            self.fail(link_fault(TRANSACTION_ROLLBACK, text))

    # -- posting

    def mode(self, *, settled: bool) -> Mode:
        """Return the mode of posts; the same one each time, so that posts form runs."""
        mode = self._modes.get(settled)
        if mode is None:
            mode = Mode(settled=settled, transaction=self)
            if self.open:
                self._modes[settled] = mode
        return mode

    def state(self, outcome: Outcome) -> bytes:
        """Return `outcome` as the encoded state of a delivery in this transaction."""
        return encode_composite(TransactionalState(self.id, outcome))

    def post(
        self, work: Publication, loan: Loan | None, tags: list[bytes], *, needs_queue: bool = True
    ) -> tuple[bytes, str]:
        """Enlist messages; with `loan`, also the arrival of their tags at its terminus (SET-8). Return the state with
        which they are answered, and its symbol unless it is `accepted`. Messages without a queue are released, unless
        they need none.
        """
        if self.fault is None and work.queues:
            try:
                self.broker.transactions.enlist(self.branch, work)
                if loan is not None:
                    loan.arrive_in(self.branch, self, work, tags)
            except BrokerError as error:
                self.fail(link_fault(TRANSACTION_ROLLBACK, error.text))
        if self.fault is not None:
            return self.state(Rejected(self.fault.error())), "amqp:rejected:list"
        if not work.queues and needs_queue:
            return self.state(Released()), "amqp:released:list"
        return self.accepted, ""

    # -- retirement and acquisition

    def retire(
        self, session: Session, part: Part, outcome: Outcome, change: Disposition | Modification, *, settled: bool
    ) -> int:
        """Enlist the outcome of deliveries, which `change` is in the words of the core. Return the number of those that
        were unsettled.
        """
        link, first, last = part.link, part.number, part.number + part.last - part.first
        returning = self._returning.get(link)
        if returning is None:
            returning = self._returning[link] = RetirementUndo(link)
        if settled:
            for some in self._retired.overlapping(link, part.first, part.last):
                if not some.settled:
                    some.settle(part.first, part.last, returning)
            returning.settle(first, last)
        count = 0
        if self.fault is None:
            deliveries = link.enlist(self.branch, first, last)
            count = sum([len(entries) for _, _, entries in deliveries])
            self._settle(returning, deliveries, change)
        elif settled:
            link.settle(first, last, link.default)
        if self.fault is None and count:
            retired = Enlisted(session, link, part.first, part.last, first, count, outcome, settled=settled)
            if not (self.enlisted and self.enlisted[-1].join(retired)):
                self.enlisted.append(retired)
            self._retired.add(self.enlisted[-1], part.first, part.last)
        if settled:
            session.sent.settled(part.first, count)
        return count

    def _settle(
        self,
        returning: RetirementUndo,
        deliveries: list[tuple[Consumer, Sequence[int], list[Entry]]],
        change: Disposition | Modification,
    ) -> None:
        """Enlist settlements of deliveries."""
        modification = change if isinstance(change, Modification) else None
        disposition = change if isinstance(change, Disposition) else Disposition.MODIFIED
        if modification is not None and modification.rejected:
            disposition = Disposition.REJECTED
        for consumer, numbers, entries in deliveries:
            if self.fault is not None:
                returning.keep(consumer, numbers, entries)
                continue
            work = Settlement(consumer, entries, disposition, Keep(returning, numbers), modification=modification)
            try:
                self.broker.transactions.enlist(self.branch, work)
            except BrokerError as error:
                self.fail(link_fault(TRANSACTION_ROLLBACK, error.text))

    def acquired(self, session: Session, link: ConsumerLink, first: int, count: int, number: int) -> None:
        """Note deliveries that a link acquired in this transaction."""
        self.enlisted.append(Enlisted(session, link, first, first + count - 1, number, count))

    def holds(self, link: ConsumerLink, first: int, last: int) -> bool:
        """Return whether outcomes for deliveries of `link` between these numbers are enlisted."""
        return any(True for _ in self._retired.overlapping(link, first, last))


class LocalTransactions:
    """The transactions of one connection, by their ids."""

    __slots__ = ("_by_id", "_connection")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._by_id: dict[bytes, LocalTransaction] = {}

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def __contains__(self, transaction: object) -> bool:
        return transaction in self._by_id.values()

    def declare(self, control: CoordinatorLink) -> LocalTransaction:
        """Begin a transaction. Raises AmqpFault (resource-limit-exceeded)."""
        most = self._connection.limits.transactions
        if len(self._by_id) >= most:
            raise link_fault(LIMIT_EXCEEDED, f"the connection has {most} open transactions, the configured limit")
        transaction = LocalTransaction(self._connection, control)
        self._by_id[transaction.id] = transaction
        self._connection.expect(transaction)
        return transaction

    def find(self, ident: bytes) -> LocalTransaction:
        """Return the transaction with this id. Raises AmqpFault (amqp:transaction:unknown-id)."""
        transaction = self._by_id.get(ident)
        if transaction is None:
            raise link_fault(UNKNOWN_TRANSACTION, f"no transaction {ident.hex()} is open on this connection")
        return transaction

    def end(self, transaction: LocalTransaction) -> None:
        """Forget a transaction that was discharged."""
        del self._by_id[transaction.id]
        transaction.end()
        self._connection.forget_transaction(transaction)

    def holder(self, link: ConsumerLink, first: int, last: int) -> LocalTransaction | None:
        """Return a transaction that holds outcomes for deliveries of `link` between these numbers of its session."""
        return next((one for one in self._by_id.values() if one.holds(link, first, last)), None)

    def drop(self, control: CoordinatorLink) -> None:
        """Roll back all transactions of a control link that is gone."""
        for transaction in [one for one in self._by_id.values() if one.control is control]:
            transaction.finish()
            transaction.fail(link_fault(TRANSACTION_ROLLBACK, "the control link was detached"))
            self.end(transaction)
