"""Checks that what lists show of a queue never changes without being noted (`core.watch`)."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.admin.queue_rows import variable_part
from escrowmq.core.broker import Broker
from escrowmq.core.queues.queue import Queue
from escrowmq.core.watch import ChangeWatch

MOST: Final = 100
"""Queues of a broker that is checked. Comparing more of them in each turn would take too long."""


class NotedChanges:
    """Looks at the queues of a broker after each turn, as the admin service does from time to time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._watch: ChangeWatch[Queue] = ChangeWatch(2 * MOST)
        broker.engine.watches.append(self._watch)
        self._seen: dict[Queue, tuple[Any, ...] | None] | None = None  # None: not all queues have been looked at
        self.check()

    def _queues(self) -> list[Queue]:
        return [queue for vhost in self._broker.directory.vhosts.values() for queue in vhost.queues.values()]

    def check(self) -> None:
        """Raises AssertionError if a queue has changed, is new or is gone, and was not noted."""
        queues, noted = self._queues(), self._watch.take()
        if len(queues) > MOST:
            self._seen = None
            return
        before, self._seen = self._seen, {queue: self._look(queue) for queue in queues}
        if before is None or noted is None:
            return
        changed = set(noted)
        unnoted = (self._seen.keys() ^ before.keys()) - changed
        assert not unnoted, f"{unnoted} became known or unknown without a note"
        for queue, now in self._seen.items():
            then = before.get(queue)
            if queue not in changed and then is not None and now is not None:
                assert now == then, f"{queue} changed from {then} to {now} without a note"

    def _look(self, queue: Queue) -> tuple[Any, ...] | None:
        """Return what lists show of a queue; None if that may change by the next sync, for which nothing is noted."""
        queue.watched = True
        return None if queue.unsynced else variable_part(queue)
