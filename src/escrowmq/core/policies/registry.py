"""The policies of all virtual hosts: changes, their records, and how queues come to follow them.

Exchanges follow a change at once, since alternate exchanges are looked up when a message is routed. So do queues that
are declared later. Queues that exist follow piece by piece, in later turns if there are many; the record
POLICIES_APPLIED says that none follows earlier policies any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

from escrowmq.core.conditions import BrokerError, Condition, check_growth
from escrowmq.core.policies.matching import PolicySet
from escrowmq.core.policies.merging import Effective, resolved
from escrowmq.core.policies.parameters import KINDS as PARAMETER_KINDS
from escrowmq.core.policies.parameters import GlobalParameters
from escrowmq.core.policies.policy import MOST, Policy, policy_of
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind

if TYPE_CHECKING:
    from escrowmq.core.budget import Budget
    from escrowmq.core.leftover import LeftOver
    from escrowmq.core.ports import Log
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.settlement import Settlements
    from escrowmq.core.topology.vhost import VirtualHost

KINDS: Final = PARAMETER_KINDS | {Kind.POLICY_SET, Kind.POLICY_DELETED, Kind.POLICIES_APPLIED}
"""The kinds of records that `restore` accepts."""
_SEARCHES: Final = 4
_ADOPTED: Final = 5
"""Patterns searched for that cost one unit of the budget for requests, and the units that a queue with other options
costs.
"""


class Host(Protocol):
    """The operations that are needed from the engine."""

    log: Log
    requests: Budget
    left_over: LeftOver
    settlements: Settlements
    scarcity: str


class _Changes:
    """How many changes of a virtual host's policies there were, and how many of them all queues follow."""

    __slots__ = ("followed", "made")

    def __init__(self) -> None:
        self.made = self.followed = 0


