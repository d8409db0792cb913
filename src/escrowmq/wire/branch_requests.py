"""The requests of clients about XA branches, in the words of no particular protocol: rights, and what is told to whom.

A branch is known only in the virtual host in which it began. There, its owner, administrators, and users whose
permissions cover all of its queues and exchanges may work for it and ask for its outcome: a transaction manager that
recovers need not be the user that did the work. Other users get ACCESS_REFUSED instead of "unknown branch", which a
transaction manager takes as the end of the branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from escrowmq.core.access.table import Operation
from escrowmq.core.budget import IN_DOUBT

if TYPE_CHECKING:
    from escrowmq.core.access.door import Door
    from escrowmq.core.branches.large_requests import Request
    from escrowmq.core.branches.xa import XaStatus
    from escrowmq.core.branches.xid import Xid
    from escrowmq.core.broker import Broker
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.vhost import VirtualHost
    from escrowmq.wire.demarcation import Demarcation


class BranchClient(Protocol):
    """The channel or session that asks."""

    broker: Broker
    vhost: VirtualHost[Queue]
    door: Door


def known(client: BranchClient, xid: Xid, operation: Operation) -> Xid:
    """Check that the user may do `operation` with the branch, and return its xid.

    Raises NOT_FOUND if the branch belongs to another virtual host, or ACCESS_REFUSED.
    """
    branches = client.broker.branches
    branches.check_vhost(xid, client.vhost.name)
    client.door.check(operation, branch=branches.by_xid.get(xid))
    return xid


def start(client: BranchClient, demarcation: Demarcation, xid: Xid, *, join: bool, resume: bool) -> XaStatus:
    """Let the channel or session work for a branch (DTX-2, DTX-3). Raises as `known` and `Demarcations.start`."""
    if join:
        known(client, xid, Operation.JOIN_BRANCH)
    elif resume:
        known(client, xid, Operation.LEAVE_BRANCH)
    else:
        client.door.check(Operation.START_BRANCH)
    return demarcation.start(xid, join=join, resume=resume)


def prepare(client: BranchClient, xid: Xid) -> Request:
    """Prepare a branch (DTX-8). Raises as `known` and the coordinator."""
    return (yield from client.broker.large_requests.prepare(known(client, xid, Operation.PREPARE_BRANCH)))


def commit(client: BranchClient, xid: Xid, *, one_phase: bool) -> Request:
    """Commit a branch (DTX-9). Raises as `known` and the coordinator.

    The result has the unroutable messages, which are returned to the client that commits, since the publisher's channel
    may be closed (TX-7). They are not returned to a user who may commit only as an administrator.
    """
    known(client, xid, Operation.COMMIT_BRANCH)
    branch = client.broker.branches.by_xid.get(xid)
    entitled = branch is not None and client.door.covers(branch)
    result = yield from client.broker.large_requests.commit(xid, one_phase=one_phase)
    return result if entitled else result._replace(returned=())


def in_doubt(client: BranchClient) -> list[Xid]:
    """Return the xids of the branches in doubt that the user may see (DTX-10)."""
    found = client.broker.branches.in_doubt(client.vhost.name)
    client.broker.engine.requests.left -= len(found) // IN_DOUBT
    return [branch.xid for branch in found if client.door.allows(Operation.LIST_BRANCH, branch=branch)]
