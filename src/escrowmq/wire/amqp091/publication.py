"""Decoding of publishes to envelopes. Equal bytes are decoded once and then found in a cache."""

from __future__ import annotations

import struct
from typing import Final

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.envelope import Envelope, encode_names
from escrowmq.core.queues.queue import Queue
from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.keyed import KEYED
from escrowmq.wire.amqp091.packed import PACKED
from escrowmq.wire.amqp091.properties import PERSISTENT, Properties, Scan, scan, without_headers
from escrowmq.wire.amqp091.shape import Values
from escrowmq.wire.amqp091.spec import BasicPublish

PROTOCOL: Final = 91
"""The protocol number of envelopes that arrived over AMQP 0-9-1."""

_CACHE_LIMIT: Final = 512  # of forms, in addition to as many as there are addresses
_ADDRESS_BYTES: Final = 12 * 1024 * 1024
"""The memory that a connection's distinct publish methods (exchange and routing key) may take in its cache."""
_ADDRESS_COST: Final = 900  # of one method and a form, in addition to its names, which are stored six times
_PACKED_FORMS: Final = 12_288
_KEYED_FORMS: Final = 64
_CACHE_BYTES: Final = 256 * 1024
"""The bytes of properties that a connection caches. Headers may be long and all different, and connections many."""
_LONGEST_KEY: Final = 255
_EXCHANGE_AT: Final = 13  # in a method frame: its head, class and method, and a short
_START: Final = struct.Struct(">BHI")
_HEADER: Final = struct.Struct(">BBH")
_LONGEST_TTL: Final = 315_360_000_000  # ten years, as for all other times to live


class AddressGroup:
    """The addresses of one channel that differ in their routing keys only, with the forms of keyed publishes to them.

    `key_at` is the position of the routing key's length in a method frame.
    """

    __slots__ = ("channel", "exchange", "forms", "key_at", "mandatory")

    def __init__(self, channel: int, exchange: str, *, mandatory: bool) -> None:
        self.channel = channel
        self.exchange = exchange
        self.mandatory = mandatory
        self.key_at = _EXCHANGE_AT + 1 + len(exchange.encode())
        self.forms: dict[Values, Form] = {}


class Address:
    """The destination of a publish, from its method: decoded once for each distinct method of a channel.

    `start` is the method's frame, followed by the type and the channel of the header frame. `queues` are the queues of
    a message that has no further routing keys and no headers that routing reads. They are valid while `version` equals
    the version of the topology and `allowed` that of the access rules. While they are valid, `keyed` tells whether
    messages to this address may be stored as keyed content.
    """

    __slots__ = (
        "allowed",
        "channel",
        "exchange",
        "group",
        "keyed",
        "mandatory",
        "method",
        "names",
        "queues",
        "routing_key",
        "start",
        "version",
    )

    def __init__(self, channel: int, method: bytes, groups: dict[tuple[int, str, bool], AddressGroup]) -> None:
        publish = BasicPublish.decode(method)
        if publish.immediate:
            raise SyntaxFault(codes.NOT_IMPLEMENTED, "immediate=true", BasicPublish.INDEX)
        self.exchange = publish.exchange
        self.routing_key = publish.routing_key
        self.mandatory = publish.mandatory
        self.names = encode_names(publish.exchange, publish.routing_key)
        self.method = method
        self.start = start_of(channel, method)
        self.queues: tuple[Queue, ...] = ()
        self.version = self.allowed = -1
        self.keyed = False
        self.channel = channel
        key = (channel, publish.exchange, publish.mandatory)
        group = groups.get(key)
        if group is None:
            group = groups[key] = AddressGroup(channel, publish.exchange, mandatory=publish.mandatory)
        self.group = group

    def lead_to(self, queues: tuple[Queue, ...], version: int, allowed: int) -> None:
        """Note the queues, as of these versions of the topology and of the access rules.

        A message for a queue that is limited in bytes is not stored as keyed content, because the limit counts only its
        body. Neither is one without a queue, which may have to be returned, or one for the default exchange, which
        leads each routing key to its own queue.
        """
        self.queues, self.version, self.allowed = queues, version, allowed
        limited = any(queue.options.max_length_bytes is not None for queue in queues)
        self.keyed = bool(self.exchange and queues and not limited)


class Form:
    """Everything that repeats from message to message in publishes of one kind on one channel.

    `queues` is valid while `version` equals the version of the topology and `allowed` that of the access rules. A form
    is `plain` if its properties affect neither routing nor permissions. Its messages are to be read `apart`, not
    packed, if routing reads their headers or a queue counts the bytes of their bodies. `direct` messages go to the
    address of a client that waits for replies, until the client closes it.
    """

    __slots__ = (
        "address",
        "allowed",
        "apart",
        "channel",
        "direct",
        "envelope",
        "found",
        "mandatory",
        "packs",
        "plain",
        "queues",
        "version",
    )

    def __init__(self, channel: int, address: Address, envelope: Envelope, found: Scan) -> None:
        self.channel = channel
        self.address = address
        self.envelope = envelope
        self.found = found
        self.mandatory = address.mandatory
        self.plain = found.user_id is None and not envelope.extra_keys
        self.packs = envelope.protocol != PROTOCOL
        self.apart = False
        self.direct = False
        self.queues: tuple[Queue, ...] = ()
        self.version = self.allowed = -1


