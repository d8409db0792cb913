"""A subscription to a queue: its receiver, its credit, and what it waits for while it cannot be served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.queues.credit import Credit, Window
from escrowmq.core.topology.arguments.consumer import ConsumerOptions

if TYPE_CHECKING:
    from escrowmq.core.ports import Receiver
    from escrowmq.core.queues.queue import Queue

_NO_OPTIONS: Final = ConsumerOptions()


class Consumer:
    """A subscription of `receiver` to `queue`, without credit unless `credit` says otherwise.

    With `auto_settle` entries are settled as they are handed over. `tag` and `view` belong to the protocol; `label` is
    what the log calls it; `cursor` is where it stands in a stream. `attached` and `listed` belong to the queue's
    rotation: whether the consumer is one of the queue's, and whether it is in line to be served.
    """

    __slots__ = (
        "attached",
        "auto_settle",
        "credit",
        "cursor",
        "draining",
        "exclusive",
        "label",
        "listed",
        "options",
        "priority",
        "queue",
        "receiver",
        "tag",
        "view",
        "window",
    )

    def __init__(
        self,
        queue: Queue,
        receiver: Receiver | None,
        tag: str = "",
        *,
        credit: Credit | None = None,
        window: Window | None = None,
        auto_settle: bool = False,
        exclusive: bool = False,
        options: ConsumerOptions = _NO_OPTIONS,
        label: str = "",
    ) -> None:
        self.queue = queue
        self.receiver = receiver
        self.tag = tag
        self.label = label
        self.credit = credit or Credit()
        self.window = window
        self.auto_settle = auto_settle
        self.exclusive = exclusive
        self.options = options
        self.priority = options.priority
        self.cursor = 0
        self.view: Any = None
        self.attached = False
        self.listed = False
        self.draining = False

    # -- what the queue asks

    def room(self) -> int:
        """How many entries its credit allows now."""
        left = self.credit.left
        window = self.window
        return left if window is None or window.credit > left else window.credit

    def ready(self) -> bool:
        """Whether it can be served now. If not, whatever it waits for wakes it."""
        if self.credit.left <= 0 or self.receiver is None:
            return False
        window = self.window
        if window is not None and window.credit <= 0:
            window.waiting[self] = None
            return False
        if not self.receiver.writable:
            self.receiver.stalled(self)
            return False
        return True

    def spend(self, count: int) -> None:
        """`count` entries are handed over."""
        self.credit.spend(count)
        if self.window is not None:
            self.window.credit -= count

    # -- what gives it room

    def wake(self) -> None:
        """It may have room again: the queue is to look at it."""
        self.queue.wake(self)

    def settled(self, count: int) -> None:
        """`count` of its deliveries are settled, or went back."""
        self.credit.settled(count)
        window = self.window
        if window is not None:
            window.credit += count
        if self.listed or not self.attached:
            return
        if window is not None and window.waiting:
            window.line_up(self)  # what it gives back is for the others first
        else:
            self.queue.consumers.admit(self)

    def completed(self, count: int) -> None:
        """Its receiver has completed `count` transfers."""
        self.credit.completed(count)
        self.wake()

    def grant(self, count: int) -> None:
        """Its receiver asks for `count` entries more."""
        self.credit.grant(count)
        self.wake()

    def allow(self, count: int) -> None:
        """Its receiver asks for `count` entries from now on; a drain that has not ended is forgotten."""
        self.draining = False
        self.credit.allow(count)
        self.wake()

    def stop(self) -> None:
        """Its receiver wants nothing more until it grants credit again."""
        self.draining = False
        self.credit.cancel()

    def drain(self) -> None:
        """Use up the credit with what there is. `Receiver.drained` is called once, at the end of this or a later turn,
        when nothing is left that the consumer could have; what is left of the credit is gone then.
        """
        self.draining = True
        self.queue.consumers.draining[self] = None
        self.wake()

    def end_drain(self) -> None:
        """Nothing is left that it could have."""
        if self.draining and self.receiver is not None:
            self.draining = False
            self.receiver.drained(self, self.credit.cancel())
