"""A branch of a distributed transaction: its name is an xid, and a transaction manager decides it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, overload

from escrowmq.core.access.owned import Concerns
from escrowmq.core.branches.association import Association
from escrowmq.core.branches.branch import GiveBack, Limits, Publication, Settlement, State, TransactionBranch
from escrowmq.core.records.references import Reference

if TYPE_CHECKING:
    from escrowmq.core.branches.association import Worker
    from escrowmq.core.branches.unread import UnreadWork
    from escrowmq.core.branches.watch import Watch
    from escrowmq.core.branches.xid import Xid
    from escrowmq.core.counters import BranchCounters
    from escrowmq.core.deadlines import Deadline
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.ports import Log
    from escrowmq.core.queues.discipline import Pager
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.reservations.reservation import ReservationSettlement

DEFAULT_TIMEOUT: Final = 60
"""Default number of seconds that a branch may be active."""
MAX_OWNER: Final = 255
"""Number of characters of an owner's name that are kept."""
UNDONE: Final = frozenset((State.ROLLBACK_ONLY, State.TIMED_OUT))
"""States in which a branch's work is already undone."""


class Origin:
    """The LSN from which the addresses of blocks count: that of a record, once it is written."""

    __slots__ = ("lsn",)

    def __init__(self, lsn: int = 0) -> None:
        self.lsn = lsn


_LOG: Final = Origin()


class Promises(Protocol):
    """The part of the engine that keeps room and content for prepared branches."""

    log: Log
    promised: dict[Queue, tuple[int, int]]


class LoggedContents(Sequence[bytes]):
    """The bodies of a block. They are read from the log at each use and not kept in memory."""

    __slots__ = ("_count", "_lsn", "_origin", "_pager")

    def __init__(self, pager: Pager, lsn: int, count: int, origin: Origin = _LOG) -> None:
        """`lsn` is the address of the block, counted from `origin`."""
        self._pager = pager
        self._lsn = lsn
        self._count = count
        self._origin = origin

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._load())

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        return self._load()[index]

    def _load(self) -> list[bytes]:
        return self._pager.load(Reference(0, self._count, self._origin.lsn + self._lsn, 0)).contents


@dataclass(slots=True, eq=False)
class PreparedRun:
    """Messages of a prepared branch, and the queues that receive them on commit.

    Their block is at `lsn` (0: only in memory), which is `offset` bytes after `origin`, and bears the time `time`. The
    log retains `retained` messages of it.
    """

    envelope: Envelope
    contents: Sequence[bytes]
    queues: tuple[Queue, ...]
    mandatory: bool
    time: int
    offset: int = 0
    retained: int = 0
    size: int = field(default=0)
    origin: Origin = _LOG

    @property
    def lsn(self) -> int:
        """The address of the block; 0 if the messages are only in memory."""
        return self.offset and self.origin.lsn + self.offset

    def has_to_be_written_again(self, now: int) -> bool:
        """Return whether the time in the block matters and differs from that of the commit.

        A message's time to live starts at its commit, and a stream, which is read by time, stores it under that time.
        """
        if self.time == now:
            return False
        return self.envelope.ttl is not None or any(
            not queue.deleted and (queue.is_stream or queue.options.message_ttl is not None) for queue in self.queues
        )

    def let_go(self, engine: Promises, taken: int = 0) -> None:
        """Release the block, but for the messages that queues have `taken` over, and the room that was promised."""
        for queue in self.queues:
            count, size = engine.promised.pop(queue)
            if count > len(self.contents):
                engine.promised[queue] = (count - len(self.contents), size - self.size)
        if self.retained > taken:
            engine.log.release(self.lsn, self.retained - taken)
        self.retained = 0


class XaBranch(TransactionBranch):
    """A branch that has an xid. It belongs to `user` (`access.owned`).

    `associations` holds the association of each worker; `runs` holds the published messages once the branch is
    prepared. An answer that reveals the branch's present state waits for a sync up to `lsn`.
    """

    __slots__ = (
        "associations",
        "concerns",
        "deadline",
        "lsn",
        "outcome_bytes",
        "owner",
        "prepared_at",
        "runs",
        "started",
        "timeout",
        "unread",
        "user",
        "vhost",
        "xid",
    )

    def __init__(
        self,
        number: int,
        xid: Xid,
        limits: Limits,
        watch: Watch,
        *,
        started: int,
        owner: str,
        user: str,
        vhost: str,
        give_back: GiveBack,
        counters: BranchCounters | None = None,
    ) -> None:
        super().__init__(number, limits, watch, give_back, counters)
        self.xid = xid
        self.owner = owner[:MAX_OWNER]
        self.user = user
        self.concerns = Concerns()
        self.vhost = vhost
        self.started = started
        self.prepared_at = 0
        self.timeout = DEFAULT_TIMEOUT
        self.associations: dict[Worker, Association] = {}
        self.deadline: Deadline | None = None
        self.runs: list[PreparedRun] = []
        self.lsn = 0
        self.outcome_bytes = 0
        self.unread: UnreadWork | None = None  # work whose messages could not be read at the start

    def enlist(self, work: Publication | Settlement) -> None:
        """Enlist work as in any branch, but undo it at once if the branch can only be rolled back (DTX-14).

        Raises LIMIT_EXCEEDED over the limits (TX-13); the branch can only be rolled back then.
        """
        if self.state not in UNDONE:
            if isinstance(work, Settlement):
                self.concerns.add("queue", work.consumer.queue.name, "read")
            else:
                self.concern(work.envelope.exchange, work.queues)
            super().enlist(work)
        elif isinstance(work, Settlement):
            self.take_back(work)

    def settle_reservation(self, work: ReservationSettlement) -> None:
        """Enlist the settlement as in any branch, but ignore it if the branch can only be rolled back."""
        if self.state not in UNDONE:
            self.concerns.add("queue", work.reservation.queue.name, "read")
            super().settle_reservation(work)

    def undo(self) -> None:
        """Undo the branch, including work that could not be read."""
        super().undo()
        if self.unread is not None:
            self.unread.give_back()
            self.unread = None

    def concern(self, exchange: str, queues: Sequence[Queue]) -> None:
        """Note that the branch publishes. The default exchange leads to every queue, so the queues count there."""
        self.concerns.add("exchange", exchange, "write")
        if not exchange:
            for queue in queues:
                self.concerns.add("queue", queue.name, "write")

    @property
    def title(self) -> str:
        return f"transaction branch {self.xid}"

    def bounded(self, timeout: int) -> int:
        """Return the timeout, in seconds, for a requested one (0: any). It does not exceed the branch's limits."""
        most = self.limits.age and max(self.limits.age // 1000, 1)
        return min(timeout, most) if timeout and most else timeout or most

    @property
    def occupied(self) -> bool:
        """Whether a worker has not ended its association yet (DTX-4)."""
        return any(a in (Association.ACTIVE, Association.SUSPENDED) for a in self.associations.values())
