"""Transaction branches: their states, and the work enlisted in them. `tx`, XA and Spark all use them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.counters import BranchCounters
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.unsettled import size_of_one

if TYPE_CHECKING:
    from escrowmq.core.access.holdings import Holding
    from escrowmq.core.branches.watch import Watch
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.messages.marks import Modification
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.reservations.reservation import ReservationSettlement
    from escrowmq.core.termini.enlisted_posts import EnlistedPosts


OPERATION_BYTES: Final = 200
"""The estimated memory of an operation, in addition to its bodies and headers."""
PIECE: Final = 500
"""Deliveries that are undone in one step."""
_MANY: Final = 32  # publications or settlements from which on earlier ones are looked up that a new one continues
_ACCEPTED: Final = Disposition.ACCEPTED  # found sooner than a member of an enumeration


class State(IntEnum):
    """The state of a branch."""

    ACTIVE = auto()
    ROLLBACK_ONLY = auto()
    PREPARED = auto()
    HEURISTIC_COMMITTED = auto()
    HEURISTIC_ROLLED_BACK = auto()
    TIMED_OUT = auto()
    COMMITTED = auto()
    ROLLED_BACK = auto()
    FORGOTTEN = auto()


class Input(IntEnum):
    """The inputs of a branch's state machine."""

    ENLIST = auto()
    FAIL = auto()
    PREPARE = auto()
    COMMIT_ONE_PHASE = auto()
    COMMIT = auto()
    ROLLBACK = auto()
    EXPIRE = auto()
    FORCE_COMMIT = auto()
    FORCE_ROLLBACK = auto()
    FORGET = auto()


# A missing cell is an illegal-state error. Every cell is tested (tests/unit/core/branches/test_branch.py).
TRANSITIONS: Final[dict[State, dict[Input, State]]] = {
    State.ACTIVE: {
        Input.ENLIST: State.ACTIVE,
        Input.FAIL: State.ROLLBACK_ONLY,
        Input.PREPARE: State.PREPARED,
        Input.COMMIT_ONE_PHASE: State.COMMITTED,
        Input.ROLLBACK: State.ROLLED_BACK,
        Input.EXPIRE: State.TIMED_OUT,
    },
    State.ROLLBACK_ONLY: {  # newly enlisted work is undone at once
        Input.ENLIST: State.ROLLBACK_ONLY,
        Input.FAIL: State.ROLLBACK_ONLY,
        Input.PREPARE: State.ROLLED_BACK,
        Input.COMMIT_ONE_PHASE: State.ROLLED_BACK,
        Input.COMMIT: State.ROLLED_BACK,
        Input.ROLLBACK: State.ROLLED_BACK,
        Input.EXPIRE: State.TIMED_OUT,
    },
    State.PREPARED: {  # a prepared branch never expires (DTX-12)
        Input.PREPARE: State.PREPARED,
        Input.COMMIT: State.COMMITTED,
        Input.ROLLBACK: State.ROLLED_BACK,
        Input.EXPIRE: State.PREPARED,
        Input.FORCE_COMMIT: State.HEURISTIC_COMMITTED,
        Input.FORCE_ROLLBACK: State.HEURISTIC_ROLLED_BACK,
    },
    State.HEURISTIC_COMMITTED: {  # the transaction manager is told until it forgets (DTX-11)
        Input.COMMIT: State.HEURISTIC_COMMITTED,
        Input.ROLLBACK: State.HEURISTIC_COMMITTED,
        Input.FORGET: State.FORGOTTEN,
    },
    State.HEURISTIC_ROLLED_BACK: {
        Input.COMMIT: State.HEURISTIC_ROLLED_BACK,
        Input.ROLLBACK: State.HEURISTIC_ROLLED_BACK,
        Input.FORGET: State.FORGOTTEN,
    },
    State.TIMED_OUT: {  # its work is undone; the branch is kept a while so that the transaction manager learns why
        Input.ROLLBACK: State.ROLLED_BACK,
    },
    State.COMMITTED: {},
    State.ROLLED_BACK: {},
    State.FORGOTTEN: {},
}


