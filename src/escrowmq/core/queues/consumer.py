"""A subscription to a queue: its receiver, its credit, and the event that it waits for while it cannot be served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.queues.credit import ByteCredit, Credit, Window
from escrowmq.core.topology.arguments.consumer import ConsumerOptions

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.ports import Acquirer, Receiver
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.selection import Selector, Sight

_NO_OPTIONS: Final = ConsumerOptions()


class Consumer:
    """A subscription of `receiver` to `queue`. Without `credit` it starts with no credit.

    With `auto_settle` entries are settled as they are delivered. `tag` and `view` belong to the protocol. `label` is
    the consumer's name in the log. `acquirer`, if any, is told of deliveries that return to the queue. `cursor` is its
    position in a stream. `attached`, `listed` and `line` belong to the queue's rotation: whether the queue has this
    consumer, whether it is in line to be served, and in which line.

    With `byte_credit`, which `weigh` sets, it gets only messages for which that is enough, too.

    With `selects` the consumer gets only the messages for which that is true, and none that excludes the link named
    `link` (`Marks.excluded`). Then `sight` tells how far it has looked. With `browses` the consumer is a browser
    (`browsing.py`): its deliveries must not be settled, returned or held.
    """

    __slots__ = (
        "__weakref__",
        "acquirer",
        "attached",
        "auto_settle",
        "browses",
        "byte_credit",
        "credit",
        "cursor",
        "draining",
        "exclusive",
        "label",
        "line",
        "link",
        "listed",
        "options",
        "priority",
        "queue",
        "receiver",
        "selects",
        "sight",
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
        selects: Selector | None = None,
        link: str = "",
        browses: bool = False,
    ) -> None:
        self.queue = queue
        self.receiver = receiver
        self.tag = tag
        self.label = label
        self.credit = credit or Credit()
        self.byte_credit: ByteCredit | None = None
        self.window = window
        self.auto_settle = auto_settle or browses
        self.selects = selects
        self.link = link
        self.browses = browses
        self.sight: Sight | None = None
        self.line = queue.consumers
        self.exclusive = exclusive
        self.options = options
        self.priority = options.priority
        self.cursor = 0
        self.view: Any = None
        self.acquirer: Acquirer | None = None
        self.attached = False
        self.listed = False
        self.draining = False

    # -- called by the queue

    def room(self) -> int:
        """Return the number of entries that its credit allows now."""
        left = self.credit.left
        window = self.window
        return left if window is None or window.credit > left else window.credit

    def ready(self, writable: Receiver | None = None) -> bool:
        """Return whether the consumer can be served now. If not, the event that it waits for wakes it. `writable` is a
        receiver that is known to be writable.
        """
        if self.credit.left <= 0 or self.receiver is None:
            return False
        if self.byte_credit is not None and self.byte_credit.left <= 0:
            return False
        window = self.window
        if window is not None and window.credit <= 0:
            window.waiting[self] = None
            return False
        if self.receiver is not writable and not self.receiver.writable:
            self.receiver.stalled(self)
            return False
        return True

    def spend(self, count: int, entries: list[Entry] | None = None) -> None:
        """Spend credit for `count` delivered entries. They must be named if the consumer has a credit in bytes."""
        self.credit.spend(count)
        if self.byte_credit is not None and entries is not None:
            self.byte_credit.spend(sum(map(self.byte_credit.measure, entries)))
        if self.window is not None:
            self.window.credit -= count

    def detach(self) -> Receiver | None:
        """Forget the receiver, and return it. Deliveries, branches and the queue's rotation may refer to a detached
        consumer for long; they must not keep the memory of its connection.
        """
        receiver, self.receiver = self.receiver, None
        return receiver

    # -- events that restore credit

    def wake(self) -> None:
        """Put the consumer back in line, since it may have credit again."""
        self.queue.wake(self)

    def settled(self, count: int) -> None:
        """Restore credit for `count` deliveries that were settled or returned."""
        self.credit.settled(count)
        window = self.window
        if window is not None:
            window.credit += count
        if self.listed or not self.attached:
            return
        if window is not None and window.waiting:
            window.line_up(self)  # other waiting consumers get the restored credit first
        else:
            self.line.admit(self)

    def completed(self, count: int, size: int = 0) -> None:
        """Restore credit for `count` transfers of `size` bytes that the receiver has completed."""
        self.credit.completed(count)
        if self.byte_credit is not None:
            self.byte_credit.completed(size)
        self.wake()

    def grant(self, count: int) -> None:
        """Add credit for `count` entries, as the receiver asks."""
        self.credit.grant(count)
        self.wake()

    def weigh(self, credit: ByteCredit | None) -> None:
        """Limit the deliveries by a credit in bytes, or with None by the number of messages only."""
        self.byte_credit = credit
        self.line.weigh(self)
        self.wake()

    def allow(self, count: int) -> None:
        """Set the credit to `count` entries, as the receiver asks. A drain that has not ended is abandoned."""
        self.draining = False
        self.credit.allow(count)
        self.wake()

    def stop(self) -> None:
        """Cancel the credit. The consumer is served again when its receiver grants credit."""
        self.draining = False
        self.credit.cancel()
        if self.byte_credit is not None:
            self.byte_credit.cancel()

    def drain(self) -> None:
        """Use up the credit with the available entries, then cancel the rest. `Receiver.drained` is called once, at the
        end of this or a later turn, when no entry is left that the consumer could get.
        """
        self.draining = True
        self.line.draining[self] = None
        self.wake()

    def end_drain(self) -> None:
        """End the drain: no entry is left that the consumer could get."""
        if self.draining and self.receiver is not None:
            self.draining = False
            if self.byte_credit is not None:
                self.byte_credit.cancel()
            self.receiver.drained(self, self.credit.cancel())
