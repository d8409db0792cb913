"""Consumers that get only some of a queue's messages: those with a selector, links that some messages exclude, and
consumers whose credit in bytes may not be enough for the next message.

A message that such a consumer does not want stays at its place and blocks nobody. Each consumer remembers how far it
has looked (`Sight`), so it evaluates each message once. A message that returns to the queue is looked at again.

A turn examines the messages in pieces, which its budget pays for. Messages that are only in the log are loaded for
the piece and not kept, so a consumer that finds nothing in a long backlog needs no memory for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from escrowmq.core.budget import EXAMINED
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.discipline import TAKEN_BYTES
from escrowmq.core.queues.fifo import Place
from escrowmq.core.queues.serving import hand
from escrowmq.core.records.references import merged
from escrowmq.core.records.unreadable import LogUnreadable

if TYPE_CHECKING:
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.credit import ByteCredit
    from escrowmq.core.queues.fifo import Fifo
    from escrowmq.core.queues.host import Host
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.rotation import Consumers

Selector: TypeAlias = "Callable[[Queue, Entry], bool]"
"""Returns whether a consumer wants a message of a queue. It must not raise, and must not change anything."""

PIECE: Final = 128
"""Messages that a consumer examines before others are served."""
RANGES: Final = 1000
"""Returned ranges of positions that a consumer remembers. With more, it looks again at everything behind the first."""
_END: Final = 1 << 63


class _Looked:
    """How far a consumer has looked through the messages of one priority. It has seen every message below `next` but
    those in `again`, which are ranges (first, end) in order.
    """

    __slots__ = ("again", "next")

    def __init__(self) -> None:
        self.next = 0
        self.again: list[tuple[int, int]] = []

    def piece(self, level: Fifo, most: int) -> list[Entry]:
        """Return the entries to look at next, at most `most`, and at least one if there is any."""
        while self.again:
            first, end = self.again[0]
            found = level.scan(first, end, most)
            if found:
                return found
            del self.again[0]
        return level.scan(self.next, _END, most)

    def pass_by(self, position: int) -> None:
        """Note that the entry at `position`, one of those that `piece` has just returned, has been looked at."""
        if not self.again:
            self.next = position + 1
        elif position + 1 < self.again[0][1]:
            self.again[0] = position + 1, self.again[0][1]
        else:
            del self.again[0]

    def look_again(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Note that the messages of `ranges` (first position, count) have returned."""
        known = [(first, end - first) for first, end in self.again]
        passed = [(first, min(count, self.next - first)) for first, count in ranges if first < self.next]
        self.again = [(first, first + count) for first, count in merged([*known, *passed])]
        if len(self.again) > RANGES:
            self.next = self.again[0][0]
            self.again.clear()


class Sight:
    """How far one consumer has looked through its queue. `through` is the queue's `visible_end` at the time when the
    consumer had looked at everything, and 0 if messages have returned since.
    """

    __slots__ = ("_levels", "through")

    def __init__(self) -> None:
        self.through = 0
        self._levels: dict[int, _Looked] = {}  # by number of the level, see `Discipline.levels`

    def look(
        self,
        queue: Queue,
        most: int,
        wanted: Callable[[Entry], bool] | None,
        found: Callable[[Fifo, list[Entry]], None],
        byte_credit: ByteCredit | None = None,
    ) -> int:
        """Examine a piece. Call `found` with the wanted entries of each level, at most `most` altogether, and as many
        as `byte_credit` is enough for. Return the number of entries that were examined. Raises LogUnreadable, and then
        sets `queue.unread`.

        A piece of large messages is a short one, so that the receiver is soon asked again whether it is writable.
        """
        left, end, size = PIECE, queue.visible_end, 0
        room = 0 if byte_credit is None else byte_credit.left
        if byte_credit is not None:
            byte_credit.halted = False
        for number, level in queue.order.levels():
            looked = self._levels.get(number)
            if looked is None:
                looked = self._levels[number] = _Looked()
            while left > 0 and most > 0:
                try:
                    piece = looked.piece(level, left)
                except LogUnreadable:
                    queue.unread = Place(level, looked.again[0][0] if looked.again else looked.next)
                    raise
                if not piece:
                    break
                chosen: list[Entry] = []
                passed: Entry | None = None
                for entry in piece:
                    left -= 1
                    if wanted is None or wanted(entry):
                        if byte_credit is not None:
                            room -= byte_credit.measure(entry)
                            if room < 0:
                                byte_credit.halted = True
                                break
                        chosen.append(entry)
                    passed = entry
                    size += len(entry.content)
                    if len(chosen) == most or size >= TAKEN_BYTES:
                        break
                if passed is not None:
                    looked.pass_by(passed.position)
                most -= len(chosen)
                if chosen:
                    found(level, chosen)
                if size >= TAKEN_BYTES or (byte_credit is not None and byte_credit.halted):
                    return PIECE - left
            else:
                return PIECE - left
        self.through = end
        return PIECE - left

    def look_again(self, ranges: list[tuple[int, int]]) -> None:
        """Note that the messages of `ranges` (first position, count) have returned."""
        self.through = 0
        for looked in self._levels.values():
            looked.look_again(ranges)