@dataclass(slots=True)
class Publication:
    """A run of messages published in a branch, with the queues that it was routed to when it was published (TX-11)."""

    envelope: Envelope
    contents: list[bytes]
    queues: tuple[Queue, ...]
    mandatory: bool = False

    def continues_with(self, other: Publication) -> bool:
        """Return whether `other` differs only in its bodies, so that both can form one run."""
        return (
            self.envelope is other.envelope
            and (self.queues is other.queues or self.queues == other.queues)
            and self.mandatory == other.mandatory
        )


class _Latest:
    """The latest publication for each queue, and the acknowledgements of each consumer, of a branch with much work."""

    __slots__ = ("accepted", "publications")

    def __init__(self, branch: TransactionBranch) -> None:
        self.publications: dict[Queue, Publication] = {}
        self.accepted: dict[Consumer, Settlement] = {}
        for publication in branch.publications:
            self.publications.update(dict.fromkeys(publication.queues, publication))
        for settlement in branch.settlements:
            if settlement.disposition is _ACCEPTED:
                self.accepted[settlement.consumer] = settlement

    def continued_by(self, work: Publication) -> Publication | None:
        """Return the publication that `work` continues in all of its queues, so that both can form one run."""
        queues = work.queues
        if not queues or work.mandatory:
            return None  # returned messages keep their order
        found = self.publications.get(queues[0])
        if found is None or not found.continues_with(work):
            return None
        latest = self.publications
        return found if all(latest.get(queue) is found for queue in queues) else None


class Keeper(Protocol):
    """A channel, seen as the holder of a client's deliveries. It gets them back when their settlement is undone."""

    def keep(self, consumer: Consumer, tags: Sequence[int], entries: Sequence[Entry]) -> None:
        """Give `entries` back to the client, under their former delivery tags."""
        ...


class Keep(NamedTuple):
    """The undo that leaves the deliveries of a settlement with the client, under their former tags (TX-4)."""

    keeper: Keeper
    tags: Sequence[int]


RETURN: Final = None
"""The undo that returns the deliveries of a settlement to their places in the queue (DTX-14)."""


@dataclass(slots=True)
class Settlement:
    """Deliveries settled in a branch. From then on the branch holds them.

    `undo` is applied if the branch does not commit: a `Keep`, or RETURN. `routes` are the queues that receive dead
    letters of the settlement, by position; a prepared branch has settled them (DTX-8). `modification` is the change of
    messages that return, for a disposition of MODIFIED that is more than a failed delivery.
    """

    consumer: Consumer
    entries: list[Entry]
    disposition: Disposition
    undo: Keep | None = RETURN
    routes: dict[int, tuple[Queue, ...]] | None = None
    modification: Modification | None = None

    def take_in(self, later: Settlement) -> bool:
        """Add the deliveries of a later settlement, if it differs in nothing else. Return whether that is so."""
        if self.consumer is not later.consumer or self.disposition is not later.disposition:
            return False
        if self.modification != later.modification:
            return False
        if self.undo is None or later.undo is None:
            if self.undo is not later.undo:
                return False
        else:
            keeper, tags = self.undo
            if keeper is not later.undo.keeper:
                return False
            if isinstance(tags, list):
                tags += later.undo.tags
            else:
                self.undo = Keep(keeper, [*tags, *later.undo.tags])
        self.entries += later.entries
        return True

    def lists(self) -> list[list[Any]]:
        """Return the lists that it consists of, so that they can be freed in pieces when it is done."""
        tags = self.undo.tags if self.undo is not None else ()
        return [self.entries, tags] if isinstance(tags, list) else [self.entries]

    def take_front(self, most: int) -> list[Entry]:
        """Remove and return the first deliveries, at most `most` of them, for which there is nothing left to undo."""
        tags = self.undo.tags if self.undo is not None else ()
        if isinstance(tags, list):
            del tags[:most]
        some = self.entries[:most]
        del self.entries[:most]
        return some

    def split(self, most: int) -> Settlement:
        """Remove and return the last deliveries, at most `most` of them. It is this settlement if that is all."""
        if len(self.entries) <= most:
            return self
        undo = self.undo
        if undo is not None:
            keeper, tags = undo
            undo = Keep(keeper, tags[-most:])
            if isinstance(tags, list):
                del tags[-most:]
            else:
                self.undo = Keep(keeper, tags[:-most])
        entries = self.entries[-most:]
        del self.entries[-most:]
        return Settlement(self.consumer, entries, self.disposition, undo, self.routes, self.modification)


