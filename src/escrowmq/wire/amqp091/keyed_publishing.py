"""Reading of publishes that differ in their routing keys, as runs of keyed content. This is part of the hot path."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.keyed import BETWEEN
from escrowmq.wire.amqp091.packed import CHANNEL
from escrowmq.wire.outbox import LARGE

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue
    from escrowmq.wire.amqp091.channel import Channel
    from escrowmq.wire.amqp091.publication import Address, AddressGroup, Form
    from escrowmq.wire.amqp091.publishing import PublishReader
    from escrowmq.wire.amqp091.shape import Values

FEW: Final = 4
"""A shorter run is not worth separating from the messages before and after it."""
_PUBLISH: Final = b"\x00\x3c\x00\x28"
_EXCHANGE_AT: Final = 13  # of the length of the exchange's name in a method frame
_END: Final = codes.FRAME_END
_FRAME_SIZE: Final = struct.Struct(">I")
_BEHIND_METHOD: Final = 4  # octets from the end of the method's payload to the size field of the header frame
_AROUND_BODY: Final = 8  # octets from the end of the header frame to the body
_LEAST_CONTENT: Final = 4 + 14 + _AROUND_BODY + 2
_LEAST: Final = 7 + 9 + _BEHIND_METHOD + _LEAST_CONTENT
_CHANNEL: Final = CHANNEL.to_bytes(2, "big")
_SPREAD_BYTES: Final = 500_000
"""Bytes of publishes that are read together, multiplied by the number of their queues. The shortest messages then make
about 6,000 entries, which take 3 ms. A read of small messages is of about half of that, so it is whole for one queue.
"""


def read_together(queues: Sequence[Queue]) -> int:
    """Return how many bytes of publishes to `queues` may be read together, since each queue gets each of them."""
    return _SPREAD_BYTES // (len(queues) or 1)


def read_keyed(reader: PublishReader, channel: Channel, buf: bytes, at: int, end: int) -> int:
    """Read publishes that may differ in routing keys and properties. Those that follow each other and go to the same
    queues form a run.

    Returns the position of the first publish that cannot be read in this way, is incomplete, goes to the default
    exchange, asks for a direct reply, or is one of several for the same routing key, which are read faster elsewhere.
    """
    if end - at < _LEAST or not buf.startswith(_PUBLISH, at + 7) or not buf[at + _EXCHANGE_AT]:
        return at
    shape, middle, known = reader.shape, channel.body_start, reader.forms.addresses
    startswith, unpack, last_header = buf.startswith, _FRAME_SIZE.unpack_from, end - _LEAST_CONTENT
    most, last, last_stop = min(reader.most_body, LARGE - 1), end - _LEAST, end - _AROUND_BODY - 2
    version, allowed = channel.vhost.version, channel.broker.access.version
    canonical = channel.number == CHANNEL
    previous: Address | None = None
    group: AddressGroup | None = None
    form: Form | None = None
    values: Values | None = None
    queues: tuple[Queue, ...] = ()
    contents: list[bytes] = []
    repeats = key_at = 0
    while at <= last:
        header = at + 7 + unpack(buf, at + 3)[0] + _BEHIND_METHOD
        if header > last_header:
            break
        address = known.get(buf[at:header])
        if address is None or address.version != version or address.allowed != allowed:
            address = _find(reader, channel, buf, at, header)
            last = last if channel.broker.engine.requests.left > 0 else at  # this publish ends the turn
        if address is None or not address.keyed:
            break
        repeats = repeats + 1 if address is previous else 0
        previous = address
        if repeats == FEW:
            break
        if (
            shape is not None
            and header + shape.length <= last_stop
            and shape.literals(buf, header) == shape.expected
            and b"".join(shape.texts(buf, header)).isascii()
        ):
            length, found, reply_to = shape.length, shape.values, shape.reply_to
        else:
            length, found, reply_to, shape = reader.survey(buf, header, last_stop)
        stop = header + length
        if not length or reply_to or not startswith(middle, stop):
            break
        (size,) = unpack(buf, stop + 4)
        finish = stop + 8 + size
        if finish >= end or not 0 < size <= most or buf[finish] != _END or unpack(buf, header + 12)[0] != size:
            break
        if address.queues != queues or (found is not values and found != values) or address.group is not group:
            _publish(reader, channel, form, queues, contents)
            contents = []
            form, queues, values, group = _form(reader, address, found), address.queues, found, address.group
            if form is None:
                break
            key_at = group.key_at
            last = min(last, at + read_together(queues))
        if canonical:
            contents.append(buf[at + key_at : header - 5] + buf[header - 4 : finish + 1])
        else:
            packed = buf[header : stop + 2] + _CHANNEL + buf[stop + 4 : finish + 1]
            contents.append(buf[at + key_at : header - 5] + BETWEEN + packed)
        at = finish + 1
    reader.shape = shape
    channel.lone = repeats < FEW
    channel.address = previous or channel.address
    _publish(reader, channel, form, queues, contents)
    return at


def _find(reader: PublishReader, channel: Channel, buf: bytes, at: int, header: int) -> Address | None:
    """Return the address of the publish at `at`, whose header frame's size field is at `header`, with its present
    queues.

    Returns None for a method that is not such a publish, and for a message that has to be read individually: it may be
    refused, go to the default exchange, or be routed by its headers.
    """
    number = channel.number.to_bytes(2, "big")
    if (
        not buf.startswith(_PUBLISH, at + 7)
        or not buf[at + _EXCHANGE_AT]
        or buf[at : at + 3] != b"\x01" + number
        or buf[header - 4 : header] != b"\xce\x02" + number
    ):
        return None
    try:
        address = reader.forms.address(channel.number, buf[at + 7 : header - _BEHIND_METHOD])
        return address if channel.find_queues(address) else None
    except (BrokerError, SyntaxFault):
        return None


def _form(reader: PublishReader, address: Address, values: Values) -> Form | None:
    try:
        return reader.forms.keyed(address, values)
    except BrokerError:
        return None


def _publish(
    reader: PublishReader, channel: Channel, form: Form | None, queues: tuple[Queue, ...], contents: list[bytes]
) -> None:
    if form is not None and contents:
        form.queues, form.version, form.allowed = queues, channel.vhost.version, channel.broker.access.version
        reader.publish(channel, form, contents)