class Forms:
    """The forms of a connection's publishes, by the bytes of method and properties.

    `by_frame` belongs to `Scattered`: some of the forms, by the bytes of their method frames.
    """

    __slots__ = ("_address_bytes", "_forms", "_groups", "_packed", "_size", "addresses", "by_frame")

    def __init__(self) -> None:
        self.addresses: dict[bytes, Address] = {}
        """The known addresses, by `Address.start`."""
        self._address_bytes = 0
        self._groups: dict[tuple[int, str, bool], AddressGroup] = {}
        self._packed: dict[tuple[Address, Values], Form] = {}
        self._forms: dict[tuple[int, bytes, bytes], Form] = {}
        self._size = 0
        self.by_frame: dict[bytes, Form] = {}

    def known(self, channel: int, method: bytes, props: bytes) -> Form | None:
        """Return the form of a publish, if it is in the cache."""
        return self._forms.get((channel, method, props))

    def packed(self, address: Address, values: Values) -> Form:
        """Return the form of publishes to `address` with these values whose content is packed.

        Raises BrokerError (PRECONDITION_FAILED) for an expiration beyond the limit.
        """
        form = self._packed.get((address, values))
        if form is None:
            envelope = Envelope(
                address.exchange,
                address.routing_key,
                protocol=PACKED,
                durable=values.durable,
                priority=values.priority,
                ttl=_time_to_live(values.expiration.decode()) if values.expiration else None,
                names=address.names,
            )
            if len(self._packed) >= _PACKED_FORMS:
                self._packed.clear()
            form = self._packed[address, values] = Form(address.channel, address, envelope, Scan())
        return form

    def keyed(self, address: Address, values: Values) -> Form:
        """Return the form of publishes with these values to the exchange of `address` whose content is keyed. Its
        queues are those of the messages that are being read. Raises the same error as `packed`.
        """
        group = address.group
        form = group.forms.get(values)
        if form is None:
            envelope = Envelope(
                group.exchange,
                "",
                protocol=KEYED,
                durable=values.durable,
                priority=values.priority,
                ttl=_time_to_live(values.expiration.decode()) if values.expiration else None,
            )
            if len(group.forms) >= _KEYED_FORMS:
                group.forms.clear()
            form = group.forms[values] = Form(group.channel, address, envelope, Scan())
        return form

    def find(self, channel: int, method: bytes, props: bytes) -> Form:
        """Return the form of a publish with this method payload and these properties.

        Raises SyntaxFault if they are malformed, BrokerError (PRECONDITION_FAILED) if their values are invalid.
        """
        key = (channel, method, props)
        form = self._forms.get(key)
        if form is None:
            form = make_form(channel, self.address(channel, method), props)
            self._size += len(props)
            if len(self._forms) >= _CACHE_LIMIT + len(self.addresses) or self._size > _CACHE_BYTES:
                self._forms.clear()
                self.by_frame.clear()
                self._size = len(props)
            self._forms[key] = form
        return form

    def address(self, channel: int, method: bytes) -> Address:
        """Return the address of a publish with this method payload. Raises SyntaxFault if it is malformed."""
        address = self.addresses.get(start_of(channel, method))
        if address is None:
            address = Address(channel, method, self._groups)
            cost = _ADDRESS_COST + 6 * len(method)
            self._address_bytes += cost
            if self._address_bytes > _ADDRESS_BYTES:
                self.addresses.clear()
                for forms in (self._packed, self._forms, self.by_frame, self._groups):  # which keep addresses, too
                    forms.clear()
                self._size = 0
                self._address_bytes = cost
            self.addresses[address.start] = address
        return address


def start_of(channel: int, method: bytes) -> bytes:
    """Return the frame of a publish method, followed by the type and the channel of the header frame."""
    return (
        _START.pack(codes.FRAME_METHOD, channel, len(method))
        + method
        + _HEADER.pack(codes.FRAME_END, codes.FRAME_HEADER, channel)
    )


def make_form(channel: int, address: Address, props: bytes) -> Form:
    """Decode a form. Raises the same errors as `Forms.find`."""
    envelope, found = envelope_of(address.exchange, address.routing_key, props, address.names)
    return Form(channel, address, envelope, found)


def envelope_of(exchange: str, routing_key: str, props: bytes, names: bytes | None = None) -> tuple[Envelope, Scan]:
    """Return the envelope of a publish with these properties, and what was found in them. Raises the same errors as
    `Forms.find`.
    """
    found = scan(props)
    keys: tuple[str, ...] = ()
    if found.headers is not None:
        keys = _sender_keys(found, "CC") + _sender_keys(found, "BCC")
        if found.has_bcc:
            props = without_headers(props, found, ("BCC",))
        found.headers = None  # decoded headers take much memory
    envelope = Envelope(
        exchange,
        routing_key,
        props,
        protocol=PROTOCOL,
        durable=found.delivery_mode == PERSISTENT,
        priority=found.priority or 0,
        ttl=None if found.expiration is None else _time_to_live(found.expiration),
        extra_keys=keys,
        names=names,
    )
    return envelope, found


def _sender_keys(found: Scan, name: str) -> tuple[str, ...]:
    """Return further routing keys from the header `name` (sender-selected distribution)."""
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
        if len(key.encode()) > _LONGEST_KEY:
            raise BrokerError(
                Condition.PRECONDITION_FAILED, f"routing key in header '{name}' of more than {_LONGEST_KEY} bytes"
            )
    return tuple(str(key) for key in keys)


def _time_to_live(expiration: str) -> int:
    if not (expiration.isascii() and expiration.isdigit()) or int(expiration[:20]) > _LONGEST_TTL:
        raise BrokerError(
            Condition.PRECONDITION_FAILED,
            f"invalid expiration '{expiration[:40]}': digits are needed, milliseconds from 0 to {_LONGEST_TTL}",
        )
    return int(expiration)


def with_reply_to(props: bytes, reply_to: str) -> bytes:
    """Return `props` with `reply_to` as the reply-to."""
    properties = Properties.decode(props)
    properties.reply_to = reply_to
    return properties.encode()
