"""The exchanges, queues and bindings that existed at any point of the log, in the core's own virtual hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from escrowmq.core.conditions import BrokerError
from escrowmq.core.queues.admission import MessageFilter, filter_of
from escrowmq.core.records.changes import decode_change, encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.topology.fields import topology_records
from escrowmq.core.topology.restoring import restore
from escrowmq.core.topology.vhost import VirtualHost
from escrowmq.pipeline.policies import KINDS as POLICY_KINDS
from escrowmq.pipeline.policies import LoggedPolicies
from escrowmq.wire.admission import ADMISSIONS, OF_PUBLISHERS

KINDS: Final = frozenset(
    {
        Kind.VHOST_SET,
        Kind.VHOST_DELETED,
        Kind.EXCHANGE_DECLARED,
        Kind.EXCHANGE_DELETED,
        Kind.QUEUE_DECLARED,
        Kind.QUEUE_DELETED,
        Kind.BOUND,
        Kind.UNBOUND,
        Kind.TRANSIENT_BOUND,
        *POLICY_KINDS,
    }
)
"""The kinds of records that change a topology."""
DELAYED: Final = "amq.delayed"
HALF: Final = "amq.half"
HIDDEN: Final = frozenset({DELAYED, HALF})
"""The names of queues to which no exchange leads: those of delayed messages, and of half messages."""
REMEMBERED: Final = 10_000
"""The number of changes before the end of a run with which the next one begins. A transaction may have been routed
before them, and committed afterwards.
"""

Change = tuple[int, int, bytes]
"""The LSN, kind and payload of a record."""


@dataclass(eq=False, slots=True)
class AuditedQueue:
    """A durable queue, as far as routing needs it."""

    ident: int
    vhost: str
    name: str
    auto_delete: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)
    admits: MessageFilter | None = None
    durable: bool = True
    policies: LoggedPolicies | None = None

    @property
    def refuses(self) -> bool:
        """Whether it may have refused a message that was routed to it, for a reason that the log does not show."""
        overflow = str(self.arguments.get("x-overflow", ""))
        if overflow.startswith("reject-publish") or not OF_PUBLISHERS.isdisjoint(self.arguments):
            return True
        kind = str(self.arguments.get("x-queue-type", "classic"))
        return self.policies is not None and self.policies.may_refuse(self.name, kind)


class LoggedTopology:
    """What exists at one point of the log. Records that do not fit are left out: `names` reports them."""

    def __init__(self, records: Iterable[tuple[int, bytes]] = ()) -> None:
        self.vhosts: dict[str, VirtualHost[AuditedQueue]] = {}
        self.queues: dict[int, AuditedQueue] = {}
        self._policies: dict[str, LoggedPolicies] = {}
        self.changes = 0
        for kind, payload in records:
            self.apply(kind, payload)
        self.changes = 0  # those since

    def apply(self, kind: int, payload: bytes) -> None:
        """Apply a record of KINDS."""
        self.changes += 1
        fields = decode_change(payload)
        if kind == Kind.VHOST_SET:
            self._vhost(fields["name"])
        elif kind == Kind.VHOST_DELETED:
            self._policies.pop(fields["name"], None)
            self.vhosts.pop(fields["name"], None)
            self.queues = {ident: queue for ident, queue in self.queues.items() if queue.vhost != fields["name"]}
        elif kind in POLICY_KINDS:
            policies = self._policies_of(fields["vhost"])
            policies.apply(kind, fields)
            names = policies.now.alternates
            alternates = policies.now.alternate if names else None
            self._vhost(fields["vhost"]).use_alternates(alternates, default="" in names)
        elif kind == Kind.QUEUE_DECLARED:
            self._add(
                AuditedQueue(fields["id"], fields["vhost"], fields["name"], fields["auto_delete"], fields["arguments"])
            )
        else:
            if kind == Kind.QUEUE_DELETED:
                self.queues.pop(fields["id"], None)
            with suppress(BrokerError, KeyError):
                restore(self._vhost(fields.pop("vhost")), Kind(kind), fields)

    def _vhost(self, name: str) -> VirtualHost[AuditedQueue]:
        vhost = self.vhosts.get(name)
        if vhost is None:
            vhost = self.vhosts[name] = VirtualHost(name)
            vhost.restoring = True
        return vhost

    def _policies_of(self, vhost: str) -> LoggedPolicies:
        found = self._policies.get(vhost)
        if found is None:
            found = self._policies[vhost] = LoggedPolicies()
            for queue in self._vhost(vhost).queues.values():
                queue.policies = found
        return found

    def _add(self, queue: AuditedQueue) -> None:
        vhost = self._vhost(queue.vhost)
        queue.policies = self._policies.get(queue.vhost)
        self.queues[queue.ident] = queue
        if queue.name in HIDDEN:
            vhost.hidden[queue.name] = queue
        elif queue.name not in vhost.queues:
            with suppress(BrokerError):
                queue.admits = filter_of(queue.arguments, ADMISSIONS)
            vhost.add_queue(queue)

    def records(self) -> list[tuple[int, bytes]]:
        """Return records that rebuild it."""
        exchanges = [(vhost.name, list(vhost.exchanges.values())) for vhost in self.vhosts.values()]
        bindings = [(vhost.name, list(vhost.bindings())) for vhost in self.vhosts.values()]
        found: list[tuple[int, bytes]] = [
            (int(Kind.VHOST_SET), encode_change(name=vhost.name)) for vhost in self.vhosts.values()
        ]
        for name, policies in self._policies.items():
            found += [(kind, encode_change(**fields)) for kind, fields in policies.records(name)]
        for kind, fields in topology_records(exchanges, self.queues.values(), bindings):
            found.append((int(kind), encode_change(**fields)))
        for vhost in self.vhosts.values():
            found += [
                (int(Kind.TRANSIENT_BOUND), encode_change(vhost=vhost.name, name=exchange.name))
                for exchange in vhost.exchanges.values()
                if exchange.bound_transiently
            ]
        return found


class TopologyHistory(NamedTuple):
    """All topologies of a part of the log.

    Args:
        base: records that rebuild the first one.
        changes: the changes since, in order.
        known: the LSN from which on the changes are complete; -1 if the log shows no topology.
    """

    base: Sequence[tuple[int, bytes]] = ()
    changes: Sequence[Change] = ()
    known: int = 0

    def shortened(self) -> TopologyHistory:
        """Return the history with only its last REMEMBERED changes."""
        if len(self.changes) <= REMEMBERED:
            return self
        topology = LoggedTopology(self.base)
        for _, kind, payload in self.changes[:-REMEMBERED]:
            topology.apply(kind, payload)
        return TopologyHistory(topology.records(), self.changes[-REMEMBERED:], self.known)


def continued(
    before: TopologyHistory | None,
    rows: Iterable[tuple[int, int, int, bytes]],
    start: int,
    begin: int,
    snapshots: Sequence[int],
) -> TopologyHistory:
    """Return the history with the records of a run.

    Args:
        before: the history up to the run; None if there is none.
        rows: records, as (snapshot or -1, LSN, kind, payload).
        start: the LSN from which the log is complete.
        begin: the LSN at which the run begins.
        snapshots: the LSNs of the snapshots among the rows.
    """
    every = sorted(row for row in rows if row[2] in KINDS)
    said = [row[1:] for row in every if row[0] < 0]
    if before is not None and before.known >= 0 and start <= max(begin, before.known):
        return TopologyHistory(before.base, [*before.changes, *said], before.known)
    if start == 0 and begin == 0:
        return TopologyHistory((), said, 0)
    if not snapshots:
        return TopologyHistory(known=-1)
    first = min(snapshots)
    base = [(kind, payload) for snapshot, _, kind, payload in every if snapshot == first]
    return TopologyHistory(base, [change for change in said if change[0] >= first], first)
