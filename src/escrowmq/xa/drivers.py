"""The differences between PEP 249 drivers: how they report that a branch is unknown, rolled back or failed.

Nothing here imports a driver other than escrowmq.client. Drivers are recognised by the attributes of their errors and
connections: `sqlstate` (psycopg), `code` and `outcome` (escrowmq.client), `full_code` (oracledb).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final

from escrowmq.client import ChannelClosed, Connection, HeuristicOutcome, NotFound
from escrowmq.client import RolledBack as BranchRolledBack
from escrowmq.xa.states import COMMIT, ROLLBACK, BranchState


class Answer(Enum):
    """The information about a branch in an exception of a two-phase call."""

    UNKNOWN_XID = auto()
    """The participant answered that it has no such branch."""
    ROLLED_BACK = auto()
    """The branch was rolled back."""
    HEURISTIC = auto()
    """An operator has completed the branch; `heuristic_state` returns how."""
    UNCLEAR = auto()
    """The connection was lost, the time limit expired, or the error says nothing about the branch."""


_POSTGRESQL_IN_ERROR: Final = 3
_POSTGRESQL_UNKNOWN: Final = "42704"
_ORACLE_UNKNOWN: Final = frozenset({"ORA-24756"})
_ORACLE_ROLLED_BACK: Final = frozenset({"ORA-24761"})
_ORACLE_HEURISTIC: Final = {
    "ORA-24764": BranchState.HEURISTIC_COMMIT,
    "ORA-24765": BranchState.HEURISTIC_ROLLBACK,
    "ORA-24766": BranchState.HEURISTIC_MIXED,
}
_ESCROWMQ_HEURISTIC: Final = {
    "committed": BranchState.HEURISTIC_COMMIT,
    "rolled back": BranchState.HEURISTIC_ROLLBACK,
    "mixed": BranchState.HEURISTIC_MIXED,
    "hazard": BranchState.HEURISTIC_HAZARD,
}


def answer_of(error: BaseException) -> Answer:
    """Classify a driver's exception."""
    if heuristic_state(error) is not None:
        return Answer.HEURISTIC
    if isinstance(error, NotFound) or getattr(error, "sqlstate", None) == _POSTGRESQL_UNKNOWN:
        return Answer.UNKNOWN_XID
    oracle = _oracle_code(error)
    if oracle in _ORACLE_UNKNOWN:
        return Answer.UNKNOWN_XID
    if isinstance(error, BranchRolledBack) or oracle in _ORACLE_ROLLED_BACK:
        return Answer.ROLLED_BACK
    return Answer.UNCLEAR


def heuristic_state(error: BaseException) -> BranchState | None:
    """Return the state of a branch that was completed by an operator, or None if the exception does not say that."""
    if isinstance(error, HeuristicOutcome):
        return _ESCROWMQ_HEURISTIC.get(error.outcome, BranchState.HEURISTIC_HAZARD)
    return _ORACLE_HEURISTIC.get(_oracle_code(error))


def unsound(connection: Any) -> str | None:
    """Return why the work on this connection must not be committed, or None if it may be.

    PostgreSQL answers COMMIT and PREPARE TRANSACTION after a failed statement with a rollback that is not an error, so
    the driver would not report it.
    """
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    if status == _POSTGRESQL_IN_ERROR:
        return "a statement has failed in this transaction, so PostgreSQL would roll it back instead of committing"
    return None


def begin(connection: Any, xid: Any, seconds: float | None) -> None:
    """Begin a branch. A broker rolls it back after `seconds` unless it is prepared by then."""
    if isinstance(connection, Connection) and seconds is not None:
        connection.tpc_begin(xid, transaction_timeout=max(1, round(seconds)))
    else:
        connection.tpc_begin(xid)


def end_read_only(connection: Any) -> None:
    """Leave a branch after a read-only vote: the participant has ended it, but escrowmq.client needs a call."""
    if isinstance(connection, Connection):
        connection.tpc_commit()


def is_reply(connection: Any, error: BaseException) -> bool:
    """Return whether an error was sent by the participant, which then has not done what was requested."""
    if isinstance(error, ChannelClosed | BranchRolledBack):
        return True
    said = getattr(error, "sqlstate", None) is not None or _oracle_code(error).startswith("ORA-")
    return said and not is_closed(connection)


def is_closed(connection: Any) -> bool:
    """Return whether a driver reports that its connection can no longer be used."""
    if bool(getattr(connection, "closed", False)) or getattr(connection, "is_open", True) is False:
        return True
    healthy = getattr(connection, "is_healthy", None)
    return callable(healthy) and not healthy()


def wrong_place(connection: Any, xid: Any) -> str | None:
    """Return the database of a recovered branch if it is another one: PostgreSQL lists branches of all databases."""
    database = getattr(xid, "database", None)
    here = getattr(getattr(connection, "info", None), "dbname", None)
    return str(database) if database is not None and here is not None and database != here else None


def as_decided(state: BranchState, decided: str) -> bool:
    """Return whether a heuristic outcome happens to be the decided one."""
    return (state, decided) in {
        (BranchState.HEURISTIC_COMMIT, COMMIT),
        (BranchState.HEURISTIC_ROLLBACK, ROLLBACK),
    }


def _oracle_code(error: BaseException) -> str:
    code = getattr(error.args[0], "full_code", "") if error.args else ""
    return str(code)
