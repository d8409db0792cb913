"""Branches as operators see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.branches.association import Association
from escrowmq.core.branches.xa import BranchView, Tally

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from escrowmq.core.branches.xa_branch import XaBranch
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.queue import Queue

STEP: Final = 500
"""Number of messages that are counted in one step."""


def view_of(branch: XaBranch, now: int) -> BranchView:
    """Return a view of the branch at the time `now`. Deleted queues are left out."""
    steps = viewing(branch, now)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            view: BranchView = end.value
            return view


def viewing(branch: XaBranch, now: int) -> Generator[None, None, BranchView]:
    """Do the work of `view_of` in steps of at most `STEP` messages, since a branch may have hundreds of thousands."""
    published: list[tuple[Queue, int, int]] = []
    for publication in list(branch.publications):
        size = yield from _bytes_of(publication.contents)
        published += [(queue, len(publication.contents), size) for queue in publication.queues]
    published += [(queue, len(run.contents), run.size) for run in branch.runs for queue in run.queues]
    settled: list[tuple[Queue, int, int]] = []
    if branch.unread is not None:  # the bytes are unknown
        published += [(queue, count, 0) for queue, count in branch.unread.published]
        settled += [(queue, count, 0) for queue, count in branch.unread.settled]
    for settlement in list(branch.settlements):
        size = yield from _bytes_settled(settlement.entries)
        settled.append((settlement.consumer.queue, len(settlement.entries), size))
    # The bytes of reserved messages are not counted anywhere.
    settled += [(held.reservation.queue, held.count, 0) for held in branch.reservations]
    return BranchView(
        branch.xid,
        branch.number,
        branch.state.name.lower(),
        now - branch.started,
        branch.owner,
        branch.vhost,
        branch.timeout,
        sum(association is not Association.ENDED for association in branch.associations.values()),
        _tallies(published),
        _tallies(settled),
    )


def _bytes_of(contents: Sequence[bytes]) -> Generator[None, None, int]:
    size = 0
    for start in range(0, len(contents), STEP):
        size += sum(map(len, contents[start : start + STEP]))
        yield
    return size


def _bytes_settled(entries: Sequence[Entry]) -> Generator[None, None, int]:
    size = 0
    for start in range(0, len(entries), STEP):
        size += sum([len(entry.content) for entry in entries[start : start + STEP]])
        yield
    return size


def _tallies(found: Iterable[tuple[Queue, int, int]]) -> tuple[Tally, ...]:
    totals: dict[Queue, tuple[int, int]] = {}
    for queue, messages, size in found:
        if not queue.deleted:
            before = totals.get(queue, (0, 0))
            totals[queue] = (before[0] + messages, before[1] + size)
    return tuple(Tally(queue.vhost, queue.name, *total) for queue, total in totals.items())
