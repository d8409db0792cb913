"""The results of calls in distributed transactions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import Publication
    from escrowmq.core.branches.xid import Xid


class XaStatus(IntEnum):
    """The status of a call. The numbers are those of `flags` in the dtx classes."""

    RB_ROLLBACK = 1
    """The branch is rolled back, or can only be rolled back."""
    RB_TIMEOUT = 2
    """As RB_ROLLBACK, because the branch exceeded its timeout."""
    HEUR_HAZ = 3
    HEUR_COM = 4
    """An operator has committed the branch."""
    HEUR_RB = 5
    """An operator has rolled the branch back."""
    HEUR_MIX = 6
    RDONLY = 7
    """The branch had no work, and is forgotten."""
    OK = 8


class XaResult(NamedTuple):
    """The result of a call.

    The answer waits for a sync up to `lsn` (0: no wait). `returned` holds mandatory messages that have no queue left
    (TX-11). `reason` is for the log: why the broker rolled the branch back although no client asked for it.
    """

    status: XaStatus
    lsn: int = 0
    returned: tuple[Publication, ...] = ()
    reason: str = ""


class Tally(NamedTuple):
    """The number and bytes of the messages that a branch affects on one queue."""

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
