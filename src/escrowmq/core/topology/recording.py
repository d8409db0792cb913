"""The records of changes of names: each change of a durable one is logged.

The deletion of an exchange or a queue implies that of its bindings, which has no records of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from escrowmq.core.access.permissions import Entry as AccessEntry
from escrowmq.core.access.permissions import User, Vhost
from escrowmq.core.access.records import deleted_record, set_record
from escrowmq.core.budget import DELETED
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.topology.exchange import Binding
from escrowmq.core.topology.fields import binding_fields, exchange_fields, queue_fields
from escrowmq.core.topology.unbinding import Removal

if TYPE_CHECKING:
    from escrowmq.core.budget import Budget
    from escrowmq.core.leftover import LeftOver
    from escrowmq.core.ports import Log
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.exchange import Exchange
    from escrowmq.core.topology.vhost import VirtualHost


class RecordingHost(Protocol):
    """The part of the engine that is needed here."""

    log: Log
    requests: Budget
    left_over: LeftOver


class Recording:
    """Logs changes, and lets the bindings of what was deleted follow in later turns."""

    def __init__(self, engine: RecordingHost, vhosts: dict[str, VirtualHost[Queue]]) -> None:
        self._engine = engine
        self._vhosts = vhosts
        self._unbinding: dict[VirtualHost[Queue], None] = {}  # those with bindings that are being removed

    def access_set(self, entry: AccessEntry) -> None:
        """Log an entry that a change of the access rights returned."""
        kind, fields = set_record(entry)
        self._record(kind, **fields)

    def access_removed(self, entries: tuple[AccessEntry, ...]) -> None:
        """Log the entries that a removal from the access rights returned."""
        if entries and isinstance(entries[0], (User, Vhost)):
            entries = entries[:1]  # the removal of its permissions is implied
        for entry in entries:
            kind, fields = deleted_record(entry)
            self._record(kind, **fields)

    def exchange_declared(self, vhost: VirtualHost[Queue], exchange: Exchange[Queue]) -> None:
        """Record that a durable exchange was declared."""
        self._record(Kind.EXCHANGE_DECLARED, **exchange_fields(vhost.name, exchange))

    def queue_declared(self, queue: Queue) -> None:
        """Record that a durable queue was declared."""
        self._record(Kind.QUEUE_DECLARED, **queue_fields(queue))

    def queue_deleted(self, queue: Queue) -> None:
        """Record that a durable queue was deleted."""
        self._record(Kind.QUEUE_DELETED, id=queue.ident, vhost=queue.vhost, name=queue.name)

    def bound(self, vhost: VirtualHost[Queue], binding: Binding[Queue] | None) -> None:
        """Record a new binding, if there is one, as far as a restart needs it."""
        if binding is None:
            return
        source = binding.source
        if binding.durable:
            self._record(Kind.BOUND, **binding_fields(vhost.name, binding))
        elif source.hides(binding) and not source.bound_transiently:
            source.bound_transiently = True
            self._record(Kind.TRANSIENT_BOUND, vhost=vhost.name, name=source.name)

    def unbound(self, vhost: VirtualHost[Queue], removal: Removal[Queue]) -> None:
        """Record the removal of a binding, the first one of `removal`, and of others because of it."""
        self.removed(vhost, removal)
        for binding in removal.bindings[:1]:
            if binding.durable and binding.source not in removal.exchanges:
                self._record(Kind.UNBOUND, **binding_fields(vhost.name, binding))

    def removed(self, vhost: VirtualHost[Queue], removal: Removal[Queue]) -> None:
        """Record that exchanges were deleted, which implies their bindings, and let the rest of the bindings follow."""
        self._engine.requests.left -= len(removal.bindings)
        self._exchanges_deleted(vhost, removal)
        if vhost.unbinding and vhost not in self._unbinding:
            self._unbinding[vhost] = None
            self._engine.left_over.begin(self._unbind_rest(vhost))

    def dismantle(self, vhost: VirtualHost[Queue]) -> None:
        """Free the memory of a deleted virtual host's exchanges and bindings, in later turns."""
        self._engine.left_over.begin(self._dismantling(vhost))

    def _dismantling(self, vhost: VirtualHost[Queue]) -> Iterator[None]:
        for cost in vhost.unbinding.dismantle():
            self._engine.requests.left -= cost
            if self._engine.requests.left <= 0:
                yield

    def _exchanges_deleted(self, vhost: VirtualHost[Queue], removal: Removal[Queue]) -> None:
        self._engine.requests.left -= DELETED * len(removal.exchanges)
        if self._vhosts.get(vhost.name) is vhost:
            for exchange in removal.exchanges:
                if exchange.durable:
                    self._record(Kind.EXCHANGE_DELETED, vhost=vhost.name, name=exchange.name)

    def _unbind_rest(self, vhost: VirtualHost[Queue]) -> Iterator[None]:
        """Remove the bindings of deleted queues and exchanges, in pieces."""
        requests = self._engine.requests
        while vhost.unbinding:
            requests.left -= vhost.unbinding.most
            if requests.left <= 0:
                yield
            self._exchanges_deleted(vhost, vhost.unbinding.piece())
        del self._unbinding[vhost]

    def _record(self, kind: Kind, /, **fields: Any) -> None:
        self._engine.log.append(kind, encode_change(**fields))
