"""The end of a turn: dirty queues deliver, within the turn's budget, and work that was left unfinished goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from escrowmq.core.budget import QUEUE, Budget

if TYPE_CHECKING:
    from collections.abc import Callable

    from escrowmq.core.leftover import LeftOver
    from escrowmq.core.queues.credit import Window
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.removals import Removals
    from escrowmq.core.queues.returning import Returns
    from escrowmq.core.queues.settlement import Settlements


class Host(Protocol):
    """The part of the engine that a turn needs. `windows` holds those that have both credit and waiting consumers."""

    dirty: dict[Queue, None]
    windows: dict[Window, None]
    budget: Budget
    requests: Budget
    settlements: Settlements
    removals: Removals
    returns: Returns
    left_over: LeftOver


class Turn:
    """Ends one turn after the other. Functions of `endings` are called before the turn's settlements are recorded."""

    __slots__ = ("_host", "endings", "withheld")

    def __init__(self, host: Host) -> None:
        self._host = host
        self.endings: list[Callable[[], None]] = []
        self.withheld = False
        """Whether nothing is delivered. Dirty queues wait."""

    def end(self) -> None:
        """Deliver ready messages, and record settlements.

        Queues for which the turn's budget does not suffice stay dirty. Those served last follow after the others.
        """
        host, budget = self._host, self._host.budget
        budget.renew()
        host.requests.renew()
        host.returns.step()
        host.left_over.step(host.requests)
        if host.dirty:
            budget.outpaced = False
        while not self.withheld and ((host.dirty and budget.left > 0) or (host.windows and not host.dirty)):
            if host.windows:
                host.windows = {window: None for window in host.windows if window.offer()}
            dirty, host.dirty = host.dirty, {}
            waiting = iter(dirty)
            for queue in waiting:
                if not queue.deleted:
                    budget.left -= QUEUE
                    queue.dispatch()
                    queue.record_delivered()
                    if budget.left <= 0:
                        host.dirty = {**dict.fromkeys(waiting), **host.dirty}
                        break
        for record in self.endings:
            record()
        host.settlements.flush()
        if host.removals.waiting:
            host.removals.step()

    @property
    def unfinished(self) -> bool:
        """Whether another turn must follow at once: for dirty queues, returning deliveries, content to release, or
        requests whose clients are gone.
        """
        host = self._host
        return bool((host.dirty and not self.withheld) or host.removals.waiting or host.returns or host.left_over)
