"""The dead-letter history of a message as AMQP 0-9-1 clients see it: the headers `x-death` and `x-first-death-*`."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.wire.amqp091.properties import NO_PROPERTIES, scan, with_header, with_headers, without_expiration
from escrowmq.wire.amqp091.table import FieldTable, FieldValue, Long, Timestamp, encode_table

_FLAGS: Final = struct.Struct(">H")
_LENGTH: Final = struct.Struct(">I")
_CONTENT_TYPE: Final = 0x8000
_CONTENT_ENCODING: Final = 0x4000
_HEADERS: Final = 0x2000
_EXPIRATION: Final = 0x0100
_ENTRY_TAG: Final = 1  # the octet before each entry of a list
_MOST_TIMES: Final = 2**63 - 1
_CONCERNED: Final = (b"x-death", b"x-first-death", b"\x02CC")
"""Octets that occur in every headers table that has to be decoded. They may also occur in a value, which does no harm.
"""


def delivered_properties(envelope: Envelope) -> bytes:
    """Return the properties of a message as consumers receive them. RabbitMQ delivers the same.

    If the publisher sent a dead-letter history along, because it received the message from a dead-letter queue, the
    counts continue from there. `CC` is removed once a queue's own dead-letter routing key has replaced all routing
    keys.
    """
    return dead_properties(envelope, envelope.header) if envelope.deaths else envelope.header


def dead_properties(envelope: Envelope, props: bytes) -> bytes:
    """Return the properties `props` of a dead-lettered message as consumers receive them."""
    found = scan(props)
    first = envelope.deaths[-1]
    headers: FieldTable = dict(found.headers or {})
    visible = headers.get("CC") if envelope.extra_keys else headers.pop("CC", None)
    earlier = headers.get("x-death")
    before = list(earlier) if isinstance(earlier, list) else []
    deaths = [_table(death, visible if isinstance(visible, list) else [], before) for death in envelope.deaths]
    headers["x-death"] = [*deaths, *before]
    if not any(f"x-first-death-{what}" in headers for what in ("exchange", "queue", "reason")):
        headers["x-first-death-exchange"] = first.exchange
        headers["x-first-death-queue"] = first.queue
        headers["x-first-death-reason"] = first.reason
    return with_headers(without_expiration(props, found), found, headers)


def shortened(props: bytes, room: int) -> bytes:
    """Return properties without as many entries of `x-death` as necessary for them to have at most `room` bytes.

    The first entries are the most recent ones, the last is the first death. Those between are removed, the oldest of
    them first, then the first death, then the others. The properties may still be too long after that, if the publisher
    sent as much.
    """
    found = scan(props)
    headers: FieldTable = dict(found.headers or {})
    deaths = headers.get("x-death")
    if len(props) <= room or not isinstance(deaths, list):
        return props
    sizes = [_ENTRY_TAG + len(encode_table(death)) if isinstance(death, dict) else 0 for death in deaths]
    left = [*range(len(deaths))]
    over = len(props) - room
    while over > 0 and left:
        over -= sizes[left.pop(-2 if len(left) > 2 else -1)]
    if left:
        headers["x-death"] = [deaths[i] for i in left]
    else:
        del headers["x-death"]
    return with_headers(props, found, headers)


def history_of(envelope: Envelope) -> bytes:
    """Return the fields that `dead_properties` adds to the headers of a message whose publisher sent no such fields."""
    added = scan(dead_properties(envelope, NO_PROPERTIES))
    return encode_table(added.headers or {})[4:]


def with_history(envelope: Envelope, props: bytes, history: bytes) -> bytes:
    """Return the same as `dead_properties`, without decoding the headers where that is possible.

    `history` is that of the envelope. Properties with an expiration, with a history that the publisher sent, or with
    further routing keys are left to `dead_properties`.
    """
    flags = int(_FLAGS.unpack_from(props)[0])
    if flags & _EXPIRATION:
        return dead_properties(envelope, props)
    at = 2
    for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & flag:
            at += 1 + props[at]
    if not flags & _HEADERS:
        table = _LENGTH.pack(len(history)) + history
        return _FLAGS.pack(flags | _HEADERS) + props[2:at] + table + props[at:]
    size = int(_LENGTH.unpack_from(props, at)[0])
    end = at + 4 + size
    if any(props.find(name, at, end) >= 0 for name in _CONCERNED):
        return dead_properties(envelope, props)
    return b"".join((props[:at], _LENGTH.pack(size + len(history)), props[at + 4 : end], history, props[end:]))


def _table(death: Death, visible: list[FieldValue], before: list[FieldValue]) -> FieldTable:
    """Return one entry of `x-death`, without the keys of `BCC`. If `before` has the same entry, it is removed and its
    count added.
    """
    for event in before:
        if isinstance(event, dict) and (event.get("queue"), event.get("reason")) == (death.queue, death.reason):
            before.remove(event)
            count = event.get("count")
            times = death.times + (count if isinstance(count, int) else 0)
            return {**event, "count": Long(min(times, _MOST_TIMES))}
    table: FieldTable = {
        "count": Long(death.times),
        "reason": death.reason,
        "queue": death.queue,
        "time": Timestamp(death.time_ms // 1000),
        "exchange": death.exchange,
        "routing-keys": [*death.routing_keys[:1], *(key for key in death.routing_keys[1:] if key in visible)],
    }
    if death.ttl is not None:
        table["original-expiration"] = str(death.ttl)
    return table


def with_delivery_count(entry: Entry, props: bytes) -> bytes:
    """Return the properties of a delivery from a quorum queue, with the number of earlier deliveries that were
    returned.
    """
    return _counted(props, entry.deliveries)


@lru_cache(maxsize=1024)
def _counted(props: bytes, deliveries: int) -> bytes:
    return with_header(props, scan(props), "x-delivery-count", Long(deliveries))
