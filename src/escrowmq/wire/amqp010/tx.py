"""The class `tx`: local transactions of a session, which are committed and rolled back in pieces if they are large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from escrowmq.core.budget import COMMIT, SETTLED
from escrowmq.wire.amqp010.codec.spec import TxCommit, TxRollback, TxSelect
from escrowmq.wire.amqp010.ports import Reply
from escrowmq.wire.amqp010.settling import released_before_rollback
from escrowmq.wire.amqp010.subscriptions import Subscriptions
from escrowmq.wire.amqp010.transacting import Transacting

if TYPE_CHECKING:
    from escrowmq.wire.amqp010.codec.structs import Command
    from escrowmq.wire.amqp010.ports import Content, Handler, SessionPort, Work


def tx_select(session: SessionPort, command: TxSelect, _: Content | None) -> None:
    """TX-1. Raises ILLEGAL_STATE if the session has a mode already."""
    session.part(Transacting).select_local()


def tx_commit(session: SessionPort, command: TxCommit, _: Content | None) -> Reply | Work:
    """TX-5, TX-12. Raises ILLEGAL_STATE without tx.select, and as `Transactions.commit`."""
    transactions, branch = session.broker.transactions, session.part(Transacting).local
    session.part(Subscriptions).take_released()
    if transactions.is_large(branch):
        return _commit_in_pieces(session)
    session.broker.engine.requests.left -= COMMIT
    result = transactions.commit(branch)
    transactions.begin_again(branch)
    return Reply(after=result.lsn)


def _commit_in_pieces(session: SessionPort) -> Work:
    """Commit a large branch. Once the record is written, the commit continues even if the session ends."""
    transactions, part = session.broker.transactions, session.part(Transacting)
    branch = part.local
    work = transactions.commit_in_pieces(branch)
    yield from work.gather()
    work.write()
    transactions.begin_again(branch)
    part.committing = work.complete()
    for _ in part.committing:
        yield None
    part.committing = None
    return Reply(after=work.result.lsn)


def tx_rollback(session: SessionPort, command: TxRollback, _: Content | None) -> Work:
    """Drop the messages of the transaction. The client still holds the deliveries that it accepted (TX-4), apart from
    those that it has released since. Raises ILLEGAL_STATE without tx.select.
    """
    transactions, branch = session.broker.transactions, session.part(Transacting).local
    if transactions.is_large(branch):
        return _rollback_in_pieces(session)
    transactions.rollback(branch)
    transactions.begin_again(branch)
    return released_before_rollback(session)


def _rollback_in_pieces(session: SessionPort) -> Work:
    transactions, branch = session.broker.transactions, session.part(Transacting).local
    requests = session.broker.engine.requests
    for count in branch.undo_in_pieces():
        requests.left -= 2 + count // SETTLED
        if requests.left <= 0:
            yield None
    transactions.rollback(branch)
    transactions.begin_again(branch)
    return (yield from released_before_rollback(session))


HANDLERS: Final[Mapping[type[Command], Handler]] = {
    TxSelect: tx_select,
    TxCommit: tx_commit,
    TxRollback: tx_rollback,
}
