"""What each queue allowed, and when it existed, by its declaration and the policies that it followed."""

from __future__ import annotations

from collections.abc import Mapping

from escrowmq.pipeline.causes import NEVER, QueueTerms, by_phase
from escrowmq.pipeline.policies import PolicyHistory
from escrowmq.pipeline.store import Queue


def terms(queues: Mapping[int, Queue], policies: PolicyHistory) -> dict[int, QueueTerms]:
    """Return what each queue allows, and when it existed."""
    found = {}
    for ident, queue in queues.items():
        until = queue.deleted[0] if queue.deleted else NEVER
        since = queue.since if queue.logged else 0
        mine = QueueTerms.of(queue.arguments, since, until)._replace(declared=queue.declared)
        phases = [
            phase for phase in policies.phases.get(queue.vhost, ()) if since <= phase.until and phase.since <= until
        ]
        found[ident] = mine._replace(phases=by_phase(mine, queue.name, queue.arguments, phases)) if phases else mine
    return found
