"""A transaction manager for transactions across brokers and databases, over PEP 249's two-phase commit.

    from escrowmq.xa import TransactionManager

See `docs/guides/database-and-queue.md`.
"""

from __future__ import annotations

from escrowmq.xa.errors import (
    HeuristicError,
    InDoubt,
    LogDamaged,
    LogError,
    LogInUse,
    RolledBack,
    TimedOut,
    TransactionError,
    UsageError,
    XaError,
)
from escrowmq.xa.manager import TransactionManager
from escrowmq.xa.recovery import Report
from escrowmq.xa.states import BranchState
from escrowmq.xa.transaction import GlobalTransaction

__all__ = [
    "BranchState",
    "GlobalTransaction",
    "HeuristicError",
    "InDoubt",
    "LogDamaged",
    "LogError",
    "LogInUse",
    "Report",
    "RolledBack",
    "TimedOut",
    "TransactionError",
    "TransactionManager",
    "UsageError",
    "XaError",
]
