"""Transactions of producers in the simulated world of links: one at a time for each connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.branches.branch import Publication, TransactionBranch
from tests.simulation.link_clients import Control

if TYPE_CHECKING:
    from escrowmq.core.termini.loan import Loan
    from tests.unit.core.site import Site


class ProducerConnection:
    """The broker's side of a connection with a control link. Its transaction begins with the first post, outlives the
    link on which it was posted, and ends with the connection.
    """

    accepted = b"accepted in the transaction"

    def __init__(self, site: Site) -> None:
        self.site = site
        self.control = Control()
        self.branch: TransactionBranch | None = None
        self.failed = False
        self.waiting: list[tuple[int, str]] = []

    def post(self, loan: Loan, publication: Publication, tag: bytes) -> None:
        """Post a message. In a transaction that has failed, it has no effect."""
        if self.failed:
            return
        if self.branch is None:
            self.branch = self.site.begin()
        self.site.broker.transactions.enlist(self.branch, publication)
        loan.arrive_in(self.branch, self, publication, [tag])

    def give_up(self, text: str) -> None:
        """Undo the transaction. Its discharge is refused."""
        if self.branch is not None:
            self.failed = True
            self._roll_back()

    def _roll_back(self) -> None:
        if self.branch is not None:
            self.site.broker.transactions.rollback(self.branch)
            self.branch = None

    def read(self) -> str:
        """Read a discharge, and answer it when the log has it. Return the answer; empty if there was none."""
        if not self.control.to_broker:
            return ""
        answer, lsn = "rolled back", 0
        if self.control.to_broker.popleft() == "commit" and not self.failed:
            answer = "committed"
            if self.branch is not None:
                lsn = self.site.broker.transactions.commit(self.branch).lsn
                self.branch = None
        self._roll_back()
        self.failed = False
        self.waiting.append((lsn, answer))
        self.synced()
        return answer

    def synced(self) -> None:
        """Let the answers leave that have waited for a sync."""
        while self.waiting and self.waiting[0][0] <= self.site.journal.synced_lsn:
            self.control.to_client.append(self.waiting.pop(0)[1])

    def lost(self) -> None:
        """Note that the connection is over."""
        self._roll_back()
