"""The performatives of connections, sessions and links (part 2, section 2.7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from escrowmq.wire.amqp10.codec import hot
from escrowmq.wire.amqp10.codec.composite import (
    BOOLEAN,
    FIELDS,
    STRING,
    SYMBOLS,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    composite,
    encode_composite,
    resolve,
)
from escrowmq.wire.amqp10.codec.encoding import decode
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.link_performatives import Disposition, Flow, Transfer
from escrowmq.wire.amqp10.codec.sasl import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from escrowmq.wire.amqp10.codec.states import ERROR, UNSETTLED, DeliveryState, Error
from escrowmq.wire.amqp10.codec.termini import SOURCE, TARGET, Coordinator, Source, Target
from escrowmq.wire.amqp10.codec.types import Symbol, Value

__all__ = [
    "FIRST",
    "MIXED_MODE",
    "RECEIVER",
    "SECOND",
    "SENDER",
    "SETTLED_MODE",
    "UNSETTLED_MODE",
    "Attach",
    "Begin",
    "Close",
    "Detach",
    "Disposition",
    "End",
    "Error",
    "Flow",
    "Open",
    "Performative",
    "Transfer",
    "decode_performative",
    "encode_performative",
]

SENDER: Final = False
RECEIVER: Final = True
UNSETTLED_MODE: Final = 0
SETTLED_MODE: Final = 1
MIXED_MODE: Final = 2
FIRST: Final = 0
SECOND: Final = 1


@composite(0x10, "amqp:open:list", STRING, STRING, UINT, USHORT, UINT, SYMBOLS, SYMBOLS, SYMBOLS, SYMBOLS, FIELDS)
@dataclass(slots=True)
class Open:
    """Parameters of a connection. `max_frame_size` is in octets, `idle_time_out` in milliseconds."""

    container_id: str
    hostname: str | None = None
    max_frame_size: int = 2**32 - 1
    channel_max: int = 65535
    idle_time_out: int | None = None
    outgoing_locales: tuple[Symbol, ...] = ()
    incoming_locales: tuple[Symbol, ...] = ()
    offered_capabilities: tuple[Symbol, ...] = ()
    desired_capabilities: tuple[Symbol, ...] = ()
    properties: dict[Value, Value] | None = None


@composite(0x11, "amqp:begin:list", USHORT, UINT, UINT, UINT, UINT, SYMBOLS, SYMBOLS, FIELDS)
@dataclass(slots=True, kw_only=True)
class Begin:
    """The begin of a session on a channel. Windows are numbers of transfer frames."""

    remote_channel: int | None = None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int = 2**32 - 1
    offered_capabilities: tuple[Symbol, ...] = ()
    desired_capabilities: tuple[Symbol, ...] = ()
    properties: dict[Value, Value] | None = None


@composite(
    0x12,
    "amqp:attach:list",
    STRING,
    UINT,
    BOOLEAN,
    UBYTE,
    UBYTE,
    SOURCE,
    TARGET,
    UNSETTLED,
    BOOLEAN,
    UINT,
    ULONG,
    SYMBOLS,
    SYMBOLS,
    FIELDS,
)
@dataclass(slots=True)
class Attach:
    """The attachment of a link to a session. `role` is that of the peer that sends the frame."""

    name: str
    handle: int
    role: bool
    snd_settle_mode: int = MIXED_MODE
    rcv_settle_mode: int = FIRST
    source: Source | None = None
    target: Target | Coordinator | None = None
    unsettled: dict[bytes, DeliveryState | None] | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: tuple[Symbol, ...] = ()
    desired_capabilities: tuple[Symbol, ...] = ()
    properties: dict[Value, Value] | None = None


@composite(0x16, "amqp:detach:list", UINT, BOOLEAN, ERROR)
@dataclass(slots=True)
class Detach:
    """The detachment of a link from its session; with `closed`, its termini are destroyed."""

    handle: int
    closed: bool = False
    error: Error | None = None


@composite(0x17, "amqp:end:list", ERROR)
@dataclass(slots=True)
class End:
    """The end of a session."""

    error: Error | None = None


@composite(0x18, "amqp:close:list", ERROR)
@dataclass(slots=True)
class Close:
    """The end of a connection."""

    error: Error | None = None


Performative: TypeAlias = (
    Open
    | Begin
    | Attach
    | Flow
    | Transfer
    | Disposition
    | Detach
    | End
    | Close
    | SaslMechanisms
    | SaslInit
    | SaslChallenge
    | SaslResponse
    | SaslOutcome
)

_PERFORMATIVES: Final = frozenset(Performative.__args__)
_FAST: Final = {0x13: hot.decode_flow, 0x14: hot.decode_transfer, 0x15: hot.decode_disposition}


def encode_performative(performative: Performative) -> bytes:
    """Return the body of a frame (without payload). Raises CodecError if a field is out of its type's range."""
    return encode_composite(performative)


def decode_performative(data: bytes, at: int = 0, end: int | None = None) -> tuple[Performative, int]:
    """Return the performative at `at`, and its end, where a transfer's payload begins.

    Raises CodecError if there is no valid performative of AMQP or SASL.
    """
    stop = len(data) if end is None or end > len(data) else end
    if data[at : at + 2] == b"\x00\x53" and stop - at > 3:
        fast = _FAST.get(data[at + 2])
        if fast is not None:
            found = fast(data, at, stop)
            if found is not None:
                return found
    value, at = decode(data, at, stop)
    item: Any = resolve(value)
    if type(item) not in _PERFORMATIVES:
        raise CodecError("a frame does not begin with a performative")
    return item, at
