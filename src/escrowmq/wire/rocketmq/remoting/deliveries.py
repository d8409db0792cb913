"""The messages in the answer to a pull: `messages.encode_stored` for many entries of one stream at a time.

Messages that came over a protocol of RocketMQ, from and to addresses of IPv4, are written in one step each. Neighbours
mostly have equal sizes, addresses and flags. Two comparisons show that, and then most octets are copied from the last
message.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from escrowmq.wire.rocketmq import ids
from escrowmq.wire.rocketmq.content import BORN_HOST_V6, PROTOCOL, STORE_HOST_V6
from escrowmq.wire.rocketmq.remoting.messages import MAGIC, SHORT_TOPIC, StoredAt, content_for, encode_stored

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry

_CONTENT: Final = struct.Struct(">iiqiiBHI")  # see content.py
_STORED: Final = struct.Struct(">iiIiiqqiq4siq4siiqi")  # see messages.py: everything before the body
_PLACE: Final = struct.Struct(">qq")  # the offset in the queue and the place in such a head
_CHECKSUM: Final = 0x7FFFFFFF
_NOWHERE: Final = bytes(4)
_IPV4: Final = 4
_FLAGS: Final = ~(BORN_HOST_V6 | STORE_HOST_V6)
_LAYOUTS: Final = 1024


@lru_cache(_LAYOUTS)
def _layout(host: int, topic: int, text: int, body: int) -> tuple[struct.Struct, struct.Struct]:
    """Return how to take a content apart, and how to write the message. The lengths are those of the host of birth, of
    the topic with what is between body and properties, of the properties, and of the body. A content is divided into
    flags, time of birth, all else before the properties, the properties, and the body.
    """
    return (
        struct.Struct(f">8s8s{_CONTENT.size - 16 + host}s{text}s{body}s"),
        struct.Struct(f">8sI8sqq4s8s8sq24s{body}s{topic}s{text}s"),
    )


def encode_entries(entries: Sequence[Entry], topic: str, queue: int, stream: int, address: tuple[bytes, int]) -> bytes:
    """Return entries of queue number `queue`, whose stream has the number `stream`. `address` is that of the broker."""
    host, port = address
    name = topic.encode()
    is_short = len(name) <= SHORT_TOPIC and len(host) == _IPV4
    named = bytes((len(name),)) + name if is_short else b""
    last = entries[-1].position
    place = ids.place_offset(ids.StreamPlace(stream, last))
    found: list[bytes] = []
    at, count = 0, len(entries)
    while at < count:
        entry = entries[at]
        at += 1
        content, run, position = entry.content, entry.run, entry.position
        offset = place and place - last + position
        if not is_short or run.envelope.protocol != PROTOCOL or content[24] > _IPV4:
            stored = StoredAt(topic, queue, position - 1, offset, run.time, host, port)
            found.append(encode_stored(content_for(run.envelope, content), stored))
            continue
        flag, system_flag, born_ms, _, failures, length, born_port, size = _CONTENT.unpack_from(content)
        start = _CONTENT.size + length
        end = start + size
        body = content[end:]
        head = _STORED.pack(
            _STORED.size + len(body) + len(named) + 2 + size,
            MAGIC,
            zlib.crc32(body) & _CHECKSUM,
            queue,
            flag,
            position - 1,
            offset,
            system_flag & _FLAGS,
            born_ms,
            content[_CONTENT.size : start] or _NOWHERE,
            born_port,
            run.time,
            host,
            port,
            failures,
            0,
            len(body),
        )
        ending = named + size.to_bytes(2, "big")
        found += (head, body, ending, content[start:end])
        if at < count and len(entries[at].content) == len(content):
            layout = _layout(length, len(ending), size, len(body))
            at += _add_alike(found, entries[at:], content, layout, head, ending)
    return b"".join(found)


def _add_alike(
    found: list[bytes],
    entries: Sequence[Entry],
    content: bytes,
    layout: tuple[struct.Struct, struct.Struct],
    head: bytes,
    ending: bytes,
) -> int:
    """Write the first of `entries` to `found`, as many as are like the message before them in all but time of birth,
    properties and body. Return their number. `content`, `head` and `ending` are of the message before.
    """
    parts, message = layout
    take, write, crc32, size = parts.unpack, message.pack, zlib.crc32, len(content)
    flags, _, other, _, _ = take(content)
    sizes, queue_and_flag, states, born, broker = head[:8], head[12:20], head[36:40], head[48:56], head[64:]
    before, offset = _PLACE.unpack_from(head, 20)
    gap = offset and offset - before
    run, time = None, 0
    for number, entry in enumerate(entries):
        if entry.run is not run:
            run = entry.run
            if run.envelope.protocol != PROTOCOL:
                return number
            time = run.time
        if len(entry.content) != size:
            return number
        its_flags, born_ms, its_other, text, body = take(entry.content)
        if its_flags != flags or its_other != other:
            return number
        at = entry.position - 1
        checksum = crc32(body) & _CHECKSUM
        place = gap and gap + at
        found.append(
            write(sizes, checksum, queue_and_flag, at, place, states, born_ms, born, time, broker, body, ending, text)
        )
    return len(entries)
