"""What the admin socket can do with XA branches: show what they hold, and decide those that nobody else decides."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from escrowmq.admin.operation import Command, OperationRefused
from escrowmq.core.branches.xa import BranchView, Tally, XaResult, XaStatus
from escrowmq.core.branches.xid import Xid
from escrowmq.core.broker import Broker

IN_DOUBT: Final = "prepared"
DECIDED: Final = frozenset(("heuristic_committed", "heuristic_rolled_back"))
"""States that wait for `forget`."""


NOTHING_IN_DOUBT: Final[Mapping[str, int]] = {"locked": 0, "withheld": 0}
"""Of a queue: messages that prepared branches have taken, and those that they would bring."""

_log = logging.getLogger("escrowmq.admin")


class TransactionAdmin:
    """The commands by name (`commands`); `xid` is the text of an Xid. Raises OperationRefused, BrokerError.

    `durably` makes a change in a turn, and waits until it is on disk.
    """

    def __init__(self, broker: Broker, durably: Callable[[Callable[[], XaResult]], Awaitable[XaResult]]) -> None:
        self._broker = broker
        self._durably = durably
        self.commands: Mapping[str, Command] = {
            "tx.list": self.list_branches,
            "tx.show": self.show,
            "tx.commit": self.commit,
            "tx.rollback": self.rollback,
            "tx.forget": self.forget,
        }

    async def list_branches(self) -> list[dict[str, Any]]:
        """Every branch, oldest first."""
        return [described(view) for view in sorted(self._views(), key=lambda view: -view.age)]

    async def show(self, xid: str) -> dict[str, Any]:
        return described(self._view(Xid.parse(xid)))

    async def commit(self, xid: str) -> dict[str, Any]:
        """Decide a branch that is in doubt; its transaction manager will hear of it (DTX-11)."""
        return await self._decide(xid, commit=True)

    async def rollback(self, xid: str) -> dict[str, Any]:
        """The same; one that is not prepared, and that nobody works for, is just rolled back."""
        return await self._decide(xid, commit=False)

    async def _decide(self, xid: str, *, commit: bool) -> dict[str, Any]:
        name = Xid.parse(xid)
        coordinator = self._broker.coordinator
        view = self._view(name)
        if view.state == IN_DOUBT:
            result = await self._durably(lambda: coordinator.force(name, commit=commit))
            _log.warning(
                "an operator has %s branch %s of %s, which had been in doubt for %d s; it %s",
                _OUTCOMES[result.status],
                name,
                view.owner,
                view.age // 1000,
                ("takes {}, and brings {}" if commit else "would have taken {}, and brought {}").format(
                    _told(view.settled), _told(view.published)
                ),
            )
        elif view.state in DECIDED:
            state = view.state.replace("_", " ")
            raise OperationRefused(f"branch {name} was decided before: it is {state}; see `escrowmq tx forget`")
        elif commit:
            raise OperationRefused(
                f"branch {name} is {view.state.replace('_', ' ')}; only a prepared one can be committed here"
            )
        else:  # which is refused while a channel works for it
            result = await self._durably(lambda: coordinator.rollback(name))
        return {"outcome": _OUTCOMES[result.status], "branch": described(view)}

    async def forget(self, xid: str) -> None:
        """Drop what is remembered for the transaction manager of a branch that an operator has decided (DTX-10)."""
        name = Xid.parse(xid)
        coordinator = self._broker.coordinator
        await self._durably(lambda: XaResult(XaStatus.OK, coordinator.forget(name)))

    # -- for other lists

    def summary(self) -> dict[str, Any]:
        """How many branches there are, and for how long the oldest one has been in doubt."""
        views = self._views()
        in_doubt = [view.age for view in views if view.state == IN_DOUBT]
        return {
            "branches": len(views),
            "in_doubt": len(in_doubt),
            "in_doubt_seconds": max(in_doubt, default=0) // 1000,
            "heuristic": sum(view.state in DECIDED for view in views),
        }

    def by_queue(self) -> dict[tuple[str, str], dict[str, int]]:
        """By vhost and queue: what prepared branches have locked there, and what they would bring."""
        found: dict[tuple[str, str], dict[str, int]] = {}
        for view in self._views():
            if view.state == IN_DOUBT:
                _count(found, "locked", view.settled)
                _count(found, "withheld", view.published)
        return found

    # -- inside

    def _views(self) -> list[BranchView]:
        return self._broker.coordinator.branches()

    def _view(self, xid: Xid) -> BranchView:
        for view in self._views():
            if view.xid == xid:
                return view
        raise OperationRefused(f"no branch {xid}; those that there are: escrowmq tx list")


_OUTCOMES: Final = {
    XaStatus.HEUR_COM: "committed",
    XaStatus.HEUR_RB: "rolled back",
    XaStatus.OK: "rolled back",
    XaStatus.RB_ROLLBACK: "rolled back",
    XaStatus.RB_TIMEOUT: "rolled back",
}


def _count(found: dict[tuple[str, str], dict[str, int]], what: str, tallies: Iterable[Tally]) -> None:
    for tally in tallies:
        queue = found.setdefault((tally.vhost, tally.queue), dict(NOTHING_IN_DOUBT))
        queue[what] += tally.messages


def _told(tallies: Iterable[Tally]) -> str:
    return ", ".join(f"{tally.messages} of '{tally.queue}' in vhost '{tally.vhost}'" for tally in tallies) or "nothing"


def described(view: BranchView) -> dict[str, Any]:
    """A branch as JSON; the text of an xid's parts where they are printable."""
    return {
        "xid": str(view.xid),
        "format_id": view.xid.format_id,
        "gtrid": _readable(view.xid.gtrid),
        "bqual": _readable(view.xid.bqual),
        "state": view.state,
        "seconds": view.age // 1000,
        "timeout": view.timeout,
        "vhost": view.vhost,
        "owner": view.owner,
        "workers": view.workers,
        "published": [tally._asdict() for tally in view.published],
        "settled": [tally._asdict() for tally in view.settled],
    }


def _readable(part: bytes) -> str | None:
    text = part.decode("ascii", "replace")
    return text if text.isprintable() and "\ufffd" not in text else None
