"""The association of channels with branches: the second table of distributed transactions (DTX-2 to DTX-5, DTX-7)."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.conditions import BrokerError, Condition

if TYPE_CHECKING:
    from escrowmq.core.branches.xa_branch import XaBranch


class Worker(Protocol):
    """A channel, seen as the worker for a branch."""

    def branch_expired(self, branch: XaBranch) -> None:
        """Tell the worker that a branch associated with it has exceeded its timeout. The branch's work is already
        undone.
        """
        ...


class Association(IntEnum):
    """The association between one worker and one branch."""

    NOT_ASSOCIATED = auto()
    ACTIVE = auto()
    SUSPENDED = auto()
    ENDED = auto()


class Demarcation(IntEnum):
    """The demarcation calls that a worker can make."""

    START = auto()
    JOIN = auto()
    RESUME = auto()
    END = auto()
    FAIL = auto()
    SUSPEND = auto()
    CLOSE = auto()


_N, _A, _S, _E = Association.NOT_ASSOCIATED, Association.ACTIVE, Association.SUSPENDED, Association.ENDED
_404, _503 = Condition.NOT_FOUND, Condition.COMMAND_INVALID
_409, _530 = Condition.ILLEGAL_STATE, Condition.NOT_ALLOWED

# The association after the call, or the condition with which the call is refused. Every cell is tested
# (tests/unit/core/branches/test_association.py).
ASSOCIATIONS: Final[dict[Association, dict[Demarcation, Association | Condition]]] = {
    _N: {
        Demarcation.START: _A,
        Demarcation.JOIN: _A,
        Demarcation.RESUME: _503,
        Demarcation.END: _404,
        Demarcation.FAIL: _404,
        Demarcation.SUSPEND: _404,
        Demarcation.CLOSE: _N,
    },
    _A: {
        Demarcation.START: _530,
        Demarcation.JOIN: _503,
        Demarcation.RESUME: _503,
        Demarcation.END: _E,
        Demarcation.FAIL: _E,
        Demarcation.SUSPEND: _S,
        Demarcation.CLOSE: _N,
    },
    _S: {
        Demarcation.START: _530,
        Demarcation.JOIN: _A,
        Demarcation.RESUME: _A,
        Demarcation.END: _409,
        Demarcation.FAIL: _409,
        Demarcation.SUSPEND: _409,
        Demarcation.CLOSE: _N,
    },
    _E: {
        Demarcation.START: _530,
        Demarcation.JOIN: _A,
        Demarcation.RESUME: _503,
        Demarcation.END: _404,
        Demarcation.FAIL: _404,
        Demarcation.SUSPEND: _404,
        Demarcation.CLOSE: _N,
    },
}


def associated(before: Association, given: Demarcation, name: str) -> Association:
    """Look the call up in the table. Raises the table's condition; `name` is the branch's name for the error text."""
    after = ASSOCIATIONS[before][given]
    if isinstance(after, Condition):
        stands = before.name.lower().replace("_", " ")
        asked = given.name.lower()
        raise BrokerError(after, f"the channel's association with xid {name} is {stands}: it cannot {asked}")
    return after