def chooses(queue: Queue, consumer: Consumer) -> bool:
    """Return whether there may be messages of `queue` that `consumer` must not get."""
    if consumer.selects is not None or consumer.byte_credit is not None:
        return True
    return bool(consumer.link and queue.marks.excluding)


def finished(queue: Queue, consumer: Consumer) -> bool:
    """Return whether `consumer` chooses messages, and has looked at all that there are."""
    sight = consumer.sight
    return sight is not None and chooses(queue, consumer) and sight.through == queue.visible_end


def return_to_sight(consumers: Consumers, ranges: list[tuple[int, int]]) -> None:
    """Note that the messages of `ranges` (first position, count) have returned to the queue of `consumers`."""
    for consumer in consumers.sighted:
        if consumer.sight is not None:
            consumer.sight.look_again(ranges)
        consumers.admit(consumer)


def serve(queue: Queue, host: Host, *, whole: bool) -> bool:
    """Deliver the ready entries of a queue some of whose consumers choose. Return False if the budget was used up.

    Also with `whole`, consumers that choose examine no more messages than the budget allows.
    """
    consumers, budget = queue.consumers, host.budget
    consumers.admit_news(queue.visible_end)
    consumers.admit_halted()
    late: list[Consumer] = []
    while (waiting := len(queue.order)) and not queue.fault:
        if budget.left <= 0 and not whole:
            return False
        found = consumers.next(1)
        if not found:
            break
        consumer = found[0]
        share = -(-waiting // max(consumers.in_line(consumer.priority), 1))
        most = min(consumer.room(), share, PIECE)
        if not chooses(queue, consumer):
            hand(queue, host, consumer, queue.take(most))
            consumers.admit_halted()
        elif finished(queue, consumer):
            consumers.rest(consumer)
            consumers.idle[consumer] = None
        elif budget.left <= 0:
            consumers.rest(consumer)
            late.append(consumer)
        else:
            picked = _pick(queue, host, consumer, most)
            hand(queue, host, consumer, picked)
            if consumer.byte_credit is not None and consumer.byte_credit.halted:
                consumers.rest(consumer)
            elif picked:
                consumers.admit_halted()
    for consumer in late:
        consumers.admit(consumer)
    return not late


def _pick(queue: Queue, host: Host, consumer: Consumer, most: int) -> list[Entry]:
    """Take up to `most` entries that `consumer` wants out of the next piece that it has not looked at."""
    if consumer.sight is None:
        consumer.sight = Sight()
        queue.consumers.sighted[consumer] = None
    picked: list[Entry] = []

    def take(level: Fifo, entries: list[Entry]) -> None:
        queue.change()
        level.pluck(entries)
        picked.extend(entries)

    try:
        choose = wanted(queue, host, consumer)
        host.budget.left -= EXAMINED * consumer.sight.look(queue, most, choose, take, consumer.byte_credit)
    except LogUnreadable as error:
        host.unavailable.suspend(queue, error)
    return queue.left(picked) if picked else picked


def wanted(queue: Queue, host: Host, consumer: Consumer) -> Callable[[Entry], bool]:
    """Return a function that tells whether an entry should be taken for `consumer`: it may have it and wants it, or the
    entry has expired.
    """
    selects = consumer.selects
    link, marks = consumer.link if queue.marks.excluding else "", queue.marks
    now = host.now

    retimed_below = queue.retimed_below

    def choose(entry: Entry) -> bool:
        if entry.position < retimed_below:
            queue.retime((entry,))
        if 0 < entry.run.expires_at < now + (entry.deliveries > 0):
            return True
        if link and marks.excludes(entry.position, link):
            return False
        return selects is None or selects(queue, entry)

    return choose


def picked_at(queue: Queue, host: Host, position: int) -> list[Entry]:
    """Take the entry at one position out of a queue. Nothing is returned if it is not ready there, or has expired."""
    try:
        for _, level in queue.order.levels():
            found = level.scan(position, min(position + 1, queue.visible_end), 1)
            if found:
                queue.change()
                level.pluck(found)
                return queue.left(found)
    except LogUnreadable as error:
        host.unavailable.suspend(queue, error)
    return []
