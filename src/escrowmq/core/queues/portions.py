"""How many messages become dead letters, or leave as they are due, in one piece of work: few if they go to many
queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.outcome import Outcome
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.runs import Stretch

TOGETHER: Final = 400
"""Places in queues that the messages of one piece of work may take. A single message may take more. Each place takes
about 20 microseconds if no two messages are alike."""


class Forwarding(Protocol):
    """Finds where messages go that leave their queue."""

    def width(self, queue: Queue, entry: Entry, outcome: Outcome) -> tuple[int, bool]:
        """Return how many queues `entry` of `queue` would reach now, and whether other messages with its envelope reach
        the same.
        """
        ...


class Portion:
    """The messages of one piece of work, before they leave their queues. Their routes are found first, and `places` is
    the number of places that they take in other queues, at least one for each message.
    """

    __slots__ = ("_envelope", "_outcome", "_queue", "_router", "_width", "places")

    def __init__(self, router: Forwarding, outcome: Outcome) -> None:
        self._router = router
        self._outcome = outcome
        self._queue: Queue | None = None
        self._envelope: Envelope | None = None  # messages of `_queue` that have it go to `_width` queues
        self._width = 0
        self.places = 0

    def admits(self, queue: Queue, entry: Entry) -> bool:
        """Count a message, and return True, if it belongs to this piece. The first one always does."""
        envelope = entry.run.envelope
        if envelope is not self._envelope or queue is not self._queue:
            self._width, alike = self._router.width(queue, entry, self._outcome)
            self._queue, self._envelope = queue, envelope if alike else None
        return self.admits_places(self._width)

    def admits_places(self, places: int) -> bool:
        """Do `admits` for a message that goes to this number of queues."""
        places = max(places, 1)
        if self.places and self.places + places > TOGETHER:
            return False
        self.places += places
        return True

    def reach(self, stretches: Iterable[Stretch], first: int, last: int, most: int) -> int:
        """Return the tag at which this piece ends, of deliveries with tags from `first` to `last`, in order. It has at
        most `most` of them.
        """
        reached = 0
        for begin, entries, consumer in stretches:
            for tag, entry in enumerate(entries, begin):
                if tag < first:
                    continue
                if tag > last:
                    return last
                if not most or not self.admits(consumer.queue, entry):
                    return reached
                reached = tag
                most -= 1
        return last
