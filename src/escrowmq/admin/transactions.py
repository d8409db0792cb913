"""Operations on XA branches: show their messages, and decide branches that no transaction manager decides."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from escrowmq.admin.operation import Listing, NothingFound, Operation, OperationRefused, Row
from escrowmq.admin.pieces import Pieces, carried_out
from escrowmq.admin.ports import BrokerProcess
from escrowmq.core.branches.branch import State
from escrowmq.core.branches.xa import BranchView, Tally, XaResult, XaStatus
from escrowmq.core.branches.xa_branch import XaBranch
from escrowmq.core.branches.xa_views import viewing
from escrowmq.core.branches.xid import Xid
from escrowmq.xid_names.names import parsed, shown, text_of

DECIDED: Final = frozenset((State.HEURISTIC_COMMITTED, State.HEURISTIC_ROLLED_BACK))
"""States of branches that an operator has decided and that wait for `forget`."""
NOTHING_IN_DOUBT: Final[Mapping[str, int]] = {"locked": 0, "withheld": 0, "reserved": 0}
"""Messages of a queue that prepared branches have settled, messages that they will publish to it, and those of the
former that bulk readers had reserved; the others had been delivered.
"""
COUNTED: Final = 50
"""Branches in one step of the summary."""
_OUTCOMES: Final = {
    XaStatus.HEUR_COM: "committed",
    XaStatus.HEUR_RB: "rolled back",
    XaStatus.OK: "rolled back",
    XaStatus.RB_ROLLBACK: "rolled back",
    XaStatus.RB_TIMEOUT: "rolled back",
}

ByQueue: TypeAlias = dict[tuple[str, str], dict[str, int]]

_log = logging.getLogger("escrowmq.admin")


class TransactionAdmin:
    """The operations by name are in `operations`; their argument `xid` is a name of a branch as in `xid_names`.

    They raise OperationRefused or BrokerError. A change is on disk when its operation returns.
    """

    def __init__(self, process: BrokerProcess, pieces: Pieces) -> None:
        self._process = process
        self._broker = process.broker
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {
            "tx.list": self.list_branches,
            "tx.show": self.show,
            "tx.commit": self.commit,
            "tx.rollback": self.rollback,
            "tx.forget": self.forget,
        }

    async def list_branches(self) -> Listing:
        """Return every branch, in the order in which they began."""
        return Listing(self._pieces, self._rows())

    async def show(self, xid: str) -> Row:
        """Return one branch."""
        return described(await self._view(self._find(parsed(xid))))

    async def commit(self, xid: str) -> Row:
        """Commit a branch that is in doubt. Its transaction manager is told when it asks (DTX-11)."""
        return await self._decide(xid, commit=True)

    async def rollback(self, xid: str) -> Row:
        """Roll back a branch that is in doubt, or one that is not prepared and has no associated channel."""
        return await self._decide(xid, commit=False)

    async def forget(self, xid: str) -> None:
        """Drop the outcome that is kept for the transaction manager of a branch that an operator decided (DTX-10)."""
        name = parsed(xid)
        coordinator = self._broker.coordinator
        state = self._find(name).state
        if state not in DECIDED:
            raise OperationRefused(
                f"branch {name} is {_words(state)}; only a branch that an operator has decided can be forgotten"
            )
        await self._process.durably(lambda: XaResult(XaStatus.OK, coordinator.forget(name)))

    async def summary(self) -> dict[str, int]:
        """Return the number of branches, the number of those in doubt, and the age of the oldest branch in doubt."""
        return await self._pieces.result(self._counting())

    def by_queue(self) -> Generator[None, None, ByQueue]:
        """Return, by virtual host and queue, the messages that prepared branches lock and withhold."""
        found: ByQueue = {}
        for branch in list(self._broker.branches.by_xid.values()):
            yield
            if branch.state is State.PREPARED:
                view = yield from viewing(branch, self._broker.engine.now)
                _count(found, "locked", view.settled)
                _count(found, "withheld", view.published)
                for held in branch.reservations:
                    queue = held.reservation.queue
                    found[queue.vhost, queue.name]["reserved"] += held.count
        return found

    async def _decide(self, xid: str, *, commit: bool) -> Row:
        name = parsed(xid)
        coordinator = self._broker.coordinator
        view = await self._view(self._find(name))
        state = self._find(name).state  # the branch may have changed while it was counted
        words = _words(state)
        if state is State.PREPARED:
            forced = await carried_out(self._process, self._broker.large_requests.force(name, commit=commit))
            result = await self._process.durably(lambda: forced)
            _log_decision(view, result, commit=commit)
        elif state in DECIDED:
            raise OperationRefused(f"branch {name} is already {words}; see `escrowmq tx forget`")
        elif commit:
            raise OperationRefused(f"branch {name} is {words}; only a prepared branch can be committed by an operator")
        else:
            result = await self._process.durably(lambda: coordinator.rollback(name))
        return {"outcome": _OUTCOMES[result.status], "branch": described(view)}

    def _rows(self) -> Iterator[Row | None]:
        branches = self._broker.branches.by_xid
        for branch in list(branches.values()):
            view = yield from viewing(branch, self._broker.engine.now)
            yield described(view) if branches.get(branch.xid) is branch else None

    def _counting(self) -> Generator[None, None, dict[str, int]]:
        counts = {"branches": 0, "in_doubt": 0, "in_doubt_seconds": 0, "heuristic": 0}
        oldest_ms = 0
        for counted, branch in enumerate(list(self._broker.branches.by_xid.values())):
            if counted % COUNTED == 0:
                yield
            counts["branches"] += 1
            counts["heuristic"] += branch.state in DECIDED
            if branch.state is State.PREPARED:
                counts["in_doubt"] += 1
                oldest_ms = max(oldest_ms, self._broker.engine.now - branch.started)
        return counts | {"in_doubt_seconds": oldest_ms // 1000}

    async def _view(self, branch: XaBranch) -> BranchView:
        return await self._pieces.result(viewing(branch, self._broker.engine.now))

    def _find(self, xid: Xid) -> XaBranch:
        branch = self._broker.branches.by_xid.get(xid)
        if branch is None:
            raise NothingFound(f"no branch {xid}; `escrowmq tx list` shows the branches that exist")
        return branch


def _words(state: State) -> str:
    return state.name.lower().replace("_", " ")


def _log_decision(view: BranchView, result: XaResult, *, commit: bool) -> None:
    _log.warning(
        "an operator has %s branch %s of %s, which had been in doubt for %d s; it %s",
        _OUTCOMES[result.status],
        view.xid,
        view.owner,
        view.age // 1000,
        ("settles {} and publishes {}" if commit else "would have settled {} and published {}").format(
            _in_words(view.settled), _in_words(view.published)
        ),
        extra={"fields": {"xid": view.xid, "user": view.owner}},
    )


def _count(found: ByQueue, what: str, tallies: Iterable[Tally]) -> None:
    for tally in tallies:
        queue = found.setdefault((tally.vhost, tally.queue), dict(NOTHING_IN_DOUBT))
        queue[what] += tally.messages


def _in_words(tallies: Iterable[Tally]) -> str:
    words = [f"{tally.messages} of queue '{tally.queue}' in vhost '{tally.vhost}'" for tally in tallies]
    return ", ".join(words) or "nothing"


def described(view: BranchView) -> dict[str, Any]:
    """Return a branch for JSON; `gtrid` and `bqual` are texts if they are printable UTF-8, else None."""
    return {
        "xid": str(view.xid),
        "name": shown(view.xid),
        "format_id": view.xid.format_id,
        "gtrid": text_of(view.xid.gtrid),
        "bqual": text_of(view.xid.bqual),
        "state": view.state,
        "seconds": view.age // 1000,
        "timeout": view.timeout,
        "vhost": view.vhost,
        "owner": view.owner,
        "workers": view.workers,
        "published": [tally._asdict() for tally in view.published],
        "settled": [tally._asdict() for tally in view.settled],
    }
