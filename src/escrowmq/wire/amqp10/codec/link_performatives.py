"""The performatives that a link exchanges while it is attached: flow, transfer, disposition (part 2, section 2.7)."""

from __future__ import annotations

from dataclasses import dataclass

from escrowmq.wire.amqp10.codec.composite import BINARY, BOOLEAN, FIELDS, UBYTE, UINT, composite
from escrowmq.wire.amqp10.codec.states import STATE, DeliveryState
from escrowmq.wire.amqp10.codec.types import Value


@composite(0x13, "amqp:flow:list", UINT, UINT, UINT, UINT, UINT, UINT, UINT, UINT, BOOLEAN, BOOLEAN, FIELDS)
@dataclass(slots=True, kw_only=True)
class Flow:
    """The state of a session's windows, and with a handle of a link's credit."""

    next_incoming_id: int | None = None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: dict[Value, Value] | None = None


@composite(
    0x14,
    "amqp:transfer:list",
    UINT,
    UINT,
    BINARY,
    UINT,
    BOOLEAN,
    BOOLEAN,
    UBYTE,
    STATE,
    BOOLEAN,
    BOOLEAN,
    BOOLEAN,
)
@dataclass(slots=True)
class Transfer:
    """A delivery or a part of one. Later parts may lack delivery-id, tag, format and `settled`."""

    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: int | None = None
    state: DeliveryState | None = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


@composite(0x15, "amqp:disposition:list", BOOLEAN, UINT, UINT, BOOLEAN, STATE, BOOLEAN)
@dataclass(slots=True)
class Disposition:
    """The new state of the deliveries `first` to `last` (only `first` if `last` is None)."""

    role: bool
    first: int
    last: int | None = None
    settled: bool = False
    state: DeliveryState | None = None
    batchable: bool = False
