"""From the bytes of a publish to an envelope: decoded once, then found by its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.message import Envelope
from escrowmq.core.queue import Queue
from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.properties import PERSISTENT, Properties, Scan, scan, without_headers
from escrowmq.wire.amqp091.spec import BasicPublish

PROTOCOL: Final = 91
"""How envelopes that came over AMQP 0-9-1 are marked."""
REPLY_TO: Final = "amq.rabbitmq.reply-to"

_CACHE_LIMIT: Final = 512
_LONGEST_TTL: Final = 0xFFFFFFFF


@dataclass(slots=True, eq=False)
class Form:
    """One way of publishing on one channel: all that repeats from message to message.

    `queues` is right while `version` is the topology's. `allowed` is the version of the access rules it was checked by.
    """

    channel: int
    envelope: Envelope
    mandatory: bool
    found: Scan
    queues: tuple[Queue, ...] = ()
    version: int = -1
    allowed: int = -1


class Forms:
    """The forms of a connection's publishes, by the bytes of method and properties."""

    __slots__ = ("_forms",)

    def __init__(self) -> None:
        self._forms: dict[tuple[int, bytes, bytes], Form] = {}

    def find(self, channel: int, method: bytes, props: bytes) -> Form:
        """The form of a publish with this method payload and these properties.

        Raises SyntaxFault if they are malformed, BrokerError (PRECONDITION_FAILED) if they make no sense.
        """
        key = (channel, method, props)
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) >= _CACHE_LIMIT:
                self._forms.clear()
            form = self._forms[key] = make_form(channel, method, props)
        return form


def make_form(channel: int, method: bytes, props: bytes) -> Form:
    """Errors as of `Forms.find`."""
    publish = BasicPublish.decode(method)
    if publish.immediate:
        raise SyntaxFault(codes.NOT_IMPLEMENTED, "immediate=true")
    found = scan(props)
    keys = _sender_keys(found, "CC") + _sender_keys(found, "BCC")
    if found.has_bcc:
        props = without_headers(props, found, ("BCC",))
    envelope = Envelope(
        publish.exchange,
        publish.routing_key,
        props,
        protocol=PROTOCOL,
        durable=found.delivery_mode == PERSISTENT,
        priority=found.priority or 0,
        ttl=_time_to_live(found.expiration),
        extra_keys=keys,
    )
    return Form(channel, envelope, publish.mandatory, found)


def _sender_keys(found: Scan, name: str) -> tuple[str, ...]:
    """Further routing keys in the header `name` (sender-selected distribution)."""
    if found.headers is None or name not in found.headers:
        return ()
    keys = found.headers[name]
    if not isinstance(keys, list):
        raise BrokerError(
            Condition.PRECONDITION_FAILED, f"unexpected type of header '{name}': an array of strings is needed"
        )
    for key in keys:
        if not isinstance(key, str):
            raise BrokerError(Condition.PRECONDITION_FAILED, f"unexpected item in header '{name}': strings are needed")
    return tuple(str(key) for key in keys)


def _time_to_live(expiration: str | None) -> int | None:
    if expiration is None:
        return None
    if not (expiration.isascii() and expiration.isdigit()) or int(expiration[:20]) > _LONGEST_TTL:
        raise BrokerError(
            Condition.PRECONDITION_FAILED,
            f"invalid expiration '{expiration[:40]}': digits are needed, milliseconds from 0 to {_LONGEST_TTL}",
        )
    return int(expiration)


def with_reply_to(props: bytes, reply_to: str) -> bytes:
    """`props` with another reply-to."""
    properties = Properties.decode(props)
    properties.reply_to = reply_to
    return properties.encode()
