"""Makes a global transaction a data manager of the package `transaction` (Zope, Pyramid)."""

from __future__ import annotations

from typing import Any

from escrowmq.xa.errors import UsageError
from escrowmq.xa.transaction import GlobalTransaction, Phase


class DataManager:
    """A data manager for a global transaction, made by `TransactionManager.join`.

    `tpc_vote` prepares all branches; `tpc_finish` writes the decision and carries it out. It sorts before other data
    managers, because `tpc_finish` can fail when the decision log cannot be written, and the data managers after it are
    then still aborted.
    """

    def __init__(self, tx: GlobalTransaction, transaction_manager: Any) -> None:
        self.tx = tx
        self.transaction_manager = transaction_manager

    def abort(self, transaction: object) -> None:
        """Roll back: the transaction was aborted before its commit began."""
        self._undo()

    def tpc_begin(self, transaction: object) -> None:
        """Do nothing: each branch began when its participant was enlisted."""

    def commit(self, transaction: object) -> None:
        """Do nothing: the work was done on the participants' connections."""

    def tpc_vote(self, transaction: object) -> None:
        """Prepare. Raises RolledBack or TimedOut, which makes the whole transaction abort."""
        self.tx.prepare()

    def tpc_finish(self, transaction: object) -> None:
        """Commit. Raises InDoubt or HeuristicError."""
        self.tx.decide()

    def tpc_abort(self, transaction: object) -> None:
        """Roll back: a data manager has voted against the commit."""
        self._undo()

    def sortKey(self) -> str:  # noqa: N802 - the interface's name
        """Return a key that sorts before those of other data managers."""
        return f"!escrowmq.xa:{self.tx.id}"

    def _undo(self) -> None:
        if self.tx.phase in (Phase.ACTIVE, Phase.PREPARED):
            self.tx.rollback()


def join(tx: GlobalTransaction, transaction_manager: Any = None) -> GlobalTransaction:
    """Bind `tx` to the current transaction of `transaction_manager` (None: the current thread's).

    Raises:
        UsageError: The package `transaction` is not installed.
    """
    if transaction_manager is None:
        try:
            import transaction
        except ImportError as error:
            raise UsageError("the package transaction is not installed: pip install 'escrowmq[xa]'") from error
        transaction_manager = transaction.manager
    transaction_manager.get().join(DataManager(tx, transaction_manager))
    return tx
