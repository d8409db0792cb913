"""Sources, targets and lifetime policies of nodes (part 3, section 3.5); coordinators (part 4, section 4.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from escrowmq.wire.amqp10.codec.composite import (
    BINARY,
    BOOLEAN,
    FIELDS,
    STRING,
    SYMBOL,
    SYMBOLS,
    UINT,
    FieldKind,
    composite,
    one_of,
)
from escrowmq.wire.amqp10.codec.states import OUTCOME, Outcome
from escrowmq.wire.amqp10.codec.types import Symbol, Value

DURABLE_NONE: Final = 0
DURABLE_CONFIGURATION: Final = 1
DURABLE_UNSETTLED_STATE: Final = 2

LINK_DETACH: Final = Symbol("link-detach")
SESSION_END: Final = Symbol("session-end")
CONNECTION_CLOSE: Final = Symbol("connection-close")
NEVER: Final = Symbol("never")


@composite(
    0x28,
    "amqp:source:list",
    STRING,
    UINT,
    SYMBOL,
    UINT,
    BOOLEAN,
    FIELDS,
    SYMBOL,
    FIELDS,
    OUTCOME,
    SYMBOLS,
    SYMBOLS,
)
@dataclass(slots=True)
class Source:
    """Where a link's messages come from. `timeout` is in seconds."""

    address: str | None = None
    durable: int = DURABLE_NONE
    expiry_policy: str = SESSION_END
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: dict[Value, Value] | None = None
    distribution_mode: str | None = None
    filter: dict[Value, Value] | None = None
    default_outcome: Outcome | None = None
    outcomes: tuple[Symbol, ...] = ()
    capabilities: tuple[Symbol, ...] = ()


@composite(0x29, "amqp:target:list", STRING, UINT, SYMBOL, UINT, BOOLEAN, FIELDS, SYMBOLS)
@dataclass(slots=True)
class Target:
    """Where a link's messages go. `timeout` is in seconds."""

    address: str | None = None
    durable: int = DURABLE_NONE
    expiry_policy: str = SESSION_END
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: dict[Value, Value] | None = None
    capabilities: tuple[Symbol, ...] = ()


@composite(0x30, "amqp:coordinator:list", SYMBOLS)
@dataclass(slots=True)
class Coordinator:
    """The target of a link that declares and discharges transactions."""

    capabilities: tuple[Symbol, ...] = ()


@composite(0x31, "amqp:declare:list", FieldKind(lambda value: value, lambda value: value))
@dataclass(slots=True)
class Declare:
    """A request for a new transaction."""

    global_id: Value = None


@composite(0x32, "amqp:discharge:list", BINARY, BOOLEAN)
@dataclass(slots=True)
class Discharge:
    """A request to commit a transaction, or with `fail` to roll it back. Absent, `fail` is false.

    Encoders should give `fail`: Artemis rejects a discharge without it.
    """

    txn_id: bytes
    fail: bool | None = None


@composite(0x2B, "amqp:delete-on-close:list")
@dataclass(slots=True)
class DeleteOnClose:
    """A dynamic node lives until the link that created it is closed."""


@composite(0x2C, "amqp:delete-on-no-links:list")
@dataclass(slots=True)
class DeleteOnNoLinks:
    """A dynamic node lives until it has no links."""


@composite(0x2D, "amqp:delete-on-no-messages:list")
@dataclass(slots=True)
class DeleteOnNoMessages:
    """A dynamic node lives until its creating link is closed and it has no messages."""


@composite(0x2E, "amqp:delete-on-no-links-or-messages:list")
@dataclass(slots=True)
class DeleteOnNoLinksOrMessages:
    """A dynamic node lives until it has neither links nor messages."""


SOURCE: Final = one_of(Source)
TARGET: Final = one_of(Target, Coordinator)
