"""The number of branches of each user, which is limited so that no user can exhaust the broker (SEC-2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from escrowmq.core.conditions import BrokerError, Condition

if TYPE_CHECKING:
    from escrowmq.core.branches.xa_branch import XaBranch


@dataclass(frozen=True, slots=True)
class UserLimits:
    """The limits of one user: branches that are not in doubt, branches in doubt, and applications with progress."""

    branches: int = 10_000
    prepared_branches: int = 10_000
    applications: int = 1_000


class Shares:
    """The branches of each user: those that are open, those in doubt, and those that have timed out, oldest first.

    A branch in doubt is prepared, or decided by an operator and not forgotten yet.
    """

    __slots__ = ("in_doubt", "open", "overdue")

    def __init__(self) -> None:
        self.open: dict[str, dict[XaBranch, None]] = {}
        self.in_doubt: dict[str, dict[XaBranch, None]] = {}
        self.overdue: dict[str, dict[XaBranch, None]] = {}

    def begin(self, branch: XaBranch) -> None:
        """Note that the branch is open."""
        self.open.setdefault(branch.user, {})[branch] = None

    def prepare(self, branch: XaBranch) -> None:
        """Note that the branch is in doubt and no longer open."""
        _remove(self.open, branch)
        self.in_doubt.setdefault(branch.user, {})[branch] = None

    def expire(self, branch: XaBranch) -> int:
        """Note that the branch has timed out. Return the number of such branches of its user."""
        _remove(self.open, branch)
        overdue = self.overdue.setdefault(branch.user, {})
        overdue[branch] = None
        return len(overdue)

    def end(self, branch: XaBranch) -> None:
        """Note that the branch is no longer known."""
        for branches in (self.open, self.in_doubt, self.overdue):
            _remove(branches, branch)

    def check_open(self, user: str, most: int) -> None:
        """Raises LIMIT_EXCEEDED if the user may not begin a branch."""
        if len(self.open.get(user, ())) >= most:
            raise BrokerError(
                Condition.LIMIT_EXCEEDED,
                f"user '{user}' has {most} open transaction branches, the limit (limits.branches_per_user)",
            )

    def check_in_doubt(self, user: str, most: int) -> None:
        """Raises LIMIT_EXCEEDED if the user may not prepare a branch."""
        if len(self.in_doubt.get(user, ())) >= most:
            raise BrokerError(
                Condition.LIMIT_EXCEEDED,
                f"user '{user}' has {most} transaction branches in doubt, the limit "
                "(limits.prepared_branches_per_user)",
            )


def _remove(branches: dict[str, dict[XaBranch, None]], branch: XaBranch) -> None:
    of_user = branches.get(branch.user)
    if of_user is not None and branch in of_user:
        del of_user[branch]
        if not of_user:
            del branches[branch.user]
