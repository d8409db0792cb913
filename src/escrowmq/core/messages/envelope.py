"""Envelopes: the facts about a message that the core knows and that many messages share."""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

_FIXED: Final = struct.Struct("<BBBq")  # protocol, flags, priority, ttl in ms (-1: none)
_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_DEATH: Final = struct.Struct("<QQ")
_DURABLE: Final = 1
_DIED: Final = 2
_EXTRA_KEYS: Final = 4


class Death(NamedTuple):
    """One line of a message's dead-letter history: how often it left `queue` for `reason`, and how it had arrived
    there.
    """

    queue: str
    reason: str
    times: int
    time_ms: int
    exchange: str
    routing_keys: tuple[str, ...]
    ttl: int | None


class Envelope:
    """The facts that all messages of a run share; the contents are separate.

    `header` is the publisher's property list in the encoding of `protocol` (a number that the protocol registers). The
    core never looks into it. `view` is a cache of that protocol, and `foreign` one of another protocol that delivers
    the message.
    """

    __slots__ = (
        "_encoded",
        "_lasting",
        "_names",
        "deaths",
        "durable",
        "exchange",
        "extra_keys",
        "foreign",
        "header",
        "priority",
        "protocol",
        "routing_key",
        "ttl",
        "view",
    )

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        header: bytes = b"",
        *,
        protocol: int = 0,
        durable: bool = False,
        priority: int = 0,
        ttl: int | None = None,
        extra_keys: tuple[str, ...] = (),
        deaths: tuple[Death, ...] = (),
        names: bytes | None = None,
    ) -> None:
        """`names` is the result of `encode_names` for exchange and routing key, if the caller has it already."""
        self._names = names
        self.exchange = exchange
        self.routing_key = routing_key
        self.header = header
        self.protocol = protocol
        self.durable = durable
        self.priority = priority
        self.ttl = ttl
        self.extra_keys = extra_keys
        self.deaths = deaths
        self.view: Any = None
        self.foreign: Any = None
        self._encoded: bytes | None = None
        self._lasting: Envelope | None = None

    def lasting(self) -> Envelope:
        """Return the same envelope, but durable."""
        if self.durable:
            return self
        if self._lasting is None:
            self._lasting = Envelope(
                self.exchange,
                self.routing_key,
                self.header,
                protocol=self.protocol,
                durable=True,
                priority=self.priority,
                ttl=self.ttl,
                extra_keys=self.extra_keys,
                deaths=self.deaths,
            )
        return self._lasting

    def encode(self) -> bytes:
        """Return the envelope in the form that a block contains (docs/internals/records.md)."""
        if self._encoded is None:
            flags = (_DURABLE if self.durable else 0) | (_DIED if self.deaths else 0)
            flags |= _EXTRA_KEYS if self.extra_keys else 0
            ttl = -1 if self.ttl is None else self.ttl
            parts = [
                _FIXED.pack(self.protocol, flags, self.priority, ttl),
                self._names or encode_names(self.exchange, self.routing_key),
                _U32.pack(len(self.header)),
                self.header,
            ]
            if self.extra_keys:
                parts.append(_texts(self.extra_keys))
            if self.deaths:
                parts.append(_U16.pack(len(self.deaths)))
                parts.extend(_encode_death(death) for death in self.deaths)
            self._encoded = b"".join(parts)
        return self._encoded

    @classmethod
    def decode(cls, data: bytes) -> Envelope:
        """Return the envelope that `encode` wrote. `data` is not checked: the journal's checksum vouches for it."""
        protocol, flags, priority, ttl = _FIXED.unpack_from(data)
        exchange, at = _read_text(data, _FIXED.size)
        routing_key, at = _read_text(data, at)
        (length,) = _U32.unpack_from(data, at)
        at += 4
        header = data[at : at + length]
        at += length
        extra_keys: tuple[str, ...] = ()
        if flags & _EXTRA_KEYS:
            extra_keys, at = _read_texts(data, at)
        deaths: list[Death] = []
        if flags & _DIED:
            (count,) = _U16.unpack_from(data, at)
            at += 2
            for _ in range(count):
                death, at = _read_death(data, at)
                deaths.append(death)
        envelope = cls(
            exchange,
            routing_key,
            header,
            protocol=protocol,
            durable=bool(flags & _DURABLE),
            priority=priority,
            ttl=None if ttl < 0 else ttl,
            extra_keys=extra_keys,
            deaths=tuple(deaths),
        )
        envelope._encoded = data
        return envelope


def encode_names(exchange: str, routing_key: str) -> bytes:
    """Return exchange and routing key in the form that an encoded envelope contains."""
    return _text(exchange) + _text(routing_key)


def _text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return _U16.pack(len(data)) + data


def _texts(values: tuple[str, ...]) -> bytes:
    return _U16.pack(len(values)) + b"".join(map(_text, values))


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _U16.unpack_from(data, at)
    at += 2
    return data[at : at + length].decode("utf-8", "surrogatepass"), at + length


def _read_texts(data: bytes, at: int) -> tuple[tuple[str, ...], int]:
    (count,) = _U16.unpack_from(data, at)
    at += 2
    values = []
    for _ in range(count):
        value, at = _read_text(data, at)
        values.append(value)
    return tuple(values), at


def _encode_death(death: Death) -> bytes:
    ttl = -1 if death.ttl is None else death.ttl
    return b"".join(
        (
            _DEATH.pack(death.times, death.time_ms),
            struct.pack("<q", ttl),
            _text(death.queue),
            _text(death.reason),
            _text(death.exchange),
            _texts(death.routing_keys),
        )
    )


def _read_death(data: bytes, at: int) -> tuple[Death, int]:
    count, time_ms = _DEATH.unpack_from(data, at)
    at += _DEATH.size
    (ttl,) = struct.unpack_from("<q", data, at)
    at += 8
    queue, at = _read_text(data, at)
    reason, at = _read_text(data, at)
    exchange, at = _read_text(data, at)
    routing_keys, at = _read_texts(data, at)
    return Death(queue, reason, count, time_ms, exchange, routing_keys, None if ttl < 0 else ttl), at
