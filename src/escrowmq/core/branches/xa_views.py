"""Branches as operators see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.branches.association import Association
from escrowmq.core.branches.xa import BranchView, Tally

if TYPE_CHECKING:
    from collections.abc import Iterable

    from escrowmq.core.branches.xa_branch import XaBranch
    from escrowmq.core.queues.queue import Queue


def view_of(branch: XaBranch, now: int) -> BranchView:
    """The branch as it stands at `now`; queues that are deleted are left out."""
    published = [(q, len(p.contents), sum(map(len, p.contents))) for p in branch.publications for q in p.queues]
    published += [(q, len(run.contents), run.size) for run in branch.runs for q in run.queues]
    settled = [(s.consumer.queue, len(s.entries), sum([len(e.content) for e in s.entries])) for s in branch.settlements]
    settled += [
        (held.reservation.queue, held.count, 0) for held in branch.reservations
    ]  # nobody has counted their bytes
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


def _tallies(found: Iterable[tuple[Queue, int, int]]) -> tuple[Tally, ...]:
    totals: dict[Queue, tuple[int, int]] = {}
    for queue, messages, size in found:
        if not queue.deleted:
            before = totals.get(queue, (0, 0))
            totals[queue] = (before[0] + messages, before[1] + size)
    return tuple(Tally(queue.vhost, queue.name, *total) for queue, total in totals.items())
