"""The transaction of a channel (`tx.select`): begin, commit and roll back, in pieces if it is large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from escrowmq.core.budget import SETTLED
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.spec import TxRollbackOk

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import TransactionBranch
    from escrowmq.wire.amqp091.channel import Channel


def begin(channel: Channel) -> None:
    """Begin a transaction (TX-1). A new branch follows each branch that ends (TX-12)."""
    broker, connection = channel.broker, channel.connection
    channel.branch = broker.transactions.begin(connection.limits.transaction, channel.watch)
    channel.branch.holding = broker.holdings.begin(connection.user, channel.vhost.name)


def commit(channel: Channel) -> int:
    """Commit the branch. Returns the LSN that the answer waits for. Returned messages precede the answer (TX-7)."""
    branch, transactions = _branch(channel), channel.broker.transactions
    result = transactions.commit(branch)
    for publication in result.returned:
        channel.send_returns(publication.envelope, publication.contents, result.lsn)
    transactions.begin_again(branch)
    return result.lsn


def is_large(channel: Channel) -> bool:
    """Return whether the transaction is to be committed or rolled back in pieces."""
    branch = channel.branch
    return channel.demarcation is None and branch is not None and channel.broker.transactions.is_large(branch)


def commit_in_pieces(channel: Channel) -> Iterator[None]:
    """Like `commit`, in pieces, for a large branch; then answer. Once the record is written, the commit continues
    even if the client goes.
    """
    branch, transactions = _branch(channel), channel.broker.transactions
    work = transactions.commit_in_pieces(branch)
    yield from work.gather()
    work.write()
    transactions.begin_again(branch)
    channel.committing = work.complete()
    for _ in channel.committing:
        yield
    channel.committing = None
    for publication in work.result.returned:
        channel.send_returns(publication.envelope, publication.contents, work.result.lsn)
    channel.connection.put(channel.number, channel.commit_ok, channel.broker.log.proof_lsn(work.result.lsn))


def rollback_in_pieces(channel: Channel) -> Iterator[None]:
    """Like `rollback`, in pieces, for a large branch; then answer."""
    requests = channel.broker.engine.requests
    for count in _branch(channel).undo_in_pieces():
        requests.left -= 2 + count // SETTLED
        if requests.left <= 0:
            yield
    rollback(channel)
    channel.send(TxRollbackOk())


def rollback(channel: Channel) -> None:
    """Roll back: drop the publishes; deliveries that were settled are unsettled again (TX-4)."""
    branch, transactions = _branch(channel), channel.broker.transactions
    transactions.rollback(branch)
    transactions.begin_again(branch)


def time_out(channel: Channel) -> None:
    """Roll back a transaction that is too old, and close the channel (TX-13)."""
    age = channel.connection.limits.transaction.age // 1000
    channel.broker.transactions.expire(_branch(channel))
    channel.branch = None
    channel.fail(codes.RESOURCE_ERROR, f"transaction is older than {age} s, the configured limit")


def _branch(channel: Channel) -> TransactionBranch:
    if channel.branch is None or channel.demarcation is not None:
        raise BrokerError(Condition.PRECONDITION_FAILED, "channel is not transactional")
    return channel.branch
