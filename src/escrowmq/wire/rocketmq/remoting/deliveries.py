"""The messages in the answer to a pull: `messages.encode_stored` for many entries of one stream at a time.

Messages that came over a protocol of RocketMQ, from and to addresses of IPv4, are written in one step each.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from escrowmq.wire.rocketmq import ids
from escrowmq.wire.rocketmq.content import BORN_HOST_V6, PROTOCOL, STORE_HOST_V6
from escrowmq.wire.rocketmq.remoting.messages import MAGIC, SHORT_TOPIC, StoredAt, content_for, encode_stored

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry

_CONTENT: Final = struct.Struct(">iiqiiBHI")  # see content.py
_STORED: Final = struct.Struct(">iiIiiqqiq4siq4siiqi")  # see messages.py: everything before the body
_NOWHERE: Final = bytes(4)
_IPV4: Final = 4
_FLAGS: Final = ~(BORN_HOST_V6 | STORE_HOST_V6)


def encode_entries(entries: Sequence[Entry], topic: str, queue: int, stream: int, address: tuple[bytes, int]) -> bytes:
    """Return entries of queue number `queue`, whose stream has the number `stream`. `address` is that of the broker."""
    host, port = address
    name = topic.encode()
    is_short = len(name) <= SHORT_TOPIC and len(host) == _IPV4
    named = bytes((len(name),)) + name if is_short else b""
    last = entries[-1].position
    place = ids.place_offset(ids.StreamPlace(stream, last))
    unpack, pack = _CONTENT.unpack_from, _STORED.pack
    found: list[bytes] = []
    for entry in entries:
        content, run, position = entry.content, entry.run, entry.position
        offset = place and place - last + position
        if not is_short or run.envelope.protocol != PROTOCOL or content[24] > _IPV4:
            at = StoredAt(topic, queue, position - 1, offset, run.time, host, port)
            found.append(encode_stored(content_for(run.envelope, content), at))
            continue
        flag, system_flag, born_ms, _, failures, length, born_port, size = unpack(content)
        start = _CONTENT.size + length
        end = start + size
        body = content[end:]
        head = pack(
            _STORED.size + len(body) + len(named) + 2 + size,
            MAGIC,
            zlib.crc32(body) & 0x7FFFFFFF,
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
        found += (head, body, named, size.to_bytes(2, "big"), content[start:end])
    return b"".join(found)
