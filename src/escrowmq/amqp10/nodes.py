"""Addresses, filters and the terminus of a link: what a sender or receiver attaches to, and how much outlives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from escrowmq.amqp10.errors import UsageError
from escrowmq.wire.addresses import exchange_address, queue_address
from escrowmq.wire.amqp10.codec.performatives import FIRST, MIXED_MODE, SECOND, SETTLED_MODE, UNSETTLED_MODE
from escrowmq.wire.amqp10.codec.states import Modified
from escrowmq.wire.amqp10.codec.termini import DeleteOnClose, Source, Target
from escrowmq.wire.amqp10.codec.types import Described, Symbol, UInt, ULong

Mode = Literal["presettled", "first", "second"]
"""`presettled`: at most once. `first`: the receiver settles first, at least once. `second`: the receiver settles after
the sender, which is exactly once if the terminus is durable."""

MODES: Final[dict[str, tuple[int, int]]] = {
    "presettled": (SETTLED_MODE, FIRST),
    "first": (UNSETTLED_MODE, FIRST),
    "second": (UNSETTLED_MODE, SECOND),
    "mixed": (MIXED_MODE, FIRST),
}
OUTCOMES: Final = tuple(Symbol(f"amqp:{name}:list") for name in ("accepted", "rejected", "released", "modified"))
_POLICIES: Final = ("link-detach", "session-end", "connection-close", "never")
FOREVER: Final = 2**32 - 1


def queue(name: str) -> str:
    """Return the address of a queue, as RabbitMQ 4 writes it: `/queues/NAME`, percent-encoded."""
    return queue_address(name)


def exchange(name: str, routing_key: str = "") -> str:
    """Return the address of an exchange with a routing key: `/exchanges/NAME/KEY`, percent-encoded."""
    return exchange_address(name, routing_key)


def selector(expression: str) -> dict[str, Any]:
    """Return a filter that passes the messages for which a SQL92 expression, as in JMS, is true."""
    return {"jms-selector": Described(ULong(0x0000468C00000004), expression)}


def no_local() -> dict[str, Any]:
    """Return a filter that keeps back the messages which the same connection has sent."""
    return {"no-local": Described(ULong(0x0000468C00000003), "NoLocalFilter{}")}


def stream_offset(offset: int | str) -> dict[str, Any]:
    """Return a filter that starts reading a stream at an offset, or at `first`, `last` or `next`."""
    return {"rabbitmq:stream-offset-spec": Described(Symbol("rabbitmq:stream-offset-spec"), offset)}


@dataclass(frozen=True, slots=True)
class Terminus:
    """How long the broker keeps a link's terminus, with its unsettled deliveries, after the link is gone.

    `durable` is 0 (nothing survives a crash of the broker), 1 (the terminus does) or 2 (the unsettled deliveries do
    too). `expiry` names the event that starts `timeout` (s): `link-detach`, `session-end`, `connection-close`, or
    `never`.
    """

    durable: int = 0
    expiry: str = "session-end"
    timeout: int = 0

    def __post_init__(self) -> None:
        if self.durable not in (0, 1, 2) or self.expiry not in _POLICIES or not 0 <= self.timeout <= FOREVER:
            raise UsageError(f"bad terminus {self!r}: durable is 0 to 2, expiry one of {', '.join(_POLICIES)}")

    @property
    def resumable(self) -> bool:
        """Whether the terminus outlives the connection, so that a link can resume with its unsettled deliveries."""
        return self.expiry == "never" or self.timeout > 0


DURABLE: Final = Terminus(2, "never")
"""The terminus, with its unsettled deliveries, survives everything until the link is closed."""


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """What a sender or receiver asks for when it attaches.

    `address` is None for the anonymous terminus (a sender's messages then say `to`), or with `dynamic`, which has the
    broker create a node that lives as long as the link. `subscription` lists capabilities of the source, such as
    `shared` and `global`. `manual` leaves settling in mode `second` to the caller.
    """

    address: str | None
    mode: str = "first"
    terminus: Terminus = field(default_factory=Terminus)
    dynamic: bool = False
    distribution: Literal["move", "copy"] | None = None
    filters: Mapping[str, Any] = field(default_factory=dict)
    capabilities: Sequence[str] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)
    default_outcome: Any = None
    manual: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UsageError(f"unknown mode {self.mode!r}: use {', '.join(MODES)}")

    @property
    def settle_modes(self) -> tuple[int, int]:
        """Return snd-settle-mode and rcv-settle-mode."""
        return MODES[self.mode]

    def source(self) -> Source:
        """Return the source of a receiver."""
        return Source(
            address=None if self.dynamic else self.address,
            durable=UInt(self.terminus.durable),
            expiry_policy=Symbol(self.terminus.expiry),
            timeout=UInt(self.terminus.timeout),
            dynamic=self.dynamic,
            dynamic_node_properties=_LIFETIME if self.dynamic else None,
            distribution_mode=None if self.distribution is None else Symbol(self.distribution),
            filter={Symbol(name): value for name, value in self.filters.items()} or None,
            default_outcome=Modified(delivery_failed=True) if self.default_outcome is None else self.default_outcome,
            outcomes=OUTCOMES,
            capabilities=_symbols(self.capabilities),
        )

    def target(self) -> Target:
        """Return the target of a sender."""
        return Target(
            address=None if self.dynamic else self.address,
            durable=UInt(self.terminus.durable),
            expiry_policy=Symbol(self.terminus.expiry),
            timeout=UInt(self.terminus.timeout),
            dynamic=self.dynamic,
            dynamic_node_properties=_LIFETIME if self.dynamic else None,
            capabilities=_symbols(self.capabilities),
        )

    def own_end(self, name: str) -> Source | Target:
        """Return the terminus at the client's own end of a link: a sender's source."""
        return Source(
            address=name,
            durable=UInt(self.terminus.durable),
            expiry_policy=Symbol(self.terminus.expiry),
            timeout=UInt(self.terminus.timeout),
            outcomes=OUTCOMES,
        )


_LIFETIME: Final = {Symbol("lifetime-policy"): DeleteOnClose()}


def _symbols(names: Sequence[str]) -> tuple[Symbol, ...]:
    return tuple(map(Symbol, names))


def terminus_of_subscription(mode: Mode | None) -> Terminus:
    """Return the terminus of a durable subscription. The broker keeps unsettled deliveries only for links that settle
    second; those of others return to the queue of the subscription.
    """
    return DURABLE if mode == "second" else Terminus(1, "never")


def terminus_for(mode: str) -> Terminus:
    """Return the terminus of a link for which none was given.

    In mode `second`, the broker keeps the unsettled deliveries for five minutes, so that the link survives a lost
    connection. Other modes need no state.
    """
    return Terminus(2, "link-detach", 300) if mode == "second" else Terminus()
