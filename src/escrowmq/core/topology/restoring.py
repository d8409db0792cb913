"""Apply the records of exchanges and bindings to a virtual host: at recovery, and in the audit, which routes again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from escrowmq.core.records.kinds import Kind
from escrowmq.core.topology.exchange import Q
from escrowmq.core.topology.vhost import VirtualHost


def restore(vhost: VirtualHost[Q], kind: Kind, fields: Mapping[str, Any]) -> None:
    """Apply one record, whose `fields` no longer have the virtual host. The virtual host is `restoring`.

    Raises:
        BrokerError: it does not fit what exists.
        KeyError: an exchange does not exist.
    """
    match kind:
        case Kind.EXCHANGE_DECLARED:
            vhost.declare_exchange(**fields)
        case Kind.EXCHANGE_DELETED:
            vhost.delete_exchange(fields["name"])
        case Kind.QUEUE_DELETED:
            vhost.remove_queue(fields["name"])
        case Kind.BOUND:
            bind = vhost.bind_exchange if fields["to_exchange"] else vhost.bind_queue
            bind(fields["source"], fields["destination"], fields["key"], fields["arguments"])
        case Kind.UNBOUND:
            unbind = vhost.unbind_exchange if fields["to_exchange"] else vhost.unbind_queue
            unbind(fields["source"], fields["destination"], fields["key"], fields["arguments"])
        case Kind.TRANSIENT_BOUND:
            vhost.exchanges[fields["name"]].bound_transiently = True
        case _:
            raise AssertionError(f"{kind.name} is no record of a topology")
