"""The broker's end of a control link: `declare` begins a transaction, `discharge` ends it (part 4, section 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.wire.amqp10 import large_transactions
from escrowmq.wire.amqp10.answers import MASK
from escrowmq.wire.amqp10.codec.composite import encode_composite, resolve
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.performatives import RECEIVER
from escrowmq.wire.amqp10.codec.sections import body, split_head
from escrowmq.wire.amqp10.codec.states import ACCEPTED, Rejected
from escrowmq.wire.amqp10.codec.termini import Declare, Discharge
from escrowmq.wire.amqp10.codec.types import Described, Symbol
from escrowmq.wire.amqp10.errors import (
    DECODE_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_IMPLEMENTED,
    TRANSACTION_ROLLBACK,
    TRANSFER_LIMIT_EXCEEDED,
    AmqpFault,
    link_fault,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from escrowmq.wire.amqp10.codec.performatives import Attach, Flow
    from escrowmq.wire.amqp10.link import Link
    from escrowmq.wire.amqp10.transactions import LocalTransaction

CREDIT: Final = 100
"""Commands that a client may send without an answer, so that it can declare several transactions at once."""
CAPABILITIES: Final = tuple(
    map(Symbol, ("amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn"))
)
"""The abilities of the coordinator (section 4.5.8)."""
_REJECTED: Final = "amqp:rejected:list"


class CoordinatorLink:
    """A link to the coordinator. All transactions that were declared on it are rolled back when it is gone."""

    __slots__ = ("_count", "_limit", "_rejects", "link")

    def __init__(self, link: Link, request: Attach) -> None:
        self.link = link
        source = request.source
        self._rejects = source is not None and _REJECTED in map(str, source.outcomes or ())
        self._count = request.initial_delivery_count or 0
        self._limit = self._count

    second = False  # commands are settled with their outcome

    # -- credit

    def spend(self, count: int) -> None:
        """Count `count` commands. Raises AmqpFault if they exceed the credit."""
        self._count += count
        if self._count > self._limit:
            raise link_fault(TRANSFER_LIMIT_EXCEEDED, "more commands than the credit allows")

    def grant(self, *, echo: bool = False) -> None:
        """Grant credit, unless at least half of it is left. Publishers that are blocked may still discharge."""
        if echo or (self._limit - self._count) * 2 < CREDIT:
            self._limit = self._count + CREDIT
            self.link.session.send_flow(
                handle=self.link.handle, delivery_count=self._count & MASK, link_credit=CREDIT, drain=False
            )

    def flow(self, flow: Flow) -> None:
        """Answer the client, if it asks for the state of the link."""
        if flow.echo:
            self.grant(echo=True)

    # -- commands

    def command(self, number: int, message: bytes, *, settled: bool) -> Iterator[None] | None:
        """Execute a command, and answer it. The result is a task if it ends in a later turn. Raises AmqpFault."""
        if settled:
            raise link_fault(ILLEGAL_STATE, "declare and discharge must not be settled by the sender")
        try:
            value = body(message[split_head(message)[1] :])
            found = resolve(value.value) if isinstance(value, Described) else None
        except CodecError as error:
            raise link_fault(DECODE_ERROR, str(error)) from None
        try:
            if isinstance(found, Declare):
                self.link.session.answer_first(number, self._declare(found))
            elif isinstance(found, Discharge):
                transaction = self._discharged(found)
                if transaction.is_large:
                    return self._discharge_in_pieces(number, transaction, fail=bool(found.fail))
                self._answer(number, ACCEPTED, self._discharge(transaction, fail=bool(found.fail)))
            else:
                raise link_fault(INVALID_FIELD, "a command is a declare or a discharge, as an amqp-value")
        except AmqpFault as fault:
            self._refuse(number, fault)
        return None

    def _answer(self, number: int, state: bytes, after: int = 0) -> None:
        if not self.link.session.ending:
            self.link.session.answer(RECEIVER, number, number, settled=True, state=state, after=after)

    def _refuse(self, number: int, fault: AmqpFault) -> None:
        """Reject a command, or detach the link if the client cannot be told otherwise (section 4.4)."""
        if self._rejects:
            self._answer(number, encode_composite(Rejected(fault.error())))
        else:
            self.link.fail(fault)

    def _declare(self, declare: Declare) -> bytes:
        if declare.global_id is not None:
            raise link_fault(NOT_IMPLEMENTED, "transactions with a global id are not implemented")
        return self.link.session.connection.transactions.declare(self).declared

    def _discharged(self, discharge: Discharge) -> LocalTransaction:
        """Return the transaction to be discharged. Raises AmqpFault."""
        connection = self.link.session.connection
        transaction = connection.transactions.find(discharge.txn_id)
        if connection.is_incomplete(transaction):
            self._rejects = False
            raise link_fault(TRANSACTION_ROLLBACK, "a post of the transaction is incomplete")
        for session in connection.sessions.values():
            session.answer_now()  # the outcomes of posts come before the answer to their discharge (section 4.4.1)
        return transaction

    def _discharge(self, transaction: LocalTransaction, *, fail: bool) -> int:
        """End a transaction. Return the LSN for which the answer waits. Raises AmqpFault."""
        try:
            if not fail:
                return transaction.commit()
            transaction.roll_back()
            return 0
        finally:
            self.link.session.connection.transactions.end(transaction)

    def _discharge_in_pieces(self, number: int, transaction: LocalTransaction, *, fail: bool) -> Iterator[None]:
        transactions = self.link.session.connection.transactions
        try:
            yield from large_transactions.roll_back(transaction) if fail else large_transactions.commit(transaction)
        except AmqpFault as fault:
            transactions.end(transaction)
            self._refuse(number, fault)
            return
        transactions.end(transaction)
        self._answer(number, ACCEPTED, transaction.lsn)

    # -- the end

    def release(self, *, closed: bool) -> int:
        """Roll back the transactions that were declared on this link."""
        self.link.session.connection.transactions.drop(self)
        return 0

    def block(self, *, on: bool) -> None:
        """Do nothing: a discharge sets memory free."""

    def forbidden(self) -> bool:
        """Return False: everybody may use transactions."""
        return False

    def describe(self) -> dict[str, object]:
        """Return the link's entry in lists."""
        return {"address": "(coordinator)", "credit": self._limit - self._count, "unsettled": 0}
