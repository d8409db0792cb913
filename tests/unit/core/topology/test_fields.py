"""The records that rebuild durable names leave out transient and predeclared ones, and bindings that do not last."""

from __future__ import annotations

from escrowmq.core.records.kinds import Kind
from escrowmq.core.topology.fields import binding_fields, exchange_fields, queue_fields, topology_records
from tests.unit.core.site import Site


def test_only_durable_names_that_clients_have_declared_are_recorded() -> None:
    site = Site()
    directory, vhost = site.broker.directory, site.vhost
    directory.declare_exchange(vhost, "x", "topic", durable=True, internal=True)
    directory.declare_exchange(vhost, "passing", "topic")
    lasting, passing = site.queue("q", {"x-max-length": 5}), site.queue("p", durable=False)
    for queue in (lasting, passing):
        for source in ("x", "passing"):
            directory.bind_queue(vhost, source, queue.name, "k", {"n": 1})
    records = list(
        topology_records([("/", list(vhost.exchanges.values()))], [lasting], [("/", list(vhost.bindings()))])
    )
    exchange = vhost.exchanges["x"]
    (binding,) = [each for each in exchange.bindings.values() if each.destination is lasting]
    assert records == [
        (Kind.EXCHANGE_DECLARED, exchange_fields("/", exchange)),
        (Kind.QUEUE_DECLARED, queue_fields(lasting)),
        (Kind.BOUND, binding_fields("/", binding)),
    ]
    assert records[0][1]["internal"] is True
    assert records[1][1]["arguments"] == {"x-max-length": 5}
    assert records[2][1] == {
        "vhost": "/",
        "source": "x",
        "destination": "q",
        "to_exchange": False,
        "key": "k",
        "arguments": {"n": 1},
    }
