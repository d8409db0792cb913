"""Measure the messages of a queue that gets a limit in bytes: in pieces, from the newest to the oldest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from escrowmq.core.records.references import Reference
from escrowmq.core.records.unreadable import LogUnreadable

if TYPE_CHECKING:
    from escrowmq.core.queues.host import Host
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.stream import StreamQueue

_FIRST: Final = 16
_MOST: Final = 1024
"""Positions that one piece covers: at first, and at most."""
_LARGE: Final = 1 << 20
"""Bytes of bodies above which a piece is made smaller."""
_RUNS: Final = 100
"""The most runs of a stream that one piece covers."""


def measuring(queue: Queue, host: Host) -> Iterator[None]:
    """Count the messages below `queue.unmeasured_below`, which moves down. Yield after each piece.

    A message that leaves or returns meanwhile is counted by its position, so no piece needs to know of another. While
    messages cannot be read, the queue is unavailable, and this goes on afterwards.
    """
    width = _FIRST
    until = queue.unmeasured_below
    while not queue.deleted and queue.unmeasured_below == until and until > 1:
        begin = max(until - width, 1)
        try:
            size = _size(queue, begin, until)
        except LogUnreadable as error:
            host.unavailable.suspend(queue, error, partial(_measure_again, queue, begin, until))
            return
        queue.bytes += size
        queue.unmeasured_below = until = begin if begin > 1 else 0
        if size > _LARGE:
            width = max(width // 2, 1)
        elif size < _LARGE // 4:
            width = min(width * 2, _MOST)
        host.dirty[queue] = None
        yield
    if not queue.deleted and queue.unmeasured_below == until:
        queue.unmeasured_below = 0


def _measure_again(queue: Queue, begin: int, until: int) -> None:
    """Begin anew, if what could not be read can be read now. Raises LogUnreadable."""
    _size(queue, begin, until)
    queue.measure_again()


def _size(queue: Queue, begin: int, until: int) -> int:
    """Return the bytes of the messages in a range of positions. Raises LogUnreadable."""
    queue.order.peek()  # the order by priority may have to be made first
    size = 0
    for _, level in queue.order.levels():
        at = begin
        while some := level.scan(at, until, _MOST):
            size += sum([len(entry.content) for entry in some])
            at = some[-1].position + 1
    return size


def measuring_stream(stream: StreamQueue, host: Host, again: Callable[[], None]) -> Iterator[None]:
    """Count the messages of a stream before `measured_from`, which moves down. Yield after each piece. If messages
    cannot be read, `again` is called once they can.
    """
    while not stream.deleted:
        backlog, size = stream.log.backlog, 0
        end = backlog.find(stream.measured_from - 1)
        if end is None or backlog.at(end).first >= stream.measured_from:
            stream.measured_from = 0
            return
        for i in range(end, max(end - _RUNS, backlog.begin - 1), -1):
            reference = backlog.at(i)
            try:
                content = _run_bytes(host, reference)
            except LogUnreadable as error:
                host.unavailable.suspend(stream, error, partial(_again, host, reference, again))
                return
            stream.bytes += content
            stream.measured_from = reference.first
            size += content
            if size > _LARGE:
                break
        yield


def _again(host: Host, reference: Reference, again: Callable[[], None]) -> None:
    _run_bytes(host, reference)
    again()


def _run_bytes(host: Host, reference: Reference) -> int:
    """Return the bytes of the bodies of a run in the log. Raises LogUnreadable."""
    return sum(map(len, host.pager.load(reference).contents))
