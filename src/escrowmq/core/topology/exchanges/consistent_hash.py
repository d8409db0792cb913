"""Exchange of type `x-consistent-hash`: each message goes to one destination, chosen by a hash of its routing key.

The type and its arguments are those of RabbitMQ's plugin. The routing key of a binding is its weight: a destination
with weight 2 gets twice as many keys as one with weight 1. The argument `hash-header` names a header whose value is
hashed instead of the routing key of the message.

Each destination gets a score from a hash of its name and the key, and the highest score wins (weighted rendezvous
hashing). So the choice depends neither on the order of the bindings nor on a restart, and if a destination is added or
removed, only the keys that it gains or loses move.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import blake2b
from math import log
from typing import ClassVar, Final

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.values import shown
from escrowmq.core.topology.exchange import NO_ARGUMENTS, Binding, Exchange, Q

HEADER_ARGUMENT: Final = "hash-header"
PROPERTY_ARGUMENT: Final = "hash-property"
MOST_WEIGHT: Final = 1_000_000
"""The highest weight of a binding."""
MOST_DESTINATIONS: Final = 1000
"""The number of queues and exchanges that are bound to one exchange, since each gets a score for each new key."""
_MASK: Final = (1 << 64) - 1
_MIXERS: Final = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)  # those of MurmurHash3's finalizer, which mixes 64 bits
_SCALE: Final = 1.0 / (1 << 53)


class ConsistentHashExchange(Exchange[Q]):
    """Raises PRECONDITION_FAILED if `hash-header` is not a name, and for `hash-property`, which is not supported."""

    __slots__ = ("_header", "_seeds", "_steps", "_weights")

    kind: ClassVar[str] = "x-consistent-hash"
    divides: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object] = NO_ARGUMENTS,
    ) -> None:
        super().__init__(name, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments)
        header = arguments.get(HEADER_ARGUMENT)
        if header is not None and not isinstance(header, str):
            raise self._refused(f"argument '{HEADER_ARGUMENT}' is {shown(header)}, and must be the name of a header")
        if arguments.get(PROPERTY_ARGUMENT) is not None:
            raise self._refused(f"argument '{PROPERTY_ARGUMENT}' is not supported; use '{HEADER_ARGUMENT}'")
        self._header = header
        self._weights: dict[Q | Exchange[Q], int] = {}
        self._seeds: dict[Q | Exchange[Q], int] = {}
        self._steps = 0

    @property
    def needs_headers(self) -> bool:
        return self._header is not None

    @property
    def steps(self) -> int:
        return self._steps

    def check_binding(self, binding: Binding[Q]) -> None:
        if len(self._weights) >= MOST_DESTINATIONS and binding.destination not in self._weights:
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"exchange '{self.name}' of type '{self.kind}' has {MOST_DESTINATIONS} destinations, the limit",
            )

    def match(self, routing_key: str, headers: Mapping[str, object] | None) -> Collection[Q | Exchange[Q]]:
        weights = self._weights
        self._steps = len(weights)
        if len(weights) < 2:  # there is nothing to choose
            return weights
        hashed = _hash(routing_key if self._header is None else _text((headers or {}).get(self._header)))
        seeds = self._seeds
        return (max(weights, key=lambda target: _score(hashed ^ seeds[target], weights[target])),)

    def _index(self, binding: Binding[Q]) -> None:
        target = binding.destination
        self._weights[target] = self._weights.get(target, 0) + self._weight(binding)
        self._seeds[target] = _hash(f"{'exchange' if binding.to_exchange else 'queue'}:{target.name}")

    def _unindex(self, binding: Binding[Q]) -> None:
        target = binding.destination
        self._weights[target] -= self._weight(binding)
        if not self._weights[target]:
            del self._weights[target], self._seeds[target]

    def _weight(self, binding: Binding[Q]) -> int:
        key = binding.routing_key
        weight = int(key) if key.isascii() and key.isdecimal() and len(key) <= len(str(MOST_WEIGHT)) else 0
        if not 1 <= weight <= MOST_WEIGHT:
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"binding key '{key}' of '{binding.destination.name}' to exchange '{self.name}': the key is the weight "
                f"of the binding, and must be a whole number from 1 to {MOST_WEIGHT}",
            )
        return weight

    def _refused(self, why: str) -> BrokerError:
        return BrokerError(
            Condition.PRECONDITION_FAILED, f"invalid exchange '{self.name}' of type '{self.kind}': {why}"
        )


def _text(value: object) -> str:
    """Return the text by which the value of a header is hashed; a missing header counts as an empty one."""
    if value is None:
        return ""
    return value if isinstance(value, str) else repr(value)


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _score(mixed: int, weight: int) -> float:
    """Return the score of a destination: `weight / -ln(u)`, where `u` is uniform between 0 and 1."""
    for mixer in _MIXERS:
        mixed = ((mixed ^ (mixed >> 33)) * mixer) & _MASK
    mixed ^= mixed >> 33
    return weight / -log(((mixed >> 11) + 0.5) * _SCALE)
