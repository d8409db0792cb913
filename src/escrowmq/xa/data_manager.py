"""A global transaction as a data manager of the package `transaction` (Zope, Pyramid): `with transaction.manager:`."""

from __future__ import annotations

from typing import Any

from escrowmq.xa.errors import UsageError
from escrowmq.xa.transaction import GlobalTransaction, Phase


class DataManager:
    """Votes in `tpc_vote` by preparing all branches; the decision is written, and carried out, in `tpc_finish`.

    Made by `TransactionManager.join`. It sorts before other data managers, because its finish can fail (when the
    decision log cannot be written), and then those after it are still aborted.
    """

    def __init__(self, tx: GlobalTransaction, transaction_manager: Any) -> None:
        self.tx = tx
        self.transaction_manager = transaction_manager

    def abort(self, transaction: object) -> None:
        """The transaction was aborted before its commit began."""
        self._undo()

    def tpc_begin(self, transaction: object) -> None:
        """Nothing to do: the branches have begun when their participants were enlisted."""

    def commit(self, transaction: object) -> None:
        """Nothing to do: work was done on the participants' connections."""

    def tpc_vote(self, transaction: object) -> None:
        """Prepare; raises RolledBack or TimedOut, which makes the whole transaction abort."""
        self.tx.prepare()

    def tpc_finish(self, transaction: object) -> None:
        """Commit. Raises InDoubt or HeuristicError."""
        self.tx.decide()

    def tpc_abort(self, transaction: object) -> None:
        """Some data manager voted no."""
        self._undo()

    def sortKey(self) -> str:  # noqa: N802 - the interface's name
        """Before those of others."""
        return f"!escrowmq.xa:{self.tx.id}"

    def _undo(self) -> None:
        if self.tx.phase in (Phase.ACTIVE, Phase.PREPARED):
            self.tx.rollback()


def join(tx: GlobalTransaction, transaction_manager: Any = None) -> GlobalTransaction:
    """Bind `tx` to the current transaction of `transaction_manager` (None: the thread's own). UsageError."""
    if transaction_manager is None:
        try:
            import transaction
        except ImportError as error:
            raise UsageError("the package transaction is not installed: pip install 'escrowmq[xa]'") from error
        transaction_manager = transaction.manager
    transaction_manager.get().join(DataManager(tx, transaction_manager))
    return tx
