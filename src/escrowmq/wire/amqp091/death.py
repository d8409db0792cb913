"""What AMQP 0-9-1 clients are shown of a message's dead-letter history: the headers `x-death` and `x-first-death-*`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from escrowmq.core.message import Death, Entry, Envelope
from escrowmq.wire.amqp091.properties import scan, with_header, with_headers, without_expiration
from escrowmq.wire.amqp091.table import FieldTable, FieldValue, Long, Timestamp


def delivered_properties(envelope: Envelope) -> bytes:
    """The properties of a message as its consumers get them."""
    props = envelope.header
    if not envelope.deaths:
        return props
    found = scan(props)
    first = envelope.deaths[-1]
    headers: FieldTable = dict(found.headers or {})
    earlier = headers.get("x-death")
    deaths: list[FieldValue] = [_table(death) for death in envelope.deaths]
    headers["x-death"] = deaths + (earlier if isinstance(earlier, list) else [])
    headers.setdefault("x-first-death-exchange", first.exchange)
    headers.setdefault("x-first-death-queue", first.queue)
    headers.setdefault("x-first-death-reason", first.reason)
    return with_headers(without_expiration(props, found), found, headers)


def _table(death: Death) -> FieldTable:
    table: FieldTable = {
        "count": Long(death.times),
        "reason": death.reason,
        "queue": death.queue,
        "time": Timestamp(death.time_ms // 1000),
        "exchange": death.exchange,
        "routing-keys": list(death.routing_keys),
    }
    if death.ttl is not None:
        table["original-expiration"] = str(death.ttl)
    return table


def headers_of(envelope: Envelope) -> Mapping[str, Any]:
    """The headers that routing looks at."""
    return scan(delivered_properties(envelope)).headers or {}


def with_stream_offset(entry: Entry, props: bytes) -> bytes:
    """Properties of a delivery from a stream: clients count offsets from 0."""
    return with_header(props, scan(props), "x-stream-offset", Long(entry.position - 1))


def with_delivery_count(entry: Entry, props: bytes) -> bytes:
    """Properties of a delivery from a quorum queue that was returned before."""
    if not entry.deliveries:
        return props
    return with_header(props, scan(props), "x-delivery-count", Long(entry.deliveries))
