"""Which channel works for which branch: the second table of distributed transactions (DTX-2 to DTX-5, DTX-7)."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.conditions import BrokerError, Condition

if TYPE_CHECKING:
    from escrowmq.core.branches.xa_branch import XaBranch


class Worker(Protocol):
    """Who works for branches: a channel."""

    def branch_expired(self, branch: XaBranch) -> None:
        """The branch that it is associated with is older than its timeout; its work is undone already."""
        ...


class Association(IntEnum):
    """Where a worker stands with a branch."""

    NOT_ASSOCIATED = auto()
    ACTIVE = auto()
    SUSPENDED = auto()
    ENDED = auto()


class Demarcation(IntEnum):
    """What a worker can ask."""

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

# Where it stands afterwards, or why it is refused. Every cell is tested (tests/unit/core/branches/test_association.py).
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
    """The table. Raises what it says; `name` is the branch's, for the text."""
    after = ASSOCIATIONS[before][given]
    if isinstance(after, Condition):
        stands = before.name.lower().replace("_", " ")
        asked = given.name.lower()
        raise BrokerError(after, f"the channel's association with xid {name} is {stands}, it cannot {asked}")
    return after
