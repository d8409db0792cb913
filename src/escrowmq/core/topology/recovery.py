"""The names of the broker in records: those that a snapshot takes, and those that recovery finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from escrowmq.core.access.records import ACCESS_KINDS, set_record, vhost_of
from escrowmq.core.access.records import restore as restore_access
from escrowmq.core.policies.registry import KINDS as POLICY_KINDS
from escrowmq.core.records.kinds import Kind
from escrowmq.core.topology.declaration import Declaration
from escrowmq.core.topology.fields import topology_records
from escrowmq.core.topology.restoring import restore
from escrowmq.core.topology.vhost import VirtualHost

if TYPE_CHECKING:
    from escrowmq.core.access.access import Access
    from escrowmq.core.policies.registry import Policies
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.declaration import QueueMaker


def name_records(
    vhosts: Mapping[str, VirtualHost[Queue]], access: Access, policies: Policies, queues: Iterable[Queue]
) -> Iterator[tuple[Kind, dict[str, Any]]]:
    """Return the records that rebuild every durable name, for a snapshot. `queues` are the durable queues.

    The call copies only lists. The records are made when they are iterated, from objects that never change.
    """
    rights = list(map(set_record, access.entries()))
    exchanges = [(vhost.name, list(vhost.exchanges.values())) for vhost in vhosts.values()]
    bindings = [(vhost.name, list(vhost.bindings())) for vhost in vhosts.values()]
    transient = [
        (Kind.TRANSIENT_BOUND, {"vhost": vhost, "name": exchange.name})
        for vhost, some in exchanges
        for exchange in some
        if exchange.bound_transiently  # which may change while the snapshot is written
    ]
    return chain(rights, policies.records(), topology_records(exchanges, queues, bindings), transient)


class FoundNames:
    """Applies the records of names in order."""

    def __init__(
        self, vhosts: dict[str, VirtualHost[Queue]], access: Access, policies: Policies, maker: QueueMaker
    ) -> None:
        self._vhosts = vhosts
        self._access = access
        self._policies = policies
        self._maker = maker

    def apply(self, kind: Kind, fields: dict[str, Any]) -> None:
        """Apply a record of this kind."""
        if kind is Kind.COUNTERS:
            self._maker.next_number = fields["next_queue"]
        elif kind is Kind.VHOST_SET:
            self._access.put(vhost_of(fields))
            if fields["name"] not in self._vhosts:
                self._vhosts[fields["name"]] = VirtualHost(fields["name"])
                self._vhosts[fields["name"]].restoring = True
        elif kind is Kind.VHOST_DELETED:
            self._access.remove_vhost(fields["name"])
            self._policies.forget_vhost(fields["name"])
            del self._vhosts[fields["name"]]
        elif kind in ACCESS_KINDS:
            restore_access(self._access, kind, fields)
        elif kind in POLICY_KINDS:
            self._policies.restore(kind, fields)
        else:
            self._apply_in(self._vhosts[fields.pop("vhost")], kind, fields)

    def _apply_in(self, vhost: VirtualHost[Queue], kind: Kind, fields: dict[str, Any]) -> None:
        if kind is Kind.QUEUE_DECLARED:
            declaration = Declaration(True, False, fields["auto_delete"], fields["arguments"])
            self._maker.restore(vhost, fields["name"], fields["id"], declaration)
        else:
            restore(vhost, kind, fields)

    def finish(self) -> None:
        """End recovery: reserved names are refused again, and the leases of queues (`x-expires`) start from the
        beginning.
        """
        self._policies.end_restore()
        for vhost in self._vhosts.values():
            vhost.restoring = False
            for queue in vhost.queues.values():
                queue.lifetime.touch()
