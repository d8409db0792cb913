"""A journal of a real core whose messages took every kind of route: all types of exchange, and all ways to publish."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from escrowmq.core.broker import Broker
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Disposition
from escrowmq.wire.admission import ADMISSIONS
from escrowmq.wire.amqp091.keyed import KEYED, join
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.formats import FORMATS
from escrowmq.wire.rocketmq.content import MessageContent, envelope_of
from tests.pipeline.direct import export
from tests.unit.core.site import Site, taken
from tests.unit.core.xa_site import X, XaSite

BINDINGS: tuple[tuple[str, str, str, Mapping[str, object]], ...] = (
    ("events", "orders", "order.*", {}),
    ("events", "audit", "#", {}),
    ("letters", "orders", "order", {}),
    ("letters", "invoices", "invoice", {}),
    ("all", "orders", "", {}),
    ("all", "invoices", "", {}),
    ("sorted", "invoices", "", {"x-match": "all", "kind": "invoice"}),
    ("sorted", "orders", "", {"x-match": "any", "kind": "order", "urgent": True}),
    ("shards", "shard.1", "1", {}),
    ("shards", "shard.2", "3", {}),
    ("by customer", "shard.1", "1", {}),
    ("by customer", "shard.2", "1", {}),
    ("later", "orders", "order", {}),
    ("dead", "dead letters", "", {}),
    ("lost and found", "audit", "", {}),
)
EXCHANGES: tuple[tuple[str, str, Mapping[str, object]], ...] = (
    ("events", "topic", {"alternate-exchange": "lost and found"}),
    ("letters", "direct", {"alternate-exchange": "lost and found"}),
    ("all", "fanout", {}),
    ("sorted", "headers", {}),
    ("shards", "x-consistent-hash", {}),
    ("by customer", "x-consistent-hash", {"hash-header": "customer"}),
    ("later", "x-delayed-message", {"x-delayed-type": "direct"}),
    ("entrance", "topic", {}),
    ("dead", "fanout", {}),
    ("open", "fanout", {}),
    ("lost and found", "fanout", {}),
    ("topic", "x-partitioned", {"x-partitions": 3}),
)
QUEUES = ("invoices", "audit", "shard.1", "shard.2", "dead letters", "stray")


def routed_site() -> XaSite:
    """A core with all types of exchange, through which messages went."""
    site = XaSite(prepare=_prepare, segment_bytes=1 << 16)
    directory, vhost = site.broker.directory, site.vhost
    site.queue("orders", {"x-dead-letter-exchange": "dead"})
    for name in QUEUES:
        site.queue(name)
    for name, kind, arguments in EXCHANGES:
        directory.declare_exchange(vhost, name, kind, durable=True, arguments=arguments)
    for source, queue, key, arguments in BINDINGS:
        directory.bind_queue(vhost, source, queue, key, arguments)
    directory.bind_exchange(vhost, "entrance", "letters", "#")
    directory.declare_exchange(vhost, "passing", "fanout")
    directory.bind_exchange(vhost, "open", "passing", "")
    for kind in ("order.new", "order", "invoice", "nothing.to.see"):
        for exchange in ("events", "letters", "all", "entrance", "shards"):
            publish(site, exchange, kind)
    for headers in ({"kind": "invoice"}, {"kind": "order"}, {"urgent": True, "kind": "invoice"}, {"kind": "none"}):
        publish(site, "sorted", "", headers)
    for customer in range(6):
        publish(site, "by customer", "order", {"customer": f"c{customer}"})
        publish(site, "shards", f"key {customer}")
    publish(site, "", "invoices")
    _keyed(site)
    _rocketmq(site)
    site.turn()
    _changing(site)
    branch = site.start()
    site.broker.transactions.enlist(branch, site.publication("order", b"body", exchange="letters"))
    site.end()
    site.coordinator.prepare(X)
    directory.unbind_queue(vhost, "letters", "orders", "order")
    site.coordinator.commit(X, one_phase=False)
    directory.bind_queue(vhost, "letters", "orders", "order")
    site.turn()
    return site


def _prepare(broker: Broker) -> None:
    broker.formats.update(FORMATS)
    broker.admissions.update(ADMISSIONS)


def publish(site: Site, exchange: str, key: str, headers: dict[str, Any] | None = None) -> None:
    """Publish a message of AMQP 0-9-1, and the same one of AMQP 1.0."""
    packed = Envelope(exchange, key, protocol=PACKED, durable=True)
    content = pack(Properties(delivery_mode=2, headers=headers or {}).encode(), b"body")
    sections = FORMATS[100].encode(FORMATS[PACKED].neutral(packed, content))
    for envelope, data in ((packed, content), sections):
        site.broker.engine.publish(envelope, [data], site.broker.engine.route(site.vhost, envelope, data))


def _keyed(site: Site) -> None:
    """Publish a run of messages with different routing keys that lead to the same queues."""
    packed = pack(Properties(delivery_mode=2).encode(), b"body")
    queues = site.broker.engine.route(site.vhost, Envelope("events", "order.1"))
    envelope = Envelope("events", "", protocol=KEYED, durable=True)
    site.broker.engine.publish(envelope, [join(b"order.%d" % i, packed) for i in range(4)], queues)


def _rocketmq(site: Site) -> None:
    engine, envelope = site.broker.engine, envelope_of("topic", "tag")
    for content in (MessageContent(b"", b"one", queue=2), MessageContent(b"__SHARDINGKEY\x01a\x02", b"two")):
        engine.publish(envelope, [content.pack()], engine.route(site.vhost, envelope, content.pack()))


def _changing(site: Site) -> None:
    """Change bindings between publishes; delay, dead-letter and commit messages."""
    directory, vhost = site.broker.directory, site.vhost
    publish(site, "later", "order", {"x-delay": 1000})
    directory.unbind_queue(vhost, "all", "orders", "")
    publish(site, "all", "")
    branch = site.begin()
    site.broker.transactions.enlist(branch, site.publication("order", b"body", exchange="letters"))
    directory.unbind_queue(vhost, "letters", "orders", "order")
    publish(site, "letters", "order")
    site.broker.transactions.commit(branch)
    directory.bind_queue(vhost, "letters", "orders", "order")
    site.after(2000)
    consumer, entries = taken(site, vhost.queue("orders"), 3)
    site.broker.engine.settle(consumer, entries, Disposition.REJECTED)
    site.turn()


def of_routes(folder: Path) -> None:
    """Write the journal of `routed_site`."""
    site = routed_site()
    site.snapshot()
    site.sync()
    export(site.storage, folder)
