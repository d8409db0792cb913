"""Packed content: property list and body of one message together, as they appear in its frames.

Messages whose property lists differ are stored in this form, so that they share an envelope and form runs. The form is
the content header frame, from its size field on, followed by one body frame, as a publisher sends them on channel 1. A
consumer on channel 1 therefore gets these octets unchanged. Messages without a body never have this form.

    octets   0–3    size of the header frame's payload
             4–15   class, weight, body size
             16–    property flags and list, then frame end
             then   type and channel of the body frame, its size, the body, frame end
"""

from __future__ import annotations

import struct
from typing import Final

PACKED: Final = 92
"""The protocol number of envelopes whose messages have packed content."""
CHANNEL: Final = 1
"""The channel number in packed content."""

_CHANNEL: Final = CHANNEL.to_bytes(2, "big")
_SIZE: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">IHHQ")  # payload size, class, weight, body size
_BODY: Final = struct.Struct(">BBHI")  # frame end, type, channel, size
_FIXED: Final = 16  # octets before the property flags
_BETWEEN: Final = 8  # octets between property list and body
_END: Final = b"\xce"


def pack(props: bytes, body: bytes) -> bytes:
    """Return the packed content of a message. `body` must not be empty."""
    head = _HEAD.pack(12 + len(props), 60, 0, len(body))
    return b"".join((head, props, _BODY.pack(0xCE, 3, CHANNEL, len(body)), body, _END))


def unpack(content: bytes) -> tuple[bytes, bytes]:
    """(properties, body) of packed content."""
    end = 4 + int(_SIZE.unpack_from(content)[0])
    return content[_FIXED:end], content[end + _BETWEEN : -1]


def properties(content: bytes) -> bytes:
    """Return the property flags and list of packed content."""
    return content[_FIXED : 4 + int(_SIZE.unpack_from(content)[0])]


def readdressed(content: bytes, channel: bytes) -> bytes:
    """Packed content with another channel number (two octets) in its body frame."""
    at = 6 + int(_SIZE.unpack_from(content)[0])
    return content[:at] + channel + content[at + 2 :]


def with_reply_address(content: bytes, at: int, address: bytes) -> bytes:
    """Packed content, from any channel, with the short string `address` in place of the one at `at`, its reply-to."""
    size = int(_SIZE.unpack_from(content)[0])
    behind, channel = at + 1 + content[at], size + 6
    return b"".join(
        (
            _SIZE.pack(size + len(address) - behind + at),
            content[4:at],
            address,
            content[behind:channel],
            _CHANNEL,
            content[channel + 2 :],
        )
    )
