"""A journal of messages that have ids: one is delivered, returned and settled, and has a dead letter."""

from __future__ import annotations

from pathlib import Path

from escrowmq.core.broker import Broker
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.outcome import Disposition
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.formats import FORMATS
from tests.pipeline.direct import export
from tests.unit.core.site import Site, taken


def of_identities(folder: Path) -> None:
    """Write the journal. The dead letter of message `m-1` is in the queue `dead`."""
    site = Site(prepare=_prepare)
    site.broker.engine.record_deliveries()
    site.queue("dead")
    queue = site.queue("orders", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    envelope = Envelope("", "orders", protocol=PACKED, durable=True)
    contents = [
        pack(Properties(message_id=f"m-{i}", correlation_id=f"c-{i}", user_id="ann").encode(), b"body")
        for i in range(3)
    ]
    site.broker.engine.publish(envelope, contents, (queue,))
    site.turn()
    consumer, entries = taken(site, queue, 2)
    site.broker.engine.settle(consumer, entries[:1], Disposition.ACCEPTED)
    site.broker.engine.settle(consumer, entries[1:], Disposition.REJECTED)
    site.turn()
    site.sync()
    export(site.storage, folder)


def _prepare(broker: Broker) -> None:
    broker.formats.update(FORMATS)
