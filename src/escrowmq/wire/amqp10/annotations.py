"""Message annotations that are added to a message without decoding the publisher's, or the bare message."""

from __future__ import annotations

from collections.abc import Mapping

from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.decoding import decode, items_of, skip
from escrowmq.wire.amqp10.codec.encoding import compound
from escrowmq.wire.amqp10.codec.errors import CodecError


def annotated(content: bytes, added: Mapping[bytes, bytes]) -> bytes:
    """Return `content` with these message annotations (encoded) instead of the publisher's of the same names.

    All that follows the annotations is unchanged. If the publisher's annotations are malformed, nothing is changed.
    """
    if not added:
        return content
    count, before = 2 * len(added), b""
    try:
        start, at = sections.annotations_at(content)
        if at:
            number, first, stop = items_of(content, start, at)
            before = content[first:stop]
            if any(name in before for name in added):
                number, before = _without(content, first, stop, added)
            count += number
    except CodecError:
        return content
    items = before + b"".join([name + value for name, value in added.items()])
    return b"\x00\x53\x72" + compound(0xC1, count, items) + content[at:]


def _without(content: bytes, at: int, end: int, added: Mapping[bytes, bytes]) -> tuple[int, bytes]:
    """Number and octets of the entries between `at` and `end` whose names are not in `added`."""
    names = {decode(name)[0] for name in added}
    kept = []
    while at < end:
        name, value_at = decode(content, at, end)
        stop = skip(content, value_at, end)
        if name not in names:
            kept.append(content[at:stop])
        at = stop
    return 2 * len(kept), b"".join(kept)
