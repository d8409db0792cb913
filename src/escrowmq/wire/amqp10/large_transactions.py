"""Large transactions: committed and rolled back in pieces, so that other clients need not wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.budget import SETTLED
from escrowmq.core.conditions import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from escrowmq.wire.amqp10.transactions import LocalTransaction

GIVEN_UP: Final = 100
"""Groups of deliveries that are settled in one step after a commit, or given up when a transaction is rolled back."""


def commit(transaction: LocalTransaction) -> Iterator[None]:
    """Do `LocalTransaction.commit` in pieces; `lsn` is the result. Raises AmqpFault.

    Once the record is written, `LocalTransaction.finish` completes the commit even if the client goes.
    """
    yield from _undone(transaction)
    transaction.check()
    work = transaction.broker.transactions.commit_in_pieces(transaction.branch)
    try:
        for _ in work.gather():
            yield
            yield from _undone(transaction)
            transaction.check()
        work.write()
    except BrokerError as error:
        raise transaction.refused(error) from None
    transaction.lsn = work.result.lsn
    transaction.rest = work.complete()
    for _ in transaction.rest:
        yield
    transaction.close()
    requests = transaction.broker.engine.requests
    while transaction.enlisted:
        transaction.settle_some(transaction.lsn, GIVEN_UP)
        requests.left -= 1 + GIVEN_UP // SETTLED
        if requests.left <= 0:
            yield
    transaction.rest = None


def roll_back(transaction: LocalTransaction) -> Iterator[None]:
    """Do `LocalTransaction.roll_back` in pieces."""
    if transaction.undoing:
        yield from _undone(transaction)
    else:
        yield from undo(transaction)


def undo(transaction: LocalTransaction) -> Iterator[None]:
    """Undo the work of a transaction in pieces, whether its client waits or not."""
    requests = transaction.broker.engine.requests
    for count in transaction.branch.undo_in_pieces():
        requests.left -= 2 + count // SETTLED
        if requests.left <= 0:
            yield
    while transaction.enlisted:
        transaction.give_up_some(GIVEN_UP)
        requests.left -= 1 + GIVEN_UP // SETTLED
        if requests.left <= 0:
            yield
    transaction.roll_back()
    transaction.undoing = False


def _undone(transaction: LocalTransaction) -> Iterator[None]:
    """Wait until the engine has undone the work of a transaction that failed."""
    requests = transaction.broker.engine.requests
    while transaction.undoing:
        requests.left = min(requests.left, 0)
        yield
