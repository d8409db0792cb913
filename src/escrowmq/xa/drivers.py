"""What differs between drivers although PEP 249 is one: how they say that a branch is gone, or was never sound.

Nothing here imports a driver. They are told apart by what their errors and connections have: `sqlstate` (psycopg),
`code` and `outcome` (escrowmq.client), `full_code` (oracledb).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final

from escrowmq.client import ChannelClosed, Connection, HeuristicOutcome, NotFound
from escrowmq.client import RolledBack as BranchRolledBack
from escrowmq.xa.states import COMMIT, ROLLBACK, BranchState


class Answer(Enum):
    """What an exception of a two-phase call tells about the branch."""

    UNKNOWN_XID = auto()
    """The participant is there, and has no such branch."""
    ROLLED_BACK = auto()
    """It was rolled back, and is over."""
    HEURISTIC = auto()
    """It was completed by hand; `heuristic_state` tells how."""
    UNCLEAR = auto()
    """Connection lost, time over, or an error that says nothing about the branch."""


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
    """What a driver's exception says."""
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
    """How a branch was completed by hand, if that is what the exception says."""
    if isinstance(error, HeuristicOutcome):
        return _ESCROWMQ_HEURISTIC.get(error.outcome, BranchState.HEURISTIC_HAZARD)
    return _ORACLE_HEURISTIC.get(_oracle_code(error))


def unsound(connection: Any) -> str | None:
    """Why the work on this connection must not be committed, although the driver would not say so; None if it may.

    PostgreSQL answers COMMIT and PREPARE TRANSACTION after a failed statement with a rollback that is no error.
    """
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    if status == _POSTGRESQL_IN_ERROR:
        return "a statement has failed in it, so PostgreSQL would roll it back whatever it is told"
    return None


def begin(connection: Any, xid: Any, seconds: float | None) -> None:
    """Begin a branch, and tell a broker after how long it may undo it by itself, if it is not prepared by then."""
    if isinstance(connection, Connection) and seconds is not None:
        connection.tpc_begin(xid, transaction_timeout=max(1, round(seconds)))
    else:
        connection.tpc_begin(xid)


def end_read_only(connection: Any) -> None:
    """After a read-only vote the branch is over at the participant; escrowmq.client has to be told as well."""
    if isinstance(connection, Connection):
        connection.tpc_commit()


def is_reply(connection: Any, error: BaseException) -> bool:
    """Whether an error came from the participant, so that it has not done what it was asked for."""
    if isinstance(error, ChannelClosed | BranchRolledBack):
        return True
    said = getattr(error, "sqlstate", None) is not None or _oracle_code(error).startswith("ORA-")
    return said and not is_closed(connection)


def is_closed(connection: Any) -> bool:
    """Whether a driver knows that its connection cannot be used any more."""
    if bool(getattr(connection, "closed", False)) or getattr(connection, "is_open", True) is False:
        return True
    healthy = getattr(connection, "is_healthy", None)
    return callable(healthy) and not healthy()


def wrong_place(connection: Any, xid: Any) -> str | None:
    """Where a recovered branch belongs, if not here: PostgreSQL lists those of all its databases."""
    database = getattr(xid, "database", None)
    here = getattr(getattr(connection, "info", None), "dbname", None)
    return str(database) if database is not None and here is not None and database != here else None


def as_decided(state: BranchState, decided: str) -> bool:
    """Whether a heuristic outcome is nevertheless the one that was decided."""
    return (state, decided) in {
        (BranchState.HEURISTIC_COMMIT, COMMIT),
        (BranchState.HEURISTIC_ROLLBACK, ROLLBACK),
    }


def _oracle_code(error: BaseException) -> str:
    code = getattr(error.args[0], "full_code", "") if error.args else ""
    return str(code)
