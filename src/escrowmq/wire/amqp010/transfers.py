"""The command message.transfer from a client: its header is read, and the message added to a run.

Most transfers have the delivery properties of an earlier one, apart from the times, so these octets are looked up. The
message properties stay as they are, and are only checked.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp010.codec.errors import CodecError
from escrowmq.wire.amqp010.codec.spec import (
    AcceptMode,
    DeliveryMode,
    DeliveryProperties,
    FragmentProperties,
    MessageProperties,
    MessageTransfer,
)
from escrowmq.wire.amqp010.content import (
    DEFAULT_PRIORITY,
    EXPIRATION,
    NO_PROPERTIES,
    REDELIVERED,
    TIMESTAMP,
    head_of,
)
from escrowmq.wire.amqp010.ports import LATER
from escrowmq.wire.amqp010.publishing import (
    LONGEST_TTL,
    IncomingTransfers,
    TransferAddress,
    Wishes,
)
from escrowmq.wire.amqp010.runs import TransferLook, TransferRuns
from escrowmq.wire.amqp010.shape import PropertiesShapes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from escrowmq.wire.amqp010.ports import Content, Later, SessionPort
    from escrowmq.wire.amqp010.publishing import TransferForm

_STRUCT: Final = struct.Struct(">IH")
_PLAIN: Final = DeliveryProperties()
_SECONDS: Final = 10**11  # times below are in seconds, as the specification says; Qpid JMS sends milliseconds
_KNOWN: Final = 256
LONGEST_KNOWN: Final = 1024
"""Octets of delivery properties above which they are not remembered. Those of the usual clients are much shorter."""
_KNOWN_BYTES: Final = 1500  # the estimated memory of what is remembered with them
_LEAST: Final = 8  # octets of a struct without fields
_MODES: Final = (None, AcceptMode.EXPLICIT, AcceptMode.NONE)


def _places() -> Iterator[tuple[int, int, int]]:
    """By the first octet of the flags of delivery properties: where the times are, how many octets they have, and the
    flags of stored content.
    """
    for flags in range(256):
        redelivered, priority, mode, ttl, timestamp, expiration = ((flags >> bit) & 1 for bit in range(2, 8))
        stored = REDELIVERED * redelivered | TIMESTAMP * timestamp | EXPIRATION * expiration
        yield 8 + priority + mode + 8 * ttl, 8 * (timestamp + expiration), stored


_PLACES: Final = tuple(_places())
_SELF_CONTAINED: Final = frozenset(flags for flags in range(256) if flags & 0x20 or not flags & 0x80)
"""Flags of delivery properties whose time to live does not follow from the expiration."""


class TransferHeader(NamedTuple):
    """The header segment of a transfer. `properties` are the encoded message properties; empty if there are none. It
    `begins` with the delivery properties, or they are elsewhere, or absent.
    """

    delivery: DeliveryProperties
    properties: bytes
    begins: bool


class TransferReader(IncomingTransfers):
    """Reads the transfers of one session, and publishes them."""

    def __init__(self, session: SessionPort) -> None:
        super().__init__(session)
        self._session = session
        self._shapes = PropertiesShapes()
        self.runs = session.runs = TransferRuns(session, self, self._shapes)
        self._known: dict[tuple[str | None, int | None, bytes], TransferLook] = {}
        self._known_bytes = 0  # about
        self._wishes_by_value: dict[Wishes, Wishes] = {}  # one object for equal ones, by which runs are found

    def attached(self) -> None:
        """Forget how transfers looked on the other channel."""
        super().attached()
        self._known.clear()
        self._known_bytes = 0
        self.runs = self._session.runs = TransferRuns(self._session, self, self._shapes)

    def read(self, command: MessageTransfer, content: Content | None) -> None:
        """Read one transfer. Raises BrokerError for a fault that ends the session."""
        header = content.header if content is not None else b""
        body = content.body if content is not None else b""
        if len(header) >= _LEAST:
            size, code = _STRUCT.unpack_from(header)
            end, flags = 4 + size, header[6]
            if code == DeliveryProperties.CODE and size >= 4 and flags in _SELF_CONTAINED:
                at, length, stored = _PLACES[flags]
                key = (command.destination, command.accept_mode, header[:at] + header[at + length : end])
                known = self._known.get(key)
                rest = header[end:]
                if known is not None and (not rest or _is_only(rest)):
                    self._check(rest)
                    head = bytes((stored,)) + header[at : at + length]
                    self.add(
                        known.form, known.wishes, self._session.current, b"".join((head, rest or NO_PROPERTIES, body))
                    )
                    self.runs.look_for(known)
                    return
        self.runs.forget()
        self._read_decoded(command, header, body)

    def _check(self, properties: bytes) -> None:
        """Check the encoded message properties, if there are any."""
        if properties:
            try:
                user_id = self._shapes.user_of(properties)
            except CodecError as error:
                raise _malformed(error) from None
            if user_id:
                self._check_user(user_id)

    def _check_user(self, user_id: bytes) -> None:
        """Raises ACCESS_REFUSED if a message names another user than the one that publishes it."""
        user = self._session.user
        if user_id != user.encode():
            claimed = user_id[:40].decode(errors="replace")
            raise BrokerError(
                Condition.ACCESS_REFUSED, f"a message has the user-id '{claimed}', but the user is '{user}'"
            )

    def _read_decoded(self, command: MessageTransfer, payload: bytes, body: bytes) -> None:
        """Read a transfer with unknown delivery properties, and remember them."""
        if command.accept_mode not in _MODES:
            raise BrokerError(Condition.INVALID_ARGUMENT, f"there is no accept-mode {command.accept_mode}")
        header = read_header(payload)
        self._check(header.properties)
        delivery = header.delivery
        form = self.form(
            TransferAddress(
                command.destination or "",
                delivery.routing_key or "",
                delivery.delivery_mode == DeliveryMode.PERSISTENT,
                DEFAULT_PRIORITY if delivery.priority is None else delivery.priority,
                _time_to_live(delivery, self._session.broker.engine.now),
            )
        )
        # Clients of qpid-python that leave out the mode know neither message.accept nor message.reject.
        wishes = Wishes(command.accept_mode == AcceptMode.EXPLICIT, delivery.discard_unroutable, delivery.immediate)
        wishes = self._wishes_by_value.setdefault(wishes, wishes)
        if header.begins and payload[6] in _SELF_CONTAINED:
            self._remember(command, payload, form, wishes)
        head = head_of(delivery.timestamp, delivery.expiration, redelivered=delivery.redelivered)
        stored = b"".join((head, header.properties or NO_PROPERTIES, body))
        self.add(form, wishes, self._session.current, stored)

    def _remember(self, command: MessageTransfer, payload: bytes, form: TransferForm, wishes: Wishes) -> None:
        """Remember the delivery properties with which a header begins, if there is room for them."""
        at, length, begin = _PLACES[payload[6]]
        end = 4 + int.from_bytes(payload[:4], "big")
        if end > LONGEST_KNOWN:
            return
        if len(self._known) >= _KNOWN or not self._session.has_room:
            self._known.clear()
            self._known_bytes = 0
        before, after = payload[:at], payload[at + length : end]
        look = TransferLook(form, wishes, begin, before, length, after)
        self._known[command.destination, command.accept_mode, before + after] = look
        self._known_bytes += _KNOWN_BYTES + 3 * end
        self.count_remembered()

    @property
    def counted_bytes(self) -> int:
        """The memory of what is remembered."""
        return super().counted_bytes + self._known_bytes


def message_transfer(session: SessionPort, command: MessageTransfer, content: Content | None) -> Later:
    """Publish a message, together with those that follow it. Raises BrokerError for a fault that ends the session."""
    session.part(TransferReader).read(command, content)
    return LATER


def _is_only(octets: bytes) -> bool:
    """Whether `octets` are message properties, and nothing else."""
    if len(octets) < _LEAST:
        return False
    size, code = _STRUCT.unpack_from(octets)
    return bool(code == MessageProperties.CODE and size + 4 == len(octets))


def read_header(payload: bytes) -> TransferHeader:
    """Read a header segment. Structs that the specification does not have there are left out. The message properties
    are not checked.

    Raises INVALID_ARGUMENT if it is malformed, NOT_IMPLEMENTED for a fragment of a message.
    """
    delivery, properties, begins = _PLAIN, b"", False
    at, seen = 0, set[int]()
    try:
        while at < len(payload):
            if len(payload) - at < _STRUCT.size:
                raise CodecError("it ends within a struct")
            size, code = _STRUCT.unpack_from(payload, at)
            end = at + 4 + size
            if size < 2 or end > len(payload) or code in seen:
                raise CodecError("a struct reaches beyond the end, or is there twice")
            seen.add(code)
            if code == DeliveryProperties.CODE:
                delivery, begins = DeliveryProperties.decode(payload, at + 6, end), at == 0
            elif code == MessageProperties.CODE:
                properties = payload[at:end]
            elif code == FragmentProperties.CODE:
                fragment = FragmentProperties.decode(payload, at + 6, end)
                if not (fragment.first and fragment.last):
                    raise BrokerError(Condition.NOT_IMPLEMENTED, "fragments of messages are not implemented")
            at = end
    except CodecError as error:
        raise _malformed(error) from None
    return TransferHeader(delivery, properties, begins)


def _malformed(error: CodecError) -> BrokerError:
    return BrokerError(Condition.INVALID_ARGUMENT, f"the header of a message is malformed: {error}")


def _time_to_live(delivery: DeliveryProperties, now: int) -> int | None:
    """The time to live in milliseconds: as it was sent, or what is left until the expiration."""
    if delivery.ttl is not None:
        return min(delivery.ttl, LONGEST_TTL)
    if delivery.expiration is None:
        return None
    expires = delivery.expiration * 1000 if delivery.expiration < _SECONDS else delivery.expiration
    return min(max(expires - now, 0), LONGEST_TTL)