class Policies:
    """Policies by virtual host, and global parameters."""

    def __init__(self, host: Host, vhosts: Mapping[str, VirtualHost[Queue]]) -> None:
        self._host = host
        self._vhosts = vhosts
        self.parameters = GlobalParameters(host)
        self._sets: dict[str, PolicySet] = {}
        self._changes: dict[str, _Changes] = {}

    # -- look

    def of(self, vhost: str) -> PolicySet:
        """Return the policies of a virtual host, which may be none."""
        return self._sets.get(vhost) or PolicySet()

    def policy(self, vhost: str, name: str, *, operator: bool) -> Policy:
        """Return a policy. Raises NOT_FOUND."""
        found = self.of(vhost).of(operator=operator).get(name)
        if found is None:
            kind = "operator policy" if operator else "policy"
            raise BrokerError(Condition.NOT_FOUND, f"no {kind} '{name}' in vhost '{vhost}'")
        return found

    def effective(self, vhost: str, name: str, kind: str) -> Effective | None:
        """Return what policies say about a queue of a type, or about an exchange; None if none applies."""
        found = self._sets.get(vhost)
        return None if found is None else found.effective(name, kind)

    def is_followed(self, vhost: str) -> bool:
        """Return whether all queues of a virtual host follow its policies as they are now."""
        changes = self._changes.get(vhost)
        return changes is None or changes.made == changes.followed

    # -- change

    def put(self, policy: Policy) -> bool:
        """Add or replace a policy. Return whether it is new.

        Raises INVALID_ARGUMENT for one that is not allowed, NOT_FOUND for an unknown virtual host, and LIMIT_EXCEEDED
        if there are too many, or while memory or disk space is scarce.
        """
        policy.check()
        if policy.vhost not in self._vhosts:
            raise BrokerError(Condition.NOT_FOUND, f"no such vhost '{policy.vhost}'")
        known = self.of(policy.vhost).of(operator=policy.operator)
        new = policy.name not in known
        if new:
            check_growth(self._host.scarcity, f"policy '{policy.name}' in vhost '{policy.vhost}'")
            if len(known) >= MOST:
                raise BrokerError(
                    Condition.LIMIT_EXCEEDED, f"vhost '{policy.vhost}' has {MOST} policies, the limit; delete one"
                )
        elif known[policy.name] == policy:
            return False
        self._record(Kind.POLICY_SET, policy.fields())
        self._put(policy)
        self._follow(policy.vhost)
        return new

    def remove(self, vhost: str, name: str, *, operator: bool) -> None:
        """Remove a policy. Raises NOT_FOUND."""
        self.policy(vhost, name, operator=operator)
        self._record(Kind.POLICY_DELETED, {"vhost": vhost, "name": name, "operator": operator})
        self._remove(vhost, name, operator=operator)
        self._follow(vhost)

    def forget_vhost(self, vhost: str) -> None:
        """Forget the policies of a virtual host that is deleted."""
        self._sets.pop(vhost, None)
        self._changes.pop(vhost, None)

    def _put(self, policy: Policy) -> None:
        found = self._sets.get(policy.vhost)
        if found is None:
            found = self._sets[policy.vhost] = PolicySet()
        found.put(policy)
        self._exchanges_changed(policy.vhost, found)

    def _remove(self, vhost: str, name: str, *, operator: bool) -> None:
        found = self._sets.get(vhost)
        if found is not None and found.remove(name, operator=operator):
            self._exchanges_changed(vhost, found)
            if not found:
                del self._sets[vhost]

    def _exchanges_changed(self, vhost: str, found: PolicySet) -> None:
        names = found.alternates
        self._vhosts[vhost].use_alternates(found.alternate if names else None, default="" in names)

    def _record(self, kind: Kind, fields: Mapping[str, Any]) -> None:
        self._host.log.append(kind, encode_change(**fields))

    # -- queues

    def declared(self, queue: Queue) -> None:
        """Let a new queue follow the policies, before it has messages."""
        if self._sets:
            self._apply(queue)

    def _follow(self, vhost: str) -> None:
        """Let all queues of a virtual host follow a change that was just made."""
        changes = self._changes.get(vhost)
        if changes is None:
            changes = self._changes[vhost] = _Changes()
        idle = changes.made == changes.followed
        changes.made += 1
        if idle:
            self._host.left_over.begin(self._following(self._vhosts[vhost], changes))

    def _following(self, vhost: VirtualHost[Queue], changes: _Changes) -> Iterator[None]:
        """Apply the policies to all queues, and yield whenever the turn's budget is used up."""
        requests = self._host.requests
        while changes.followed < changes.made:
            made, cost = changes.made, 1 + len(self.of(vhost.name)) // _SEARCHES
            for queue in list(vhost.queues.values()):
                if not queue.deleted and self._apply(queue):
                    vhost.limits_changed()
                requests.left -= cost
                if requests.left <= 0:
                    yield
            changes.followed = made
        if self._vhosts.get(vhost.name) is vhost:
            self._host.settlements.flush()  # what they say happened before
            self._record(Kind.POLICIES_APPLIED, {"vhost": vhost.name})

    def _apply(self, queue: Queue) -> bool:
        """Apply the policies to one queue. Return whether its limit in bytes began or ended."""
        found = self.effective(queue.vhost, queue.name, queue.options.queue_type)
        if found == queue.effective:
            return False
        queue.change()
        queue.effective = found
        options = resolved(queue.declared, queue.arguments, found.definition) if found else queue.declared
        if options == queue.options:
            return False
        before = queue.options.max_length_bytes
        self._host.requests.left -= _ADOPTED
        queue.adopt(options)
        return (options.max_length_bytes is None) != (before is None)

    # -- journal and snapshot

    def records(self) -> Iterator[tuple[Kind, dict[str, Any]]]:
        """Return the records that rebuild all policies and global parameters, for a snapshot."""
        found = [(Kind.POLICY_SET, policy.fields()) for policies in self._sets.values() for policy in policies]
        found += [(Kind.POLICIES_APPLIED, {"vhost": vhost}) for vhost in self._sets if self.is_followed(vhost)]
        return chain(found, self.parameters.records())

    def restore(self, kind: Kind, fields: Mapping[str, Any]) -> None:
        """Apply a record of KINDS at recovery."""
        if kind in PARAMETER_KINDS:
            self.parameters.restore(kind, fields)
            return
        changes = self._changes.setdefault(fields["vhost"], _Changes())
        if kind is Kind.POLICIES_APPLIED:
            changes.followed = changes.made
            return
        changes.made += 1
        if kind is Kind.POLICY_SET:
            self._put(policy_of(fields))
        else:
            self._remove(fields["vhost"], fields["name"], operator=fields["operator"])

    def restored(self) -> None:
        """Let all queues follow the policies, before recovery gives them their messages."""
        for name in self._sets:
            for queue in self._vhosts[name].queues.values():
                self._apply(queue)

    def end_restore(self) -> None:
        """Record that all queues follow the policies, if a change had not come so far."""
        for vhost, changes in self._changes.items():
            if changes.made != changes.followed:
                self._host.left_over.begin(self._later(self._vhosts[vhost], changes))

    def _later(self, vhost: VirtualHost[Queue], changes: _Changes) -> Iterator[None]:
        yield  # the first turn after the recovery
        yield from self._following(vhost, changes)
