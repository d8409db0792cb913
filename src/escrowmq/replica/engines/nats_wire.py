"""The protocol of NATS, as far as appends need it: what is written, and a parser for what is read.

Source: https://docs.nats.io/reference/reference-protocols/nats-protocol.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"
MOST_LINE: Final = 1 << 20
"""The bytes of the longest line that a server may write. INFO of a large cluster takes some kilobytes."""
MOST_MESSAGE: Final = 1 << 26
"""The bytes of the largest message that NATS can be set to accept."""
_USUAL_PAYLOAD: Final = 1 << 20
"""The largest message that a server accepts if nobody has set another limit."""
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):[0-9]{1,5}")
_END: Final = b"\r\n"
_HEADER_VERSION: Final = b"NATS/1.0"


class WireError(Exception):
    """The bytes do not follow the protocol."""


class NatsMessage(NamedTuple):
    """A message to a subject that the connection has subscribed to."""

    subject: str
    status: str
    """Of its headers, such as 503, or nothing."""
    data: bytes


class NatsLine(NamedTuple):
    """What a server says about the connection: INFO, PING, PONG, +OK or -ERR, and the text behind that."""

    verb: str
    text: str


class ServerInfo(NamedTuple):
    """What a server tells about itself."""

    max_payload: int
    """The bytes of the largest message that it accepts."""
    tls_required: bool
    nonce: str
    """To be signed by a client that has a key, or nothing."""
    hosts: tuple[str, ...]
    """Where servers of its cluster are, with their ports."""


def server_info(text: str) -> ServerInfo:
    """Read the text behind INFO. Raises WireError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise WireError(f"INFO of the server is no JSON: {text[:40]!r}") from None
    if not isinstance(found, dict):
        raise WireError("INFO of the server is not an object")
    max_payload, nonce = found.get("max_payload", _USUAL_PAYLOAD), found.get("nonce", "")
    if not isinstance(max_payload, int) or not isinstance(nonce, str):
        raise WireError(f"INFO of the server has unknown types: {text[:40]!r}")
    urls = found.get("connect_urls")
    hosts = [each for each in urls if isinstance(each, str) and _HOST.fullmatch(each)] if isinstance(urls, list) else []
    return ServerInfo(max_payload, bool(found.get("tls_required")), nonce, tuple(hosts))


def connect(options: dict[str, Any]) -> bytes:
    """Return the line that begins a connection."""
    return b"CONNECT %s\r\n" % json.dumps(options).encode()


def subscribe(subject: str) -> bytes:
    """Return the only subscription of a connection."""
    return b"SUB %s 1\r\n" % subject.encode()


def publish(subject: str, entries: Iterable[tuple[str, bytes]]) -> bytes:
    """Return messages to a subject, each with the subject for its answer."""
    subject_bytes = subject.encode()
    parts: list[bytes] = []
    for reply, entry in entries:
        parts += (b"PUB %s %s %d\r\n" % (subject_bytes, reply.encode(), len(entry)), entry, _END)
    return b"".join(parts)


class NatsParser:
    """Finds messages and lines in what a server writes, in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[NatsMessage | NatsLine]:
        """Return what is complete now. Raises WireError, and must not be used any more then."""
        self._buffer += data
        found = []
        while (each := self._next()) is not None:
            found.append(each)
        return found

    def _next(self) -> NatsMessage | NatsLine | None:
        buffer = self._buffer
        end = buffer.find(_END)
        if end < 0 or end > MOST_LINE:
            if len(buffer) > MOST_LINE:
                raise WireError(f"a line of the server has more than {MOST_LINE} bytes")
            return None
        line = bytes(buffer[:end])
        verb, _, text = line.partition(b" ")
        name = verb.upper()
        if name in (b"MSG", b"HMSG"):
            return self._message(end + len(_END), text.split(), with_headers=name == b"HMSG")
        if name not in (b"INFO", b"PING", b"PONG", b"+OK", b"-ERR"):
            raise WireError(f"the server wrote {line[:40]!r}")
        del buffer[: end + len(_END)]
        return NatsLine(name.decode(), text.strip().decode(errors="replace"))

    def _message(self, begin: int, words: list[bytes], *, with_headers: bool) -> NatsMessage | None:
        """Return the message whose content begins there in the buffer, if that is complete.

        `words` are its subject, the number of the subscription, perhaps a subject for an answer, and its sizes.
        """
        sizes = words[-2:] if with_headers else [b"0", *words[-1:]]
        if len(words) - with_headers not in (3, 4) or not all(each.isdigit() and len(each) < 10 for each in sizes):
            raise WireError(f"a message of the server begins with {b' '.join(words)[:80]!r}")
        split, size = map(int, sizes)
        if split > size or size > MOST_MESSAGE:
            raise WireError(f"a message of the server has {size} bytes, {split} of them headers")
        end = begin + size
        if len(self._buffer) < end + len(_END):
            return None
        if self._buffer[end : end + len(_END)] != _END:
            raise WireError(f"a message of the server is not followed by the end of a line after {size} bytes")
        content = bytes(self._buffer[begin:end])
        del self._buffer[: end + len(_END)]
        return NatsMessage(words[0].decode(errors="replace"), _status(content[:split]), content[split:])


def _status(headers: bytes) -> str:
    """Return the status in the first line of headers, or nothing. Raises WireError."""
    if not headers:
        return ""
    first = headers.partition(_END)[0]
    if not first.startswith(_HEADER_VERSION):
        raise WireError(f"headers of the server begin with {first[:40]!r}")
    return first[len(_HEADER_VERSION) :].strip().partition(b" ")[0].decode(errors="replace")
