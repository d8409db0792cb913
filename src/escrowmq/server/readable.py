"""Messages as operators read them, whatever protocol they arrived over."""

from __future__ import annotations

import base64
from typing import Any, Final

from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.wire.formats import FORMATS
from escrowmq.wire.neutral import Id
from escrowmq.wire.rocketmq.formats import KEYS

BEGINNING: Final = 1024
"""Octets of a body that are shown unless all are asked for."""
_BLANKS: Final = str.maketrans("", "", "\t\r\n")


def readable(envelope: Envelope, content: bytes, *, whole: bool) -> dict[str, Any]:
    """Return a message for JSON. `deaths` is its dead-letter history in this broker, the latest first. `body` is None
    if the body is not text, and `body_base64` then has its octets. Without `whole`, both have only the beginning of a
    body longer than `BEGINNING`.
    """
    message = FORMATS[envelope.protocol].neutral(envelope, content)
    keys = message.annotations.get(KEYS)
    body = message.body
    some = body if whole else body[:BEGINNING]
    text = _text(body, some)
    return {
        "message_id": _id(message.message_id),
        "correlation_id": _id(message.correlation_id),
        "content_type": message.content_type,
        "tag": message.subject,
        "keys": None if keys is None else str(keys),
        "message_group": message.group_id,
        "properties": {name: _plain(value) for name, value in message.properties.items()},
        "deaths": [_death(death) for death in envelope.deaths],
        "content_encoding": message.content_encoding,
        "bytes": len(body),
        "body": text,
        "body_base64": base64.b64encode(some).decode() if text is None else None,
        "body_is_whole": len(some) == len(body),
    }


def _death(death: Death) -> dict[str, Any]:
    return {
        "queue": death.queue,
        "reason": death.reason,
        "times": death.times,
        "time_ms": death.time_ms,
        "exchange": death.exchange,
        "routing_keys": list(death.routing_keys),
    }


def _text(body: bytes, some: bytes) -> str | None:
    """Return `some` octets, the beginning of `body`, as text; None if the body is not text."""
    try:
        whole = body.decode()
    except UnicodeDecodeError:
        return None
    if not whole.translate(_BLANKS).isprintable():
        return None
    return some.decode("utf-8", "ignore")  # the last character may have been cut


def _id(value: Id | None) -> str | None:
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)


def _plain(value: Any) -> Any:
    return value if value is None or type(value) in {bool, int, float, str} else str(value)
