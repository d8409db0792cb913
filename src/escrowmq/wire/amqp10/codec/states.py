"""Delivery states (part 3, section 3.4; part 4, section 4.5), and the error that some of them contain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from escrowmq.wire.amqp10.codec.composite import (
    BINARY,
    BOOLEAN,
    FIELDS,
    STRING,
    SYMBOL,
    UINT,
    ULONG,
    FieldKind,
    composite,
    described,
    encode_composite,
    one_of,
)
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.types import Described, Symbol, ULong, Value


@composite(0x1D, "amqp:error:list", SYMBOL, STRING, FIELDS)
@dataclass(slots=True)
class Error:
    """Why a link, session or connection ended, or a message was rejected (part 2, section 2.8.14)."""

    condition: str
    description: str | None = None
    info: dict[Value, Value] | None = None


ERROR: Final = one_of(Error)


@composite(0x23, "amqp:received:list", UINT, ULONG)
@dataclass(slots=True)
class Received:
    """How much of a delivery has arrived: all sections before `section_number`, and `section_offset` octets of it."""

    section_number: int
    section_offset: int


@composite(0x24, "amqp:accepted:list")
@dataclass(slots=True)
class Accepted:
    """The message was processed."""


@composite(0x25, "amqp:rejected:list", ERROR)
@dataclass(slots=True)
class Rejected:
    """The message is invalid."""

    error: Error | None = None


@composite(0x26, "amqp:released:list")
@dataclass(slots=True)
class Released:
    """The message was not processed and is available again."""


@composite(0x27, "amqp:modified:list", BOOLEAN, BOOLEAN, FIELDS)
@dataclass(slots=True)
class Modified:
    """The message was not processed, and changes before it is available again."""

    delivery_failed: bool = False
    undeliverable_here: bool = False
    message_annotations: dict[Value, Value] | None = None


Outcome: TypeAlias = Accepted | Rejected | Released | Modified

_OUTCOMES: Final = (Accepted, Rejected, Released, Modified)
OUTCOME: Final = one_of(*_OUTCOMES)
OUTCOME_SYMBOLS: Final = tuple(Symbol(f"amqp:{name}:list") for name in ("accepted", "rejected", "released", "modified"))
"""The names of the outcomes, as `outcomes` of a source lists them."""


@composite(0x33, "amqp:declared:list", BINARY)
@dataclass(slots=True)
class Declared:
    """A transaction began; this is the outcome of a `Declare`."""

    txn_id: bytes


@composite(0x34, "amqp:transactional-state:list", BINARY, OUTCOME)
@dataclass(slots=True)
class TransactionalState:
    """The state of a delivery within a transaction."""

    txn_id: bytes
    outcome: Outcome | None = None


DeliveryState: TypeAlias = Received | Outcome | Declared | TransactionalState

STATE: Final = one_of(Received, *_OUTCOMES, Declared, TransactionalState)

ACCEPTED: Final = encode_composite(Accepted())
RELEASED: Final = encode_composite(Released())
_DESCRIPTORS: Final = (ULong, Symbol)


def _read_unsettled(value: Value) -> dict[bytes, DeliveryState | None]:
    states: dict[bytes, DeliveryState | None] = {}
    plain: dict[Value, DeliveryState] = {}  # states without fields, by descriptor: most are the same
    for tag, state in _map_of_tags(value).items():
        if state is None:
            states[tag] = None
        elif type(state) is Described and type(state.descriptor) in _DESCRIPTORS and state.value == []:
            found = plain.get(state.descriptor)
            if found is None:
                found = plain[state.descriptor] = STATE.read(state)
            states[tag] = found
        else:
            states[tag] = STATE.read(state)
    return states


def _map_of_tags(value: Value) -> dict[bytes, Value]:
    if type(value) is not dict or any(type(tag) is not bytes for tag in value):
        raise CodecError("unsettled deliveries must be a map with delivery tags as keys")
    return value


def _write_unsettled(value: dict[bytes, DeliveryState | None]) -> Value:
    return {tag: None if state is None else described(state) for tag, state in value.items()}


UNSETTLED: Final = FieldKind(_read_unsettled, _write_unsettled)
"""The map of unsettled deliveries of an attach: delivery tag to state, null if it has none."""