@dataclass(slots=True)
class Limits:
    """Limits of one branch (TX-13); 0 is unlimited. `operations` counts a message once for each of its queues, `bytes`
    counts bodies and headers; the age is in milliseconds.
    """

    operations: int = 0
    bytes: int = 0
    age: int = 0


class CommitResult(NamedTuple):
    """The result of a commit.

    The answer waits for a sync up to `lsn` (0: no wait). `returned` holds mandatory messages that have no queue left
    (TX-11).
    """

    lsn: int = 0
    returned: tuple[Publication, ...] = ()


GiveBack: TypeAlias = "Callable[[list[Settlement], Iterable[Queue], list[Publication]], None]"
"""Returns the deliveries of settlements, which belong to these queues, to their places, and drops publications."""


class TransactionBranch:
    """Work that takes effect completely or not at all.

    Until its outcome, the branch holds the deliveries that were settled in it (`Broker.holders`). It can therefore
    outlive the channel or link on which they were delivered.
    """

    __slots__ = (
        "_give_back",
        "_keeps",
        "_latest",
        "arrivals",
        "bytes",
        "copies",
        "counters",
        "holding",
        "kept_bytes",
        "limits",
        "number",
        "operations",
        "publications",
        "reservations",
        "settled_in",
        "settlements",
        "state",
        "watch",
    )

    def __init__(
        self,
        number: int,
        limits: Limits,
        watch: Watch,
        give_back: GiveBack,
        counters: BranchCounters | None = None,
    ) -> None:
        """Begin the branch. `give_back` undoes settlements whose undo is RETURN; `counters` count its kind."""
        self.counters = counters or BranchCounters()
        self.counters.begun += 1
        self._give_back = give_back
        self._keeps = False  # whether the undo of any settlement is a `Keep`
        self.number = number
        self.limits = limits
        self.watch = watch
        self.state = State.ACTIVE
        self.publications: list[Publication] = []
        self.settlements: list[Settlement] = []
        self.settled_in: dict[Queue, None] = {}  # the queues of the settlements
        self.reservations: list[ReservationSettlement] = []
        self.arrivals: list[EnlistedPosts] = []  # the delivery tags of messages from links that settle second
        self.operations = 0
        self.copies = 0  # places of the published messages in queues, beyond the first one of each
        self.bytes = 0
        self.kept_bytes = 0  # the estimated size of its settled deliveries in memory
        self.holding: Holding | None = None  # what it counts for at its user
        self._latest: _Latest | None = None

    def step(self, given: Input) -> State:
        """Take the transition that the table names for `given`. Raises ILLEGAL_STATE for a missing cell."""
        before = self.state
        self.state = self.after(given)
        if self.state is not before:
            self.counters.entered[self.state] += 1
        return self.state

    def after(self, given: Input) -> State:
        """Return the state after `given` without entering it, for a caller that first writes a record. Raises as
        `step`.
        """
        after = TRANSITIONS[self.state].get(given)
        if after is None:
            raise BrokerError(
                Condition.ILLEGAL_STATE,
                f"transaction {self.number} is {self.state.name.lower().replace('_', ' ')} and cannot {_verb(given)}",
            )
        return after

    def renew(self, number: int) -> None:
        """Start the next branch in this object, under another number. A new object would cost more for a small
        branch.
        """
        self.number = number
        self.state = State.ACTIVE
        self.counters.begun += 1
        self.operations = self.copies = self.bytes = self.kept_bytes = 0

    def enlist(self, work: Publication | Settlement) -> None:
        """Add work at the end. Raises LIMIT_EXCEEDED if the branch would exceed its limits (TX-13); a refused
        settlement is undone.
        """
        if isinstance(work, Settlement):
            self._settle(work)
            return
        if self.state is not State.ACTIVE:  # enlisting does not change the ACTIVE state
            self.step(Input.ENLIST)
        if len(work.queues) > 1:
            self.copies += len(work.contents) * (len(work.queues) - 1)
        last = self.publications[-1] if self.publications else None
        if last is not None and last.continues_with(work):
            self._grow(len(work.contents), sum(map(len, work.contents)))
            last.contents += work.contents
            return
        if len(self.publications) >= _MANY:
            latest = self._latest = self._latest or _Latest(self)
            before = latest.continued_by(work)
            if before is not None:
                self._grow(len(work.contents), sum(map(len, work.contents)))
                before.contents += work.contents
                return
            latest.publications.update(dict.fromkeys(work.queues, work))
        self._grow(len(work.contents), len(work.envelope.header) + sum(map(len, work.contents)))
        self.publications.append(work)

    def _settle(self, work: Settlement) -> None:
        try:
            if self.state is not State.ACTIVE:
                self.step(Input.ENLIST)
            if self.holding is not None and work.entries:
                self.kept_bytes += len(work.entries) * size_of_one(work.entries)
            self._grow(len(work.entries), 0)
        except BrokerError:
            self.take_back(work)
            raise
        self.settled_in[work.consumer.queue] = None
        self._keeps = self._keeps or work.undo is not RETURN
        if not self.settlements or not self._continued_by(work):
            self.settlements.append(work)

    def _continued_by(self, work: Settlement) -> bool:
        """Return whether an earlier settlement has taken in `work`."""
        last: Settlement | None = self.settlements[-1]
        if work.disposition is _ACCEPTED and len(self.settlements) >= _MANY:  # their order does not matter
            latest = self._latest = self._latest or _Latest(self)
            last = latest.accepted.get(work.consumer)
            if last is None:
                latest.accepted[work.consumer] = work
        return last is not None and last.take_in(work)

    def settle_reservation(self, work: ReservationSettlement) -> None:
        """Enlist the settlement of reserved messages. They count as one operation, for any number of messages."""
        if self.step(Input.ENLIST) is State.ACTIVE:
            self._grow(1, 0)
            self.reservations.append(work)

    def _grow(self, operations: int, size: int) -> None:
        self.operations += operations
        self.bytes += size
        limits = self.limits
        if limits.operations and self.operations + self.copies > limits.operations:
            raise BrokerError(
                Condition.LIMIT_EXCEEDED,
                f"transaction has more than {limits.operations} operations, the configured limit",
            )
        if limits.bytes and self.bytes > limits.bytes:
            raise BrokerError(
                Condition.LIMIT_EXCEEDED, f"transaction has more than {limits.bytes} bytes, the configured limit"
            )
        if self.holding is not None:
            held = self.bytes + self.kept_bytes + OPERATION_BYTES * self.operations
            if held > self.holding.share:
                self.holding.grow(held, "the transaction")

    def take_back(self, settlement: Settlement) -> None:
        """Undo one settlement."""
        if settlement.undo is RETURN:
            self._give_back([settlement], (settlement.consumer.queue,), [])
        else:
            keeper, tags = settlement.undo
            keeper.keep(settlement.consumer, tags, settlement.entries)

    def undo_in_pieces(self) -> Iterator[int]:
        """Undo the work of the branch in pieces, and yield the number of messages in each. `undo` must follow."""
        settlements, publications = self.settlements, self.publications
        self._latest = None
        while settlements:
            part = settlements[-1].split(PIECE)
            if part is settlements[-1]:
                settlements.pop()
            self.take_back(part)
            yield len(part.entries)
        while publications:
            del publications[-PIECE:]
            yield PIECE // 10

    def undo(self) -> None:
        """Undo the branch: drop its published messages and undo its settlements (TX-4, DTX-14). Many deliveries return
        to their queues in later turns.
        """
        if not self._keeps:
            self.abandon()
            return
        settlements, queues, publications = self.settlements, self.settled_in, self.publications
        self.settlements, self.settled_in, self.publications = [], {}, []
        self.end()
        self._give_back([settlement for settlement in settlements if settlement.undo is RETURN], queues, publications)
        for settlement in settlements:
            if settlement.undo is not RETURN:
                self.take_back(settlement)

    def abandon(self) -> None:
        """Undo the branch, but return all of its deliveries to their queues: their client is gone."""
        settlements, queues, publications = self.settlements, self.settled_in, self.publications
        self.settlements, self.settled_in, self.publications = [], {}, []
        self.end()
        self._give_back(settlements, queues, publications)

    def held(self) -> list[tuple[Consumer, list[Entry]]]:
        """Return every delivery that is settled in the branch."""
        return [(settlement.consumer, list(settlement.entries)) for settlement in self.settlements]

    def copy_ahead(self, at: int, most: int) -> tuple[int, int]:
        """See `Holder.copy_ahead`. Nothing is copied in advance."""
        del at, most
        return 1, 0

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """Return at most `most` of the deliveries that are settled in the branch, from number `start` on."""
        found: list[tuple[Consumer, Entry]] = []
        for settlement in self.settlements:
            count = len(settlement.entries)
            if start < count:
                some = settlement.entries[start : start + most - len(found)]
                found += [(settlement.consumer, entry) for entry in some]
                if len(found) >= most:
                    break
            start = max(start - count, 0)
        return found

    def end(self) -> None:
        """Drop the references to the work."""
        self.publications.clear()
        self.settlements.clear()
        self.settled_in.clear()
        self._keeps = False
        if self.arrivals:
            for posts in self.arrivals:
                posts.leave()
            self.arrivals.clear()
        self._latest = None
        if self.holding is not None:
            self.holding.shrink(0)
        if self.reservations:
            for work in self.reservations:
                work.withdraw(self.number)
            self.reservations.clear()
        self.watch.stop()

    @property
    def posts(self) -> int:
        """The number of messages in it whose delivery tags are unsettled (`arrivals`)."""
        return sum([len(posts.tags) for posts in self.arrivals])

    @property
    def only_run(self) -> Publication | None:
        """Return the work of an active branch if it is a single run for a single queue."""
        if len(self.publications) != 1 or self.settlements or self.reservations or self.state is not State.ACTIVE:
            return None
        if self.arrivals:
            return None
        (run,) = self.publications
        return run if len(run.queues) == 1 else None

    @property
    def empty(self) -> bool:
        return not self.publications and not self.settlements and not self.reservations


def step_each(branches: Iterable[TransactionBranch], before: State, given: Input) -> None:
    """Let many branches, which are all in the state `before`, take the same transition. It costs a small part of as
    many calls of `TransactionBranch.step`.
    """
    after = TRANSITIONS[before][given]
    counters: BranchCounters | None = None
    count = 0
    for branch in branches:
        branch.state = after
        if branch.counters is not counters:
            if counters is not None:
                counters.entered[after] += count
            counters, count = branch.counters, 0
        count += 1
    if counters is not None:
        counters.entered[after] += count


def _verb(given: Input) -> str:
    return given.name.lower().replace("_", " ")
