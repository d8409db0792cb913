"""What the calls of distributed transactions answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import Publication
    from escrowmq.core.branches.xid import Xid


class XaStatus(IntEnum):
    """The outcome of a call; the numbers are those of the dtx classes' `flags`."""

    RB_ROLLBACK = 1
    """The branch is rolled back, or can only be."""
    RB_TIMEOUT = 2
    """The same, since it was older than its timeout."""
    HEUR_HAZ = 3
    HEUR_COM = 4
    """An operator has committed it."""
    HEUR_RB = 5
    """An operator has rolled it back."""
    HEUR_MIX = 6
    RDONLY = 7
    """It had no work, and is forgotten."""
    OK = 8


class XaResult(NamedTuple):
    """`lsn` is what the answer has to wait for (0: nothing); `returned` has no queue left and was mandatory (TX-11).

    `reason` says, for the log, why something was rolled back that was not asked to be.
    """

    status: XaStatus
    lsn: int = 0
    returned: tuple[Publication, ...] = ()
    reason: str = ""


class Tally(NamedTuple):
    """What a branch does to one queue."""

    vhost: str
    queue: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BranchView:
    """A branch as an operator sees it. `age` is in milliseconds, `timeout` in seconds (0: none).

    `state` is a name of `core.branch.State` in lower case; `workers` are the channels that are associated with it.
    """

    xid: Xid
    number: int
    state: str
    age: int
    owner: str
    vhost: str
    timeout: int
    workers: int
    published: tuple[Tally, ...]
    settled: tuple[Tally, ...]
