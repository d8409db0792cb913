"""Records of exchanges and bindings are applied to a virtual host alone."""

from __future__ import annotations

import pytest

from escrowmq.core.conditions import BrokerError
from escrowmq.core.records.kinds import Kind
from escrowmq.core.topology.restoring import restore
from tests.unit.core.site import Site

EXCHANGE = {"name": "x", "kind": "fanout", "durable": True, "auto_delete": False, "internal": False, "arguments": {}}
BINDING = {"source": "x", "destination": "amq.fanout", "to_exchange": True, "key": "", "arguments": {}}


def test_what_was_declared_and_bound_is_there_until_it_is_removed() -> None:
    vhost = Site().vhost
    restore(vhost, Kind.EXCHANGE_DECLARED, EXCHANGE)
    restore(vhost, Kind.BOUND, BINDING)
    assert vhost.is_bound("x", "amq.fanout", "", {}, to_exchange=True)
    restore(vhost, Kind.UNBOUND, BINDING)
    assert not vhost.is_bound("x", "amq.fanout", "", {}, to_exchange=True)
    restore(vhost, Kind.TRANSIENT_BOUND, {"name": "x"})
    assert vhost.exchanges["x"].bound_transiently
    restore(vhost, Kind.EXCHANGE_DELETED, {"name": "x"})
    assert "x" not in vhost.exchanges


def test_a_record_that_does_not_fit_is_an_error() -> None:
    vhost = Site().vhost
    with pytest.raises(BrokerError):
        restore(vhost, Kind.BOUND, BINDING)
    with pytest.raises(KeyError):
        restore(vhost, Kind.TRANSIENT_BOUND, {"name": "x"})
