"""The property `absolute-expiry-time` (section 3.2.4). A message expires at that time or after its `ttl`, whichever
comes first.

The core knows only times to live, which are part of the envelope. A message with an absolute time therefore gets an
envelope of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.sections import properties

_PROPERTIES: Final = b"\x00\x53\x73\xc0"
_ANNOTATIONS: Final = b"\x00\x53\x72\xc1"
_BODIES: Final = frozenset((0x74, 0x75, 0x76, 0x77))
_PLACE: Final = 9  # of the property among the fields
_NULL: Final = 0x40
_TIMESTAMP: Final = 0x83
_STAMP: Final = 9  # bytes of an encoded timestamp
_NULL_AND_TIME: Final = bytes((_NULL, _TIMESTAMP))
_NONE: Final = frozenset[int]()
_LONGEST: Final = 2**32
"""Milliseconds from which on a message does not expire by its time, since the header of a message has no larger ones.
"""


def dated_among(contents: Sequence[bytes]) -> frozenset[int]:
    """Return the numbers of those contents that may have an absolute expiry time. Most surely have none."""
    if _nothing_is_dated(contents):
        return _NONE
    return frozenset([i for i, content in enumerate(contents) if _may_be_dated(content)])


def _nothing_is_dated(contents: Sequence[bytes]) -> bool:
    """Return whether a few bytes show this for all contents at once, in a fraction of the time of a look at each."""
    heads = {content[:4] for content in contents}
    if heads != {_PROPERTIES}:
        return all(len(head) == 4 and head[:2] == b"\x00\x53" and head[2] in _BODIES for head in heads)
    try:
        counts = {content[5] for content in contents}
        if max(counts) < _PLACE:
            return True
        # As in `_may_be_dated`; the list of fields ends 5 bytes behind its length, which is the fifth byte.
        return (
            counts == {_PLACE + 1}
            and {content[content[4] - 5 : content[4] - 3] for content in contents} == {_NULL_AND_TIME}
            and _TIMESTAMP not in {content[content[4] - 13] for content in contents}
            and min([content[4] for content in contents]) > 2 * _STAMP
        )
    except IndexError:
        return False


def _may_be_dated(content: bytes) -> bool:
    """Return False if a few bytes show that there is no absolute expiry time."""
    at = 0
    try:
        if content.startswith(_ANNOTATIONS):
            at = 5 + content[4]
        if content.startswith(_PROPERTIES, at):
            count = content[at + 5]
            if count < _PLACE:
                return False
            end = at + 5 + content[at + 4]
            if content[at + 4] <= 2 * _STAMP:
                return True
            # Most clients set the next field, the creation time, and none behind it.
            return not (
                count == _PLACE + 1
                and content[end - _STAMP] == _TIMESTAMP
                and content[end - _STAMP - 1] == _NULL
                and content[end - 2 * _STAMP] != _TIMESTAMP
            )
        return not (content[at : at + 2] == b"\x00\x53" and content[at + 2] in _BODIES)
    except IndexError:
        return True


def expiring(envelope: Envelope, content: bytes, now: int) -> Envelope:
    """Return an envelope by which the message expires in time. `now` is in milliseconds since the epoch."""
    try:
        time = properties(content).absolute_expiry_time
    except CodecError:
        return envelope
    ttl = _LONGEST if time is None else max(time - now, 0)
    if ttl >= _LONGEST or (envelope.ttl is not None and envelope.ttl <= ttl):
        return envelope
    return Envelope(
        envelope.exchange,
        envelope.routing_key,
        envelope.header,
        protocol=envelope.protocol,
        durable=envelope.durable,
        priority=envelope.priority,
        ttl=ttl,
        extra_keys=envelope.extra_keys,
    )
